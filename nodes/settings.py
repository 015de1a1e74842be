"""The settings of a run, and the texts that distinguish runs."""

from collections.abc import Mapping
from functools import cache
from importlib import metadata
from typing import Annotated, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    FiniteFloat,
    PositiveInt,
    field_validator,
    model_validator,
)

from costada.controller.constants import Constants
from costada.controller.methods import DEFAULT_METHOD, METHODS
from costada.evaluators.fingerprint import problem_facts
from costada.evaluators.problem import Problem
from costada.models.retry_policy import RetryPolicy
from costada.store.rows import as_texts
from costada.values.prices import Price

DEFAULT_MAX_FAILURES = 20
"""Attempts in a row without a usable program after which something must be wrong."""

DEFAULT_TOOL_EVALUATIONS = 3
"""Programs that a generating model may try within one attempt."""

Generator = Literal["model", "agent"]
LostCalls = Literal["count", "ignore"]


def check_step_cap(step_cap: float | None, generator: Generator) -> None:
    """Refuse a cap that would have no effect.

    Raises:
        ValueError: Naming the cap and the generator.
    """
    if step_cap is not None and generator != "agent":
        raise ValueError(
            f"step_cap: got {step_cap:g} with generator {generator!r}, expected generator 'agent'"
        )


def check_lost_calls(lost_calls: LostCalls, *, is_hard: bool) -> None:
    """Refuse to ignore calls that may have been billed where nothing may exceed the budget.

    Raises:
        ValueError: Naming the value, what was expected and why.
    """
    if is_hard and lost_calls == "ignore":
        raise ValueError(
            "lost_calls: got 'ignore' under a hard budget, expected 'count': a lost call may have"
            " been billed, and a budget that holds must count it at its upper bound"
        )


class Settings(BaseModel):
    """The settings of a run, checked on creation.

    `constants` are the controller's. `method` says who decides, by its name in `METHODS`. `seed`
    starts the run's randomness when the input gives none. `price` is the price of the generating
    model, `guide_price` that of a separate guide model, each for the name in the constructor, and
    `other_prices` those of further names (fallbacks, or a name that is bound to a model); where
    they say nothing, the packaged prices hold.
    `on_missing_usage` decides about an answer without token counts: `"raise"` ends the run,
    `"estimate"` charges an estimate and marks it. `lost_calls` says whether a call whose outcome is
    unknown counts against the budget at its upper bound, as it must under a hard one.
    `budget_policy` `"crossing"` lets the step
    that crosses the budget complete, `"hard"` lets no call begin that could cross it.
    `max_failures` attempts in a row without a usable program stop the run. `on_exhausted`
    `"interrupt"` asks the caller for more budget instead of ending the run; `approve_guides` asks
    before each guide is bought.

    `generator` `"model"` takes each attempt's program from one answer; with `"agent"` the model may
    try up to `tool_evaluations` programs and look at others first, see `costada.prompts.tools`.
    `step_cap` is the dollars after which a step's generation makes no further request; under a
    hard budget policy none leaves that could cost more. `retry_policy` says how long a run waits
    for its providers.

    Raises `pydantic.ValidationError` naming the field, the value and what was expected.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    constants: Constants = Constants()
    method: str = DEFAULT_METHOD
    seed: int = 0
    price: Price | None = None
    guide_price: Price | None = None
    other_prices: Mapping[str, Price] = {}
    on_missing_usage: Literal["raise", "estimate"] = "raise"
    lost_calls: LostCalls = "count"
    budget_policy: Literal["crossing", "hard"] = "crossing"
    max_failures: PositiveInt = DEFAULT_MAX_FAILURES
    on_exhausted: Literal["stop", "interrupt"] = "stop"
    approve_guides: bool = False
    generator: Generator = "model"
    tool_evaluations: PositiveInt = DEFAULT_TOOL_EVALUATIONS
    step_cap: Annotated[FiniteFloat, Field(gt=0)] | None = None
    retry_policy: RetryPolicy = RetryPolicy()

    @field_validator("method")
    @classmethod
    def _check_method(cls, method: str) -> str:
        if method not in METHODS:
            raise ValueError(f"expected one of {', '.join(METHODS)}")
        return method

    @model_validator(mode="after")
    def _check_contradictions(self) -> Self:
        check_step_cap(self.step_cap, self.generator)
        check_lost_calls(self.lost_calls, is_hard=self.budget_policy == "hard")
        return self


APART = {"method", "seed"}
"""Settings that distinguish the runs of a comparison."""


def problem_texts(problem: Problem) -> dict[str, str]:
    """Return the facts of a problem as texts by name."""
    return as_texts(problem_facts(problem))


def settings_texts(settings: Settings, budget: float) -> dict[str, str]:
    """Return the settings that runs of a comparison share, as texts by name."""
    known = settings.model_dump(mode="json", exclude=APART)
    return as_texts({**known, "budget": budget, "costada": _version()})


@cache
def _version() -> str:
    """Return the version of this package; empty where it is not installed."""
    try:
        return metadata.version("costada")
    except metadata.PackageNotFoundError:
        return ""
