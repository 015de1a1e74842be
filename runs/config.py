"""The settings of one run from outside, checked once and kept beside its results."""

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    FiniteFloat,
    ValidationError,
    field_validator,
    model_validator,
)

from costada.controller.constants import Constants
from costada.controller.methods import DEFAULT_METHOD, METHODS
from costada.evaluators.registry import is_built_in
from costada.evaluators.sandbox.layers import Layer
from costada.models.retry_policy import RetryPolicy
from costada.nodes.settings import (
    DEFAULT_MAX_FAILURES,
    DEFAULT_TOOL_EVALUATIONS,
    Generator,
    LostCalls,
    check_lost_calls,
    check_step_cap,
)
from costada.runs.user_input import explain, unknown_name
from costada.store.files import create_text, read_text
from costada.values.prices import Price


@dataclass(frozen=True, slots=True)
class Preset:
    """One backbone of the paper's experiments.

    Attributes:
        name: What `--preset` is given.
        price: Dollars per million input and output tokens (App. D.1).
        budget: `B` in dollars (Sec. 5.1).
        reference_cost: `c-bar` in dollars, the cost of an ordinary step (App. B.1).
    """

    name: str
    price: Price
    budget: float
    reference_cost: float


PRESETS = {
    preset.name: preset
    for preset in (
        Preset("glm-5", Price(Decimal("0.60"), Decimal("1.92")), budget=1.0, reference_cost=0.01),
        Preset("gpt-5.4", Price(Decimal("2.50"), Decimal("15.00")), budget=5.0, reference_cost=0.1),
    )
}


def preset_named(name: str) -> Preset:
    """Return the preset of that name.

    Raises:
        ValueError: If there is none; the text proposes the nearest name.
    """
    try:
        return PRESETS[name]
    except KeyError:
        raise ValueError(unknown_name("preset", name, PRESETS)) from None


OFFLINE = "offline"
LARGEST_SETTINGS = 2**20
"""Bytes of a settings file."""

DEFAULT_BUDGET = 1.0
LARGEST_SEED = 2**63 - 1

Dollars = Annotated[FiniteFloat, Field(gt=0)]
Seconds = Annotated[FiniteFloat, Field(gt=0)]
PricePerMillion = Annotated[Decimal, Field(ge=0, allow_inf_nan=False)]


class RunConfig(BaseModel):
    """What `costada run` was asked to do. Holds no key: those stay in the environment.

    Attributes:
        problem: Name of a benchmark, or the folder of one's own problem.
        method: Who decides where the money goes, for example `costada` or `adaevolve`.
        model: Model id, for example `openai:gpt-5.4` or `offline`.
        guide_model: Model id of the guide; `None`: the generating model.
        base_url: Address of an OpenAI-compatible server for `openai:` models.
        max_tokens: Most tokens of an answer; `None`: 32,000, and of the offline model any.
        price_in: Dollars per million input tokens of `model`; `None`: the preset's or packaged.
        price_out: Likewise for output tokens.
        guide_price_in: Dollars per million input tokens of `guide_model`.
        guide_price_out: Likewise for output tokens.
        on_missing_usage: What an answer without token counts does: end the run, or be estimated.
        lost_calls: Whether calls whose outcome is unknown count against the budget, at their bound.
        budget_policy: Whether the last iteration may cross the budget, or no call may.
        max_failures: Attempts in a row without a usable program after which the run stops.
        preset: Name of a preset of the paper.
        budget: `B` in dollars; default: the preset's, or 1.
        generator: Whether an attempt is one answer, or the model may use tools first.
        tool_evaluations: Programs that a model with tools may try within one attempt.
        step_cap: Dollars after which the generation of a step with tools asks no more; `None`: any.
        call_timeout: Seconds of one model call, its retries and waits included.
        retry_wait: Seconds of the first wait after a failed request; later waits grow.
        longest_wait: Most seconds between two requests; a provider that asks for more
            stops the run.
        longest_pause: Seconds that a run waits for a provider that does not answer.
        keep_history: Whether all checkpoints are kept, not only the latest.
        preflight: Whether evaluator and initial program are tried before the run begins.
        allow_invalid_start: Whether a run may begin though the initial program is rejected; a
            problem may allow it itself.
        gateway: Whether calls go through a journaling process of their own.
        reference_cost: `c-bar` in dollars; default: the preset's, or the controller's.
        max_iterations: `T_max`.
        seed: Where the run's randomness starts.
        sandbox: What holds candidates; `None`: what the problem says, which is `auto` if nothing.
        timeout: Seconds of one evaluation; `None`: the problem's.
        memory_mb: Memory of one evaluation in MiB; `None`: the problem's.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    problem: str = Field(min_length=1)
    method: str = DEFAULT_METHOD
    model: str = Field(default=OFFLINE, min_length=1)
    guide_model: str | None = Field(default=None, min_length=1)
    base_url: str | None = None
    max_tokens: int | None = Field(default=None, ge=1)
    price_in: PricePerMillion | None = None
    price_out: PricePerMillion | None = None
    guide_price_in: PricePerMillion | None = None
    guide_price_out: PricePerMillion | None = None
    on_missing_usage: Literal["raise", "estimate"] = "raise"
    lost_calls: LostCalls = "count"
    budget_policy: Literal["crossing", "hard"] = "crossing"
    max_failures: int = Field(default=DEFAULT_MAX_FAILURES, ge=1)
    generator: Generator = "model"
    tool_evaluations: int = Field(default=DEFAULT_TOOL_EVALUATIONS, ge=1)
    step_cap: Dollars | None = None
    call_timeout: Seconds = RetryPolicy().call_timeout
    retry_wait: Seconds = RetryPolicy().retry_wait
    longest_wait: Seconds = RetryPolicy().longest_wait
    longest_pause: Seconds = RetryPolicy().longest_pause
    keep_history: bool = False
    preflight: bool = True
    allow_invalid_start: bool = False
    gateway: bool = False
    preset: str | None = None
    budget: Dollars = DEFAULT_BUDGET
    reference_cost: Dollars = Constants().reference_cost
    max_iterations: int = Field(default=Constants().max_iterations, ge=1)
    seed: int = Field(default=0, ge=0, le=LARGEST_SEED)
    sandbox: Layer | None = None
    timeout: Seconds | None = None
    memory_mb: int | None = Field(default=None, ge=1)

    @model_validator(mode="before")
    @classmethod
    def _fill_from_preset(cls, given: object) -> object:
        """Let the preset say what was not given; a `None` counts as not given."""
        if not isinstance(given, dict):
            return given
        said = {name: value for name, value in given.items() if value is not None}
        name = said.get("preset")
        if not isinstance(name, str):
            return said
        preset = preset_named(name)
        return {"budget": preset.budget, "reference_cost": preset.reference_cost, **said}

    @field_validator("method")
    @classmethod
    def _check_method(cls, method: str) -> str:
        if method not in METHODS:
            raise ValueError(unknown_name("method", method, METHODS))
        return method

    @field_validator("problem")
    @classmethod
    def _make_findable(cls, problem: str) -> str:
        """Keep the place of a problem folder, however the run is gone on with."""
        is_folder = not is_built_in(problem) and Path(problem).is_dir()
        return str(Path(problem).resolve()) if is_folder else problem

    @field_validator("base_url")
    @classmethod
    def _check_base_url(cls, url: str | None) -> str | None:
        if url is None:
            return None
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError("expected an address such as http://localhost:8000/v1")
        if parts.username or parts.password or parts.query:
            raise ValueError("expected no key in the address; keys come from the environment")
        return url

    @model_validator(mode="after")
    def _check_use_of_base_url(self) -> Self:
        if self.base_url and not any(map(is_openai, (self.model, self.guide_model))):
            raise ValueError("base_url: got one for no openai: model, expected model openai:NAME")
        return self

    @model_validator(mode="after")
    def _check_prices(self) -> Self:
        for one, other in (("price_in", "price_out"), ("guide_price_in", "guide_price_out")):
            if (getattr(self, one) is None) is not (getattr(self, other) is None):
                raise ValueError(f"{one} and {other}: got only one, expected both or none")
        if self.guide_price_in is not None and self.guide_model is None:
            raise ValueError("guide_price_in: got one without guide_model, expected both or none")
        if self.guide_price_in is not None and self.guide_model == self.model:
            raise ValueError("guide_price_in: got one though guide_model is model, expected none")
        return self

    @model_validator(mode="after")
    def _check_contradictions(self) -> Self:
        check_step_cap(self.step_cap, self.generator)
        check_lost_calls(self.lost_calls, is_hard=self.budget_policy == "hard")
        return self

    @property
    def price(self) -> Price | None:
        """The price of `model`: given or the preset's; `None`: as packaged."""
        if self.price_in is not None and self.price_out is not None:
            return Price(self.price_in, self.price_out)
        if self.preset is not None:
            return preset_named(self.preset).price
        return None

    @property
    def guide_price(self) -> Price | None:
        """The price given for `guide_model`; `None`: as packaged, or as `model`."""
        if self.guide_price_in is not None and self.guide_price_out is not None:
            return Price(self.guide_price_in, self.guide_price_out)
        return None

    @property
    def retry_policy(self) -> RetryPolicy:
        """How long the run waits for its providers."""
        return RetryPolicy(
            self.call_timeout, self.retry_wait, self.longest_wait, self.longest_pause
        )

    @property
    def text(self) -> str:
        """The settings as their file holds them."""
        return self.model_dump_json(indent=2) + "\n"

    def save(self, path: Path) -> None:
        """Write the settings to a file that must not exist yet.

        Raises:
            FileExistsError: If there is one, so that only one run can begin in a folder.
            OSError: If the file cannot be written.
        """
        create_text(path, self.text)


def checked_config(given: Mapping[str, object]) -> RunConfig:
    """Return the settings that a Python caller gives.

    Raises:
        ValueError: With one line per wrong setting.
    """
    try:
        return RunConfig.model_validate(given)
    except ValidationError as error:
        raise ValueError(explain(error, RunConfig.model_fields)) from None


def load_config(path: Path) -> RunConfig:
    """Return the settings saved at the start of a run.

    Raises:
        ValueError: If the file is not there or was changed into something invalid.
    """
    try:
        return RunConfig.model_validate_json(read_text(path, LARGEST_SETTINGS))
    except FileNotFoundError:
        raise ValueError(f"{path.parent}: holds no run (there is no {path.name} in it)") from None
    except ValidationError as error:
        raise ValueError(f"{path}:\n{explain(error, RunConfig.model_fields)}") from None


def is_openai(model: str | None) -> bool:
    """Return whether a model id is one that `base_url` applies to."""
    return model is not None and model.startswith("openai:")
