"""The configuration of one run: what its graph reads, its waits, and how it is set up."""

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, Self, cast, get_args, get_origin

from pydantic import (
    Field,
    ValidationError,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    field_validator,
    model_validator,
)
from pydantic.fields import FieldInfo

from costada.controller.constants import MAX_ITERATIONS, Constants, Guides
from costada.controller.experiment import check_experiment
from costada.controller.methods import METHODS, check_guides
from costada.controller.router import ROUTERS, router_kind, start_router
from costada.controller.router_rules import DEFAULT_ROUTER, FIXED
from costada.evaluators.remote.engine import IN_PROCESS, engine_and_place
from costada.evaluators.sandbox.layers import Layer
from costada.evaluators.sandbox.limits import MIN_MEMORY_MB
from costada.models.menu import ModelEntry
from costada.models.providers import KEY_VARIABLES
from costada.nodes.settings import (
    DEFAULT_CONSTANTS,
    MAX_PARALLEL,
    Dollars,
    SearchSettings,
    Settings,
)
from costada.reports.run_view import ListedSetting
from costada.runs.setting_types import (
    PRESETS,
    TRACKERS,
    Address,
    EndpointPlace,
    EvaluationPlace,
    PresetName,
    ProblemName,
    Seconds,
    Trackers,
)
from costada.runs.user_input import explain
from costada.values.setting import (
    EVALUATION,
    MODELS,
    MONEY,
    OUTPUT,
    SEARCH,
    Setting,
    unknown_name,
)
from costada.values.usage import Price

OFFLINE, LOCAL = "offline", "local"
DEFAULT_BUDGET = 1.0
EXECUTION = (
    *("parallel", "order", "evaluations_at_once", "evaluate_on", "endpoint", "log"),
    "purse_slice",
)
"""Settings of how iterations are carried out; a resumed run may get others."""

RENAMED = {"evaluators": "evaluations_at_once", "evaluations": "evaluate_on"}
"""Names of settings in earlier runs, and those of today."""

CHOSEN_BY_JOBS = ("problem", "budget", "seed", "target")
"""Settings that a job of a queue may choose; all others are those of its server."""

FOLDER_SETTINGS = ("gateway", "keep_history", "log")
"""Settings that only a run with a folder has."""

GRAPH_SETTINGS = tuple(
    name
    for name in Settings.model_fields
    if name not in {*SearchSettings.model_fields, "constants"}
)
"""Settings that only a graph has, whose caller can be asked."""

LEADING = ("problem", "budget", "preset", "method", "max_iterations", "model", "models", "router")
"""Settings that come first where all are listed."""

CONTROLLER, OTHER_PRICES, MENU, LOG = "controller", "other_prices", "models", "log"
OWN_CONSTANTS = ("reference_cost", "max_iterations", "guides")
"""Constants of the controller that are settings of their own."""

FROM_PYTHON = {"text_is_number": False}
"""Validation context for the settings of a Python caller, whose numbers are not texts."""

STORED = {"is_stored": True}
"""Validation context for the settings of a stored run, which an earlier version may have checked
less strictly."""


def changed_constants(given: object) -> object:
    """The fields of `Constants` that differ from the defaults; other values as they are."""
    if not isinstance(given, Constants):
        return given
    return {name: value for name, value in given if value != getattr(DEFAULT_CONSTANTS, name)}


class RunConfig(SearchSettings):
    """The settings of a run: those of its search, and how it is set up and evaluated.

    The options of the commands and the keywords of `discover` are these fields. Contains no API
    key: keys stay in the environment.
    """

    problem: Annotated[ProblemName, Setting("costada.evaluators.registry:problem")]
    """A benchmark (see costada list) or a problem folder."""

    budget: Annotated[
        Dollars,
        Setting(
            "costada.controller.credit:has_crossed",
            MONEY,
            default=f"the preset's or {DEFAULT_BUDGET}",
        ),
    ] = DEFAULT_BUDGET
    """Dollars to spend (B)."""

    preset: Annotated[
        PresetName | None,
        Setting("costada.runs.config:RunConfig.model_price", MONEY, names=PRESETS),
    ] = None
    """Prices, budget, reference cost and prompt order of the paper."""

    max_iterations: Annotated[
        int,
        Field(ge=1, le=MAX_ITERATIONS),
        Setting("costada.controller.step:stop_reason", SEARCH),
    ] = DEFAULT_CONSTANTS.max_iterations
    """Maximum number of iterations (T_max)."""

    guides: Annotated[
        Guides,
        Field(description=Constants.model_fields["guides"].description),
        Setting("costada.controller.guidance:has_reason", SEARCH),
    ] = DEFAULT_CONSTANTS.guides

    parallel: Annotated[
        int,
        Field(ge=1, le=MAX_PARALLEL),
        Setting("costada.graph.routes:can_launch", SEARCH, "K"),
    ] = 1
    """Iterations in flight at the same time."""

    order: Annotated[
        Literal["landing", "launch"], Setting("costada.nodes.in_flight:_next_key", SEARCH)
    ] = "landing"
    """Order in which parallel iterations end. landing: as answers arrive, the fastest. launch: as
    they were started, so that a seed repeats a run."""

    controller: Annotated[
        Mapping[str, Any],
        Setting("costada.runs.config:RunConfig.constants", given="Constants | Mapping[str, Any]"),
    ] = {}
    """Constants of the controller that differ from the defaults, by name, for example
    base_patience; in Python also as `Constants`."""

    model: Annotated[
        str, Field(min_length=1), Setting("costada.models.chat_models:chat_model", MODELS)
    ] = OFFLINE
    """offline (needs no key and no network), replay:FILE, openai:NAME or PROVIDER:NAME."""

    models: Annotated[
        tuple[ModelEntry, ...],
        Setting(
            "costada.runs.configured_models:menu_models",
            MODELS,
            "MODEL,MODEL,...",
            "the one of --model",
        ),
    ] = ()
    """Models to choose from before each attempt, in place of one: PROVIDER:NAME, optionally
    with @EFFORT, @TIER or @SET, or an alias of the models file."""

    router: Annotated[
        str,
        Setting(
            "costada.controller.router:router_kind",
            MODELS,
            "ROUTER",
            names=(*ROUTERS, f"{FIXED}NAME"),
        ),
    ] = DEFAULT_ROUTER
    """The rule that chooses one of several models."""

    guide_model: Annotated[
        str | None,
        Field(min_length=1),
        Setting("costada.nodes.context:guides_of", MODELS, default="the same"),
    ] = None
    """The model that writes tactics."""

    base_url: Annotated[
        Address | None, Setting("costada.models.chat_models:chat_model", MODELS)
    ] = None
    """Address of an OpenAI-compatible server, for openai: models."""

    max_tokens: Annotated[
        int | None,
        Field(ge=1),
        Setting(
            "costada.models.chat_models:chat_model",
            MODELS,
            default="32000; unlimited for the offline model",
        ),
    ] = None
    """Maximum tokens of a response, which also bounds the cost of a lost call."""

    gateway: Annotated[
        bool | None,
        Setting(
            "costada.runs.gateways:uses_gateway",
            MODELS,
            default="with --parallel above 1, where possible",
        ),
    ] = None
    """Send calls of openai: models through a process that survives if this one is killed."""

    sandbox: Annotated[
        Layer | None,
        Setting(
            "costada.evaluators.problem:confine",
            EVALUATION,
            "LAYER",
            f"the problem's or {Layer.AUTO}",
            tuple(Layer),
        ),
    ] = None
    """Sandbox of the candidates."""

    evaluations_at_once: Annotated[
        int | None,
        Field(ge=1, le=MAX_PARALLEL),
        Setting(
            "costada.evaluators.problem:confine",
            EVALUATION,
            "N",
            "number of cores, or 1 for noisy scores",
        ),
    ] = None
    """Evaluations that run at the same time."""

    evaluate_on: Annotated[
        EvaluationPlace,
        Setting(
            "costada.evaluators.remote.backend:evaluated_by",
            EVALUATION,
            "WHERE",
            given="str | Executor",
        ),
    ] = IN_PROCESS
    """Where evaluations run: here, local:N (worker processes), dask://HOST:PORT, ray://HOST:PORT
    or ray://auto."""

    endpoint: Annotated[
        EndpointPlace | None,
        Setting(
            "costada.evaluators.remote.backend:evaluated_by",
            EVALUATION,
            "HOST[:PORT]",
            "the address that faces the cluster",
        ),
    ] = None
    """Address of this machine through which workers on other machines reach the models that
    evaluators call."""

    timeout: Annotated[
        Seconds | None,
        Setting("costada.evaluators.problem:confine", EVALUATION, "SECONDS", "the problem's"),
    ] = None
    """Wall-clock limit of one evaluation."""

    memory_mb: Annotated[
        int | None,
        Field(ge=MIN_MEMORY_MB),
        Setting("costada.evaluators.problem:confine", EVALUATION, "N", "the problem's"),
    ] = None
    """Memory limit of one evaluation in MiB."""

    preflight: Annotated[
        bool,
        Setting("costada.runs.plan:plan_search", EVALUATION, default="preflight"),
    ] = True
    """Evaluate the initial program before creating the run folder."""

    allow_invalid_start: Annotated[
        bool, Setting("costada.evaluators.problem:check_problem", EVALUATION)
    ] = False
    """Start even if the evaluator rejects the initial program, which then scores 0."""

    keep_history: Annotated[bool, Setting("costada.store.checkpoints:RunSaver", OUTPUT)] = False
    """Keep all checkpoints, for forks of earlier iterations; resuming needs only the latest."""

    log: Annotated[
        Trackers,
        Setting(
            "costada.runs.runner:execute_run",
            OUTPUT,
            "TRACKER",
            "none",
            TRACKERS,
            "str | Sequence[str]",
        ),
    ] = ()
    """Trackers to log the run to. Repeatable."""

    @model_validator(mode="before")
    @classmethod
    def _fill_from_preset(cls, given: object) -> object:
        """Take missing values from the preset; `None` counts as missing."""
        # Pydantic runs these three from the bottom up: a constant of the user is there before the
        # preset's is looked at.
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
            router_kind(self.router)
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
        kinds = _kinds_of_setting(cls, str(info.field_name))
        if isinstance(given, bool) and bool not in kinds:
            raise ValueError("expected a number or text")
        if info.context == FROM_PYTHON and isinstance(given, str) and {int, float} & kinds:
            raise ValueError("expected a number")
        return given

    @field_validator("memory_mb", mode="wrap")
    @classmethod
    def _check_memory(
        cls, given: object, check: ValidatorFunctionWrapHandler, info: ValidationInfo
    ) -> int | None:
        """Check what a user gives; earlier versions stored any number from 1 on."""
        if info.context == STORED and isinstance(given, int) and given >= 1:
            return given
        return cast(int | None, check(given))

    @model_validator(mode="after")
    def _check_models(self) -> Self:
        entries = [entry.model for entry in self.models if not entry.base_url]
        asked = entries if self.models else [self.model]
        if self.base_url and not any(map(is_openai, (*asked, self.guide_model))):
            raise ValueError("base_url: got one for no openai: model, expected model openai:NAME")
        if self.guide_price is not None and self.guide_model in (None, self.model):
            raise ValueError("guide_price: needs a guide_model that differs from the model")
        return self

    @model_validator(mode="after")
    def _check_other_prices(self, info: ValidationInfo) -> Self:
        """Refuse a price by the id of a model, which none is looked up by."""
        used = (self.model, self.guide_model, *(entry.model for entry in self.models))
        for name in self.other_prices:
            provider, colon, bare = name.partition(":")
            if colon and name in used and info.context != STORED:
                raise ValueError(
                    f"other_prices.{name}: got a name with its provider, {provider}; expected"
                    f" other_prices.{bare}"
                )
        return self

    @model_validator(mode="after")
    def _check_evaluations(self) -> Self:
        name, workers = engine_and_place(self.evaluate_on)
        count = self.evaluations_at_once
        if count and name == LOCAL and count > int(workers):
            raise ValueError(
                f"evaluations_at_once: got {count} with evaluate_on {self.evaluate_on!r}, expected"
                f" at most {workers}: a worker evaluates one program at a time"
            )
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
            lines = (f"{CONTROLLER}.{line}" for line in str(error).splitlines())
            raise ValueError("\n".join(lines)) from None
        return self

    @model_validator(mode="after")
    def _check_method(self) -> Self:
        # here too, as a sweep plans one run of each problem only
        method, num_models = METHODS[self.method], len(self.models) or 1
        check_guides(method, self.constants.guides)
        check_experiment(self.experiment, method, self.constants, num_models)
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
        shared = {name: getattr(self, name) for name in SearchSettings.model_fields}
        shared |= {"price": self.model_price, "constants": self.constants}
        if not self.models:
            shared["reference_cost"] = None  # of one model, it is that of the constants
        return Settings(**shared)

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
        for name, field in SETTINGS.items():
            value = setting_of(field).default if values[name] is None else values[name]
            is_default = getattr(self, name) == field.get_default(call_default_factory=True)
            is_empty = value is None or value == [] or value == {}
            text = value if isinstance(value, str) else "none" if is_empty else json.dumps(value)
            if isinstance(value, bool):
                text = "yes" if value else "no"
            elif name == MENU and self.models:
                text = "; ".join(entry.text for entry in self.models)
            found.append(ListedSetting(name, text, is_default, field.description or ""))
        return found


SETTINGS: Mapping[str, FieldInfo] = {
    name: RunConfig.model_fields[name]
    for name in dict.fromkeys((*LEADING, *RunConfig.model_fields))
}
"""The settings of a run in the order in which they are listed."""


def setting_of(field: FieldInfo) -> Setting:
    """What a setting says of its effect and its option."""
    return next(each for each in field.metadata if isinstance(each, Setting))


@cache
def _kinds_of_setting(config: type[RunConfig], name: str) -> set[object]:
    return _kinds(config.model_fields[name].annotation)


def _kinds(annotation: Any) -> set[object]:
    """The types that a field's annotation is made of."""
    if get_origin(annotation) is Annotated:
        return _kinds(get_args(annotation)[0])
    parts = get_args(annotation)
    return set().union(*map(_kinds, parts)) if parts else {annotation}


def constant_names() -> list[str]:
    """Names of the constants that `controller` can hold."""
    return [name for name in Constants.model_fields if name not in OWN_CONSTANTS]


def checked_config(given: Mapping[str, object]) -> RunConfig:
    """The configuration that a Python caller gives.

    Raises:
        ValueError: With one line per wrong setting.
    """
    try:
        return RunConfig.model_validate(given, context=FROM_PYTHON)
    except ValidationError as error:
        raise ValueError(explain(error, RunConfig.model_fields)) from None


def is_openai(model: object) -> bool:
    """Whether `base_url` applies to a model id."""
    return isinstance(model, str) and model.startswith("openai:")
