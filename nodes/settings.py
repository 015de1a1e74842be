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
from costada.controller.methods import DEFAULT_METHOD, GROUP, METHODS
from costada.evaluators.fingerprint import DECIDING_SCORE, problem_facts
from costada.evaluators.problem import Problem
from costada.models.retry_policy import RetryPolicy
from costada.prompts.render import DEFAULT_ORDER, PromptOrder
from costada.store.rows import as_texts
from costada.values.plugins import is_missing
from costada.values.usage import Price

DEFAULT_MAX_FAILURES = 20
"""Attempts in a row without a usable program after which something must be wrong."""

MAX_PARALLEL = 256
"""Steps in flight: each has a thread and a connection, and may cross the budget."""

MAX_SEED = 2**63 - 1
"""Run files and their readers hold seeds as signed 64-bit numbers."""

DEFAULT_TOOL_EVALUATIONS = 3
"""Programs that a generating model may try within one attempt."""

Generator = Literal["model", "agent"]
LostCalls = Literal["count", "ignore"]


def check_seed(seed: object) -> int:
    """The seed of a run.

    Raises:
        ValueError: It is no whole number, or outside the range.
    """
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed <= MAX_SEED:
        raise ValueError(f"seed: got {seed!r}, expected a whole number from 0 to {MAX_SEED}")
    return seed


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

    Raises `pydantic.ValidationError` naming the field, the value and what was expected.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    constants: Constants = Constants()
    """Constants of the controller."""

    method: str = DEFAULT_METHOD
    """The method that allocates the budget, by its name in `METHODS`."""

    seed: Annotated[int, Field(strict=True, ge=0, le=MAX_SEED)] = 0
    """Random seed of a run whose input gives none."""

    price: Price | None = None
    """Price of the generating model, by the name of its constructor; `None`: the list price."""

    guide_price: Price | None = None
    """Price of a separate guide model; `None`: the list price."""

    reference_cost: Annotated[FiniteFloat, Field(gt=0)] | None = None
    """Dollars that an iteration is expected to cost (c-bar); `None`: that of the constants, and
    with several models the mean expected cost of an attempt."""

    other_prices: Mapping[str, Price] = {}
    """Prices of further models by name: fallbacks, and names that are bound to a model."""

    on_missing_usage: Literal["raise", "estimate"] = "raise"
    """What to do with a response without token counts: fail the run, or charge an estimate."""

    lost_calls: LostCalls = "count"
    """Whether calls with an unknown outcome are charged at their upper bound. A hard budget
    requires count."""

    budget_policy: Literal["crossing", "hard"] = "crossing"
    """crossing: the last iteration may exceed the budget. hard: no call may."""

    max_failures: PositiveInt = DEFAULT_MAX_FAILURES
    """Consecutive attempts without a usable program after which the run stops."""

    stop_when_flat: Annotated[FiniteFloat, Field(gt=0, lt=1)] | None = None
    """Chance of another gain within the remaining budget below which the run stops; `None`: it
    spends its budget. See `costada.controller.flatness`."""

    on_exhausted: Literal["stop", "interrupt"] = "stop"
    """interrupt: ask the caller for more budget instead of ending the run."""

    approve_guides: bool = False
    """Whether to ask the caller before each guide is bought."""

    prompt_order: PromptOrder = DEFAULT_ORDER
    """constant-first: what every call repeats comes first, for the prompt caches of providers.
    paper: the order of the paper's scaffold."""

    generator: Generator = "model"
    """model: one response is one program. agent: the model may call tools before it submits, see
    `costada.prompts.tools`."""

    tool_evaluations: PositiveInt = DEFAULT_TOOL_EVALUATIONS
    """Programs that a generator with tools may evaluate before it submits."""

    step_cap: Annotated[FiniteFloat, Field(gt=0)] | None = None
    """Dollars after which a generator with tools makes no further request in a step. Under a hard
    budget policy it makes none that could cost more."""

    retry_policy: RetryPolicy = RetryPolicy()
    """How long a run waits for its providers."""

    @field_validator("method")
    @classmethod
    def _check_method(cls, method: str) -> str:
        if is_missing(GROUP, method):
            raise ValueError(f"method {method} is not installed")
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
    """The facts of a problem as texts by name."""
    return as_texts(problem_facts(problem))


def evaluator_texts(facts: Mapping[str, str]) -> dict[str, str]:
    """Those of the facts that decide the score of a program, whatever limits and confines it."""
    return {name: text for name, text in facts.items() if name.partition(".")[0] in DECIDING_SCORE}


def settings_texts(settings: Settings, budget: float) -> dict[str, str]:
    """The settings that runs of a comparison share, as texts by name."""
    known = settings.model_dump(mode="json", exclude=APART)
    return as_texts({**known, "budget": budget, "costada": _version()})


@cache
def _version() -> str:
    """The version of this package; empty if it is not installed."""
    try:
        return metadata.version("costada")
    except metadata.PackageNotFoundError:
        return ""
