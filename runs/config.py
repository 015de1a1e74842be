"""The configuration of one run: every setting is declared here, once."""

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal, Self, cast, get_args, get_origin

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    FiniteFloat,
    ValidationError,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
    model_validator,
)

from costada.controller.constants import MAX_ITERATIONS, Constants
from costada.controller.methods import DEFAULT_METHOD, GROUP, METHODS
from costada.controller.router import DEFAULT_ROUTER, FIXED, ROUTERS, router_rule, start_router
from costada.evaluators.registry import is_built_in
from costada.evaluators.remote.engine_address import IN_PROCESS, checked_place
from costada.evaluators.sandbox.layers import Layer
from costada.models.addresses import checked_address
from costada.models.menu import ModelEntry, PriceField
from costada.models.providers import KEY_VARIABLES
from costada.models.retry_policy import RetryPolicy
from costada.nodes.settings import (
    DEFAULT_MAX_FAILURES,
    DEFAULT_TOOL_EVALUATIONS,
    MAX_PARALLEL,
    MAX_SEED,
    Generator,
    LostCalls,
    Settings,
    check_lost_calls,
    check_step_cap,
)
from costada.prompts.render import DEFAULT_ORDER, PromptOrder
from costada.reports.run_view import OBJECT_MARK, ListedSetting
from costada.reports.trackers.tracker import tracker_names
from costada.runs.user_input import explain, unknown_name
from costada.store.file_errors import other_format
from costada.store.files import read_text
from costada.store.schema import FORMAT
from costada.values.plugins import is_missing
from costada.values.usage import Price


@dataclass(frozen=True, slots=True)
class Preset:
    """One model of the paper's experiments.

    Attributes:
        price: Dollars per million input and output tokens (App. D.1).
        budget: `B` in dollars (Sec. 5.1).
        reference_cost: `c-bar` in dollars, the expected cost of a step (App. B.1).
    """

    price: Price
    budget: float
    reference_cost: float


PRESETS = {
    "glm-5": Preset(Price(Decimal("0.60"), Decimal("1.92")), budget=1.0, reference_cost=0.01),
    "gpt-5.4": Preset(Price(Decimal("2.50"), Decimal("15.00")), budget=5.0, reference_cost=0.1),
}

NO_TRACKER = "none"
TRACKERS = (*tracker_names(), NO_TRACKER)

OFFLINE = "offline"
MAX_SETTINGS = 2**20
"""Bytes of a settings file."""

DEFAULT_BUDGET = 1.0
DEFAULT_CONSTANTS = Constants()
DEFAULT_RETRIES = RetryPolicy()
EXECUTION = ("parallel", "order", "evaluators", "evaluations", "log")
"""Settings of how iterations are carried out; a resumed run may get others."""

CONTROLLER, OTHER_PRICES, MENU, LOG = "controller", "other_prices", "models", "log"
OWN_CONSTANTS = ("reference_cost", "max_iterations")
"""Constants of the controller that are settings of their own."""

FROM_PYTHON = {"text_is_number": False}
"""Validation context for the settings of a Python caller, whose numbers are no texts."""


def changed_constants(given: object) -> object:
    """The fields of `Constants` that differ from the defaults; other values as they are."""
    if not isinstance(given, Constants):
        return given
    values = {field.name: getattr(given, field.name) for field in fields(given)}
    return {
        name: value for name, value in values.items() if value != getattr(DEFAULT_CONSTANTS, name)
    }


@dataclass(frozen=True, slots=True)
class Shown:
    """How the help of a command shows a setting.

    Attributes:
        panel: Heading of the group of options.
        metavar: Placeholder of the value; `None`: its type or its choices.
        default: Text in place of the default value.
        names: Accepted names, listed behind the description.
    """

    panel: str
    metavar: str | None = None
    default: str | None = None
    names: Collection[str] = ()


MONEY, SEARCH, MODELS = Shown("Money"), Shown("Search"), Shown("Models")
EVALUATION, OUTPUT = Shown("Evaluation"), Shown("Output")
SECONDS = Shown(MODELS.panel, metavar="SECONDS")
MODEL_PRICE = Shown(MONEY.panel, "IN,OUT[,CACHED]", "the preset's or the list price")
GUIDE_PRICE = Shown(MONEY.panel, "IN,OUT[,CACHED]", "the list price")

Dollars = Annotated[FiniteFloat, Field(gt=0)]
Seconds = Annotated[FiniteFloat, Field(gt=0)]


def _known_method(name: str) -> str:
    if is_missing(GROUP, name):
        raise ValueError(f"method {name} is not installed")
    if name not in METHODS:
        raise ValueError(unknown_name("method", name, METHODS))
    return name


MethodName = Annotated[
    str, AfterValidator(_known_method), WithJsonSchema({"type": "string", "enum": list(METHODS)})
]


class RunConfig(BaseModel):
    """The settings of a run. The options of the commands and of `discover` are these fields.

    Contains no API key: keys stay in the environment.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    problem: str = Field(min_length=1)
    """A benchmark (see costada list) or a problem folder."""

    budget: Annotated[Dollars, Shown(MONEY.panel, default=f"the preset's or {DEFAULT_BUDGET}")] = (
        DEFAULT_BUDGET
    )
    """Dollars to spend (B)."""

    preset: Annotated[str | None, Shown(MONEY.panel, names=PRESETS)] = None
    """Prices, budget, reference cost and prompt order of the paper."""

    price: Annotated[PriceField | None, MODEL_PRICE] = None
    """Price of the model: dollars per million tokens of input, of output and, if it differs, of
    cached input."""

    guide_price: Annotated[PriceField | None, GUIDE_PRICE] = None
    """Price of the guide model, as for the model."""

    other_prices: Mapping[str, PriceField] = {}
    """Prices of further models by name, such as fallbacks: `input_per_million`,
    `output_per_million` and, if it differs, `cached_per_million`."""

    reference_cost: Annotated[
        Dollars | None,
        Shown(
            MONEY.panel,
            default="the preset's, the mean expected cost of several models, or"
            f" {DEFAULT_CONSTANTS.reference_cost}",
        ),
    ] = None
    """Expected cost per iteration, in dollars (c-bar)."""

    on_missing_usage: Annotated[Literal["raise", "estimate"], MONEY] = "raise"
    """What to do with a response without token counts: fail the run, or charge an estimate."""

    lost_calls: Annotated[LostCalls, MONEY] = "count"
    """Whether calls with an unknown outcome are charged at their upper bound. A hard budget
    requires count."""

    budget_policy: Annotated[Literal["crossing", "hard"], MONEY] = "crossing"
    """crossing: the last iteration may exceed the budget. hard: no call may."""

    step_cap: Annotated[Dollars | None, Shown(MONEY.panel, default="no cap")] = None
    """Dollars after which a generator with tools makes no further request in a step."""

    method: Annotated[MethodName, Shown(SEARCH.panel, "METHOD", names=METHODS)] = DEFAULT_METHOD
    """The method that allocates the budget."""

    max_iterations: Annotated[int, Field(ge=1, le=MAX_ITERATIONS), SEARCH] = (
        DEFAULT_CONSTANTS.max_iterations
    )
    """Maximum number of iterations (T_max)."""

    max_failures: Annotated[int, Field(ge=1), SEARCH] = DEFAULT_MAX_FAILURES
    """Consecutive attempts without a usable program after which the run stops."""

    generator: Annotated[Generator, SEARCH] = "model"
    """model: one response is one program. agent: the model may call tools before it submits."""

    tool_evaluations: Annotated[int, Field(ge=1), SEARCH] = DEFAULT_TOOL_EVALUATIONS
    """Programs that a generator with tools may evaluate before it submits."""

    prompt_order: Annotated[
        PromptOrder, Shown(SEARCH.panel, default=f"{DEFAULT_ORDER}; paper with a preset")
    ] = DEFAULT_ORDER
    """constant-first: what every call repeats comes first, for the prompt caches of providers.
    paper: the order of the paper's scaffold."""

    stop_when_flat: Annotated[
        Annotated[FiniteFloat, Field(gt=0, lt=1)] | None,
        Shown(MONEY.panel, "P", "off"),
    ] = None
    """End the run when the chance of another gain within the remaining budget is below P."""

    seed: Annotated[int, Field(ge=0, le=MAX_SEED), SEARCH] = 0
    """Random seed of the run."""

    parallel: Annotated[int, Field(ge=1, le=MAX_PARALLEL), Shown(SEARCH.panel, "K")] = 1
    """Iterations in flight at the same time."""

    order: Annotated[Literal["landing", "launch"], SEARCH] = "landing"
    """Order in which parallel iterations end. landing: as answers arrive, the fastest. launch: as
    they were started, so that a seed repeats a run."""

    controller: Mapping[str, Any] = {}
    """Constants of the controller that differ from the defaults, by name, for example
    base_patience; in Python also as `Constants`."""

    model: Annotated[str, Field(min_length=1), MODELS] = OFFLINE
    """offline (needs no key and no network), openai:NAME or PROVIDER:NAME."""

    models: Annotated[
        tuple[ModelEntry, ...], Shown(MODELS.panel, "MODEL,MODEL,...", "the one of --model")
    ] = ()
    """Models to choose from before each attempt, in place of one: PROVIDER:NAME, with @EFFORT,
    @TIER or @SET if wanted, or an alias of the models file."""

    router: Annotated[str, Shown(MODELS.panel, "ROUTER", names=(*ROUTERS, f"{FIXED}NAME"))] = (
        DEFAULT_ROUTER
    )
    """The rule that chooses one of several models."""

    guide_model: Annotated[
        str | None, Field(min_length=1), Shown(MODELS.panel, default="the same")
    ] = None
    """The model that is asked for tactics."""

    base_url: Annotated[str | None, MODELS] = None
    """Address of an OpenAI-compatible server, for openai: models."""

    max_tokens: Annotated[
        int | None,
        Field(ge=1),
        Shown(MODELS.panel, default="32000; unlimited for the offline model"),
    ] = None
    """Maximum tokens of a response, which also bounds the cost of a lost call."""

    call_timeout: Annotated[Seconds, SECONDS] = DEFAULT_RETRIES.call_timeout
    """Total time of one model call, including its retries."""

    retry_wait: Annotated[Seconds, SECONDS] = DEFAULT_RETRIES.retry_wait
    """First wait after a failed request; it doubles each time."""

    longest_wait: Annotated[Seconds, SECONDS] = DEFAULT_RETRIES.longest_wait
    """Longest wait between two requests; a provider that asks for more stops the run."""

    longest_pause: Annotated[Seconds, SECONDS] = DEFAULT_RETRIES.longest_pause
    """How long a run waits for an unavailable provider before it stops."""

    gateway: Annotated[
        bool | None, Shown(MODELS.panel, default="with --parallel above 1, where possible")
    ] = None
    """Send calls of openai: models through a process that survives if this one is killed."""

    sandbox: Annotated[
        Layer | None,
        Shown(EVALUATION.panel, "LAYER", f"the problem's or {Layer.AUTO}", tuple(Layer)),
    ] = None
    """Sandbox of the candidates."""

    evaluators: Annotated[
        int | None,
        Field(ge=1, le=MAX_PARALLEL),
        Shown(EVALUATION.panel, "N", "number of cores, or 1 for noisy scores"),
    ] = None
    """Evaluations that run at the same time."""

    evaluations: Annotated[str, Shown(EVALUATION.panel, "WHERE")] = IN_PROCESS
    """Where evaluations run: here, local:N (worker processes), dask://HOST:PORT, ray://HOST:PORT
    or ray://auto."""

    timeout: Annotated[Seconds | None, Shown(EVALUATION.panel, "SECONDS", "the problem's")] = None
    """Wall-clock limit of one evaluation."""

    memory_mb: Annotated[int | None, Field(ge=1), Shown(EVALUATION.panel, "N", "the problem's")] = (
        None
    )
    """Memory limit of one evaluation in MiB."""

    preflight: Annotated[bool, Shown(EVALUATION.panel, default="preflight")] = True
    """Evaluate the initial program before creating the run folder."""

    allow_invalid_start: Annotated[bool, EVALUATION] = False
    """Start even if the evaluator rejects the initial program, which then scores 0."""

    keep_history: Annotated[bool, OUTPUT] = False
    """Keep all checkpoints, for forks of earlier iterations; resuming needs only the latest."""

    log: Annotated[tuple[str, ...], Shown(OUTPUT.panel, "TRACKER", "none", TRACKERS)] = ()
    """Trackers to log the run to. Repeatable."""

    @model_validator(mode="before")
    @classmethod
    def _fill_from_preset(cls, given: object) -> object:
        """Take missing values from the preset; `None` counts as missing."""
        if not isinstance(given, dict):
            return given
        known = {name: value for name, value in given.items() if value is not None}
        name = known.get("preset")
        if not isinstance(name, str):
            return known
        if name not in PRESETS:
            return known  # refused below, as any field is
        preset = PRESETS[name]
        fixed = {"budget": preset.budget, "reference_cost": preset.reference_cost}
        return {**fixed, "prompt_order": "paper", **known}

    @model_validator(mode="before")
    @classmethod
    def _split_constants(cls, given: object) -> object:
        """Take those constants from `Constants` that are settings of their own."""
        if not isinstance(given, dict) or not isinstance(given.get(CONTROLLER), Constants):
            return given
        changed = cast(dict[str, Any], changed_constants(given[CONTROLLER]))
        own = {name: changed.pop(name) for name in OWN_CONSTANTS if name in changed}
        for name, value in own.items():
            if given.get(name, value) != value:
                raise ValueError(
                    f"{name}: got {given[name]!r} and {value!r} in {CONTROLLER}, expected only one"
                )
        return {**given, **own, CONTROLLER: changed}

    @model_validator(mode="before")
    @classmethod
    def _label_menu(cls, given: object) -> object:
        """Let the names of several models stand for the model, where a run is shown."""
        if not isinstance(given, dict) or not isinstance(given.get("models"), list | tuple):
            return given
        names = [
            entry.get("name", "") if isinstance(entry, dict) else getattr(entry, "name", "")
            for entry in given["models"]
        ]
        is_free = given.get("model") is None
        return {**given, "model": ",".join(names)} if names and is_free else given

    @model_validator(mode="after")
    def _check_menu(self) -> Self:
        if not self.models:
            router_rule(self.router)
            if self.router != DEFAULT_ROUTER:
                raise ValueError(f"router: got {self.router!r} without models, expected both")
            return self
        start_router(self.router, [entry.name for entry in self.models])
        if self.model != ",".join(entry.name for entry in self.models):
            raise ValueError(f"model: got {self.model!r} with models, expected only one of them")
        if self.price is not None:
            raise ValueError(
                "price: got one with models, expected the price of each in the models file"
            )
        return self

    @field_validator("*", mode="before")
    @classmethod
    def _check_kind(cls, given: object, info: ValidationInfo) -> object:
        """Refuse true, false and, from Python, text for a number; pydantic would convert them."""
        kinds = _kinds(cls.model_fields[str(info.field_name)].annotation)
        if isinstance(given, bool) and bool not in kinds:
            raise ValueError("expected a number or text")
        if info.context == FROM_PYTHON and isinstance(given, str) and {int, float} & kinds:
            raise ValueError("expected a number")
        return given

    @field_validator("preset")
    @classmethod
    def _check_preset(cls, name: str | None) -> str | None:
        if name is not None and name not in PRESETS:
            raise ValueError(unknown_name("preset", name, PRESETS))
        return name

    @field_validator("log", mode="before")
    @classmethod
    def _check_log(cls, given: object) -> object:
        """Read one name, several with commas, or a list of them; `none` stands for no tracker."""
        texts = [given] if isinstance(given, str) else given
        if not isinstance(texts, list | tuple):
            return given
        names = [name.strip() for text in texts for name in str(text).split(",")]
        if names == [NO_TRACKER]:
            return ()
        if NO_TRACKER in names:
            raise ValueError(f"got {NO_TRACKER} with others, expected it alone")
        if unknown := [name for name in names if name not in tracker_names()]:
            raise ValueError(unknown_name("tracker", unknown[0], TRACKERS))
        if len(set(names)) < len(names):
            raise ValueError("expected different trackers")
        return tuple(names)

    @field_validator("problem")
    @classmethod
    def _resolve_folder(cls, problem: str) -> str:
        """Save the absolute path of a problem folder, so that resuming works from anywhere."""
        is_folder = not is_built_in(problem) and Path(problem).is_dir()
        return str(Path(problem).resolve()) if is_folder else problem

    @field_validator("evaluations")
    @classmethod
    def _check_evaluations(cls, place: str) -> str:
        return place if place.startswith(OBJECT_MARK) else checked_place(place)

    @field_validator("base_url")
    @classmethod
    def _check_base_url(cls, url: str | None) -> str | None:
        return None if url is None else checked_address(url)

    @model_validator(mode="after")
    def _check_contradictions(self) -> Self:
        entries = [entry.model for entry in self.models if not entry.base_url]
        asked = entries if self.models else [self.model]
        if self.base_url and not any(map(is_openai, (*asked, self.guide_model))):
            raise ValueError("base_url: got one for no openai: model, expected model openai:NAME")
        if self.guide_price is not None and self.guide_model in (None, self.model):
            raise ValueError("guide_price: needs a guide_model that differs from the model")
        check_step_cap(self.step_cap, self.generator)
        check_lost_calls(self.lost_calls, is_hard=self.budget_policy == "hard")
        return self

    @model_validator(mode="after")
    def _check_controller(self) -> Self:
        known = [f"{CONTROLLER}.{name}" for name in constant_names()]
        for name in self.controller:
            if name in OWN_CONSTANTS:
                raise ValueError(f"{CONTROLLER}.{name}: expected as the setting {name}")
            if f"{CONTROLLER}.{name}" not in known:
                raise ValueError(unknown_name("setting", f"{CONTROLLER}.{name}", known))
        try:
            _ = self.constants
        except ValueError as error:
            raise ValueError(f"{CONTROLLER}.{error}") from None
        return self

    @property
    def constants(self) -> Constants:
        """The controller's constants."""
        own = {name: getattr(self, name) for name in OWN_CONSTANTS}
        if self.reference_cost is None:
            del own["reference_cost"]
        return Constants(**own, **self.controller)

    @property
    def label(self) -> str:
        """The model, or the models and the router that chooses among them."""
        return f"{self.model} by {self.router}" if len(self.models) > 1 else self.model

    @property
    def model_price(self) -> Price | None:
        """The price of `model`: given or the preset's; `None`: that of the menu, or the list's."""
        is_preset = self.price is None and self.preset and not self.models
        return PRESETS[self.preset].price if is_preset and self.preset else self.price

    @property
    def search(self) -> Settings:
        """The settings of the graph."""
        return Settings(
            constants=self.constants,
            method=self.method,
            seed=self.seed,
            price=self.model_price,
            guide_price=self.guide_price,
            other_prices=self.other_prices,
            on_missing_usage=self.on_missing_usage,
            lost_calls=self.lost_calls,
            budget_policy=self.budget_policy,
            max_failures=self.max_failures,
            prompt_order=self.prompt_order,
            stop_when_flat=self.stop_when_flat,
            generator=self.generator,
            tool_evaluations=self.tool_evaluations,
            step_cap=self.step_cap,
            reference_cost=self.reference_cost if self.models else None,
            retry_policy=RetryPolicy(
                self.call_timeout, self.retry_wait, self.longest_wait, self.longest_pause
            ),
        )

    @property
    def key_variables(self) -> frozenset[str]:
        """Variables of the environment that hold keys of models."""
        own = (entry.api_key_variable for entry in self.models)
        return frozenset((*KEY_VARIABLES.values(), *filter(None, own)))

    @property
    def listed(self) -> list[ListedSetting]:
        """All settings for a reader, the problem by its name."""
        values = {**self.model_dump(mode="json"), "problem": Path(self.problem).name}
        found = []
        for name, field in type(self).model_fields.items():
            shown = next((each for each in field.metadata if isinstance(each, Shown)), None)
            value = shown.default if shown and values[name] is None else values[name]
            is_default = getattr(self, name) == field.get_default(call_default_factory=True)
            is_empty = value is None or value == [] or value == {}
            text = value if isinstance(value, str) else "none" if is_empty else json.dumps(value)
            if isinstance(value, bool):
                text = "yes" if value else "no"
            elif name == MENU and self.models:
                text = "; ".join(entry.text for entry in self.models)
            found.append(ListedSetting(name, text, is_default, field.description or ""))
        return found

    @property
    def text(self) -> str:
        """The settings as JSON, with the format of the run folder, for their file."""
        known = {"format": FORMAT, **self.model_dump(mode="json")}
        return json.dumps(known, indent=2, ensure_ascii=False) + "\n"


def _kinds(annotation: Any) -> set[object]:
    """The types that a field's annotation is made of."""
    if get_origin(annotation) is Annotated:
        return _kinds(get_args(annotation)[0])
    parts = get_args(annotation)
    return set().union(*map(_kinds, parts)) if parts else {annotation}


def constant_names() -> list[str]:
    """Names of the constants that `controller` can hold."""
    return [field.name for field in fields(Constants) if field.name not in OWN_CONSTANTS]


def checked_config(given: Mapping[str, object]) -> RunConfig:
    """The configuration that a Python caller gives.

    Raises:
        ValueError: With one line per wrong setting.
    """
    try:
        return RunConfig.model_validate(given, context=FROM_PYTHON)
    except ValidationError as error:
        raise ValueError(explain(error, RunConfig.model_fields)) from None


def load_config(path: Path) -> RunConfig:
    """The configuration that was saved when a run started.

    Raises:
        ValueError: If the file does not exist, was written by another version or holds an invalid
            setting.
    """
    try:
        text = read_text(path, MAX_SETTINGS)
    except FileNotFoundError:
        raise ValueError(f"{path.parent}: holds no run (there is no {path.name} in it)") from None
    return read_config(text, path)


def read_config(text: str, place: Path | str) -> RunConfig:
    """The configuration in the saved text of one; `place` names it in messages.

    Raises:
        ValueError: If it was written by another version or holds an invalid setting.
    """
    known = _json_object(text)
    if known and (found := known.pop("format", None)) != FORMAT:
        raise other_format(place, found, FORMAT)
    try:
        return RunConfig.model_validate_json(json.dumps(known) if known else text)
    except ValidationError as error:
        raise ValueError(f"{place}:\n{explain(error, RunConfig.model_fields)}") from None


def _json_object(text: str) -> dict[str, object] | None:
    try:
        known = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return known if isinstance(known, dict) else None


def is_openai(model: str | None) -> bool:
    """Whether `base_url` applies to a model id."""
    return model is not None and model.startswith("openai:")
