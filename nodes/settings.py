"""The settings of a run, and the texts that distinguish runs."""

from collections.abc import Mapping
from functools import cache
from importlib import metadata
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, FiniteFloat, WithJsonSchema, model_validator

from costada.controller.constants import Constants
from costada.controller.experiment import ExperimentName
from costada.controller.methods import DEFAULT_METHOD, ENTRY_POINTS, METHODS
from costada.evaluators.fingerprint import DECIDING_SCORE, problem_facts
from costada.evaluators.problem import Problem
from costada.models.menu import PriceField
from costada.models.providers import RetryPolicy, WaitSeconds
from costada.nodes.generator_command import (
    ONE_ANSWER,
    WITH_TOOLS,
    GeneratorCommand,
    is_command,
)
from costada.prompts.render import DEFAULT_ORDER, PromptOrder
from costada.store.rows import as_texts
from costada.values.plugins import is_missing
from costada.values.setting import MONEY, SEARCH, Setting, unknown_name

MAX_PARALLEL = 256
"""Steps in flight: each has a thread and a connection, and may cross the budget."""

MAX_SEED = 2**63 - 1
"""Run files and their readers hold seeds as signed 64-bit numbers."""

DEFAULT_CONSTANTS = Constants()

LostCalls = Literal["count", "ignore"]


def check_seed(seed: object) -> int:
    """The seed of a run.

    Raises:
        ValueError: It is not an integer, or outside the range.
    """
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed <= MAX_SEED:
        raise ValueError(f"seed: got {seed!r}, expected an integer from 0 to {MAX_SEED}")
    return seed


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


def _known_method(name: str) -> str:
    if is_missing(ENTRY_POINTS, name):
        raise ValueError(f"method {name} is not installed")
    if name not in METHODS:
        raise ValueError(unknown_name("method", name, METHODS))
    return name


def _known_generator(generator: str) -> str:
    if is_command(generator):
        GeneratorCommand.read(generator)
    return generator


Generator = Annotated[str, AfterValidator(_known_generator)]
MethodName = Annotated[
    str, AfterValidator(_known_method), WithJsonSchema({"type": "string", "enum": list(METHODS)})
]
Dollars = Annotated[FiniteFloat, Field(gt=0)]
PRICE = "IN,OUT[,CACHED]"


class SearchSettings(RetryPolicy):
    """The settings that a search reads, whoever set it up."""

    price: Annotated[
        PriceField | None,
        Setting(
            "costada.graph.run_context:priced_models",
            MONEY,
            PRICE,
            "the preset's or the list price",
        ),
    ] = None
    """Price of the model: dollars per million tokens of input, of output and, if it differs, of
    cached input."""

    guide_price: Annotated[
        PriceField | None,
        Setting("costada.graph.run_context:priced_models", MONEY, PRICE, "the list price"),
    ] = None
    """Price of the guide model, given as for the model."""

    other_prices: Annotated[
        Mapping[str, PriceField], Setting("costada.models.prices:price_book")
    ] = {}
    """Prices of further models by name, such as fallbacks: `input_per_million`,
    `output_per_million` and, if it differs, `cached_per_million`."""

    reference_cost: Annotated[
        Dollars | None,
        Setting(
            "costada.graph.run_context:with_reference_cost",
            MONEY,
            default="the preset's, the mean expected cost of several models, or"
            f" {DEFAULT_CONSTANTS.reference_cost}",
        ),
    ] = None
    """Expected cost per iteration, in dollars (c-bar)."""

    on_missing_usage: Annotated[
        Literal["raise", "estimate"], Setting("costada.nodes.calls.journal:CallJournal", MONEY)
    ] = "raise"
    """What to do with a response without token counts: fail the run, or charge an estimate."""

    lost_calls: Annotated[LostCalls, Setting("costada.nodes.calls.budget:money_left", MONEY)] = (
        "count"
    )
    """Whether calls with an unknown outcome are charged at their upper bound. A hard budget
    requires count."""

    budget_policy: Annotated[
        Literal["crossing", "hard"],
        Setting("costada.nodes.calls.paid_calls:ask_within_budget", MONEY),
    ] = "crossing"
    """crossing: the last iteration may exceed the budget. hard: no call may."""

    purse_slice: Annotated[
        Annotated[Dollars, Field(lt=1e20)] | None,
        Setting(
            "costada.nodes.calls.run_account:report_cost",
            MONEY,
            default="every call is written to the purse",
        ),
    ] = None
    """Dollars of a purse that a run reserves at once and then spends without a write to the purse.
    They count as spent until the run settles them, at the latest when it ends or is interrupted."""

    compute_price: Annotated[
        Dollars | None,
        Setting(
            "costada.nodes.calls.compute:evaluate_for_money",
            MONEY,
            default="evaluations cost nothing",
        ),
    ] = None
    """Dollars per hour of a worker that evaluates a program, or of each GPU that the problem asks
    for."""

    step_cap: Annotated[
        Dollars | None,
        Setting("costada.nodes.calls.budget:left_of_step", MONEY, default="no cap"),
    ] = None
    """Dollars of a step after which a generator with tools, or a command, makes no further
    requests."""

    method: Annotated[
        MethodName,
        Setting("costada.nodes.open_run:open_run", SEARCH, "METHOD", names=METHODS),
    ] = DEFAULT_METHOD
    """The method that allocates the budget."""

    parents: Annotated[
        Literal["method", "pareto"],
        Setting("costada.nodes.build_context:build_context", SEARCH),
    ] = "method"
    """method: the method draws the parent of an attempt. pareto: it is drawn from the candidates
    that are best on some example of a data set."""

    max_failures: Annotated[
        int, Field(ge=1), Setting("costada.nodes.step_end:why_it_stops", SEARCH)
    ] = 20
    """Consecutive attempts without a usable program after which the run stops."""

    generator: Annotated[
        Generator, Setting("costada.nodes.generate:generate", SEARCH, "model|agent|COMMAND")
    ] = ONE_ANSWER
    """model: one response is one program. agent: the model may call tools before it submits. Any
    other text is a command, such as that of a coding agent, which changes the files of a
    candidate."""

    generator_timeout: Annotated[
        WaitSeconds,
        Setting("costada.nodes.tools.command:_run", SEARCH, "SECONDS"),
    ] = 1800.0
    """Seconds that the command of a generator may run."""

    tool_evaluations: Annotated[
        int,
        Field(ge=1),
        Setting("costada.nodes.tools.session:ToolSession.evaluations_left", SEARCH),
    ] = 3
    """Programs that a generator with tools may evaluate before it submits."""

    prompt_order: Annotated[
        PromptOrder,
        Setting(
            "costada.nodes.attempts:next_attempt",
            SEARCH,
            default=f"{DEFAULT_ORDER}; paper with a preset",
        ),
    ] = DEFAULT_ORDER
    """constant-first: what every call repeats comes first, for the prompt caches of providers.
    paper: the order of the paper's scaffold."""

    stop_when_flat: Annotated[
        Annotated[FiniteFloat, Field(gt=0, lt=1)] | None,
        Setting("costada.nodes.step_end:_is_flat", MONEY, "P", "off"),
    ] = None
    """End the run when the chance of another gain within the remaining budget is below P. In
    simulated runs it saves no more than a smaller budget does."""

    target: Annotated[
        FiniteFloat | None,
        Setting("costada.nodes.context:has_reached_target", SEARCH, "SCORE", "none"),
    ] = None
    """End the run when the best program reaches SCORE, in the units of combined_score: at least
    SCORE, or at most where the problem minimises. If the evaluator returns scores that differ from
    objectives, SCORE is a score. Iterations in flight are completed."""

    experiment: Annotated[
        ExperimentName | None,
        Setting("costada.controller.experiment:toss", SEARCH, default="none"),
    ] = None
    """Switch a part of the method on and off at random, for costada experiment: guides, the
    division of credit by cost, or the router's choice of the model."""

    gains_in_flight: Annotated[
        Annotated[FiniteFloat, Field(gt=0)] | None,
        Setting("costada.controller.step:max_in_flight", MONEY, "G", "off"),
    ] = None
    """With parallel above 1: keep only as many steps in flight as are expected to raise the best
    score G times, at least one. A run then begins with one step at a time."""

    seed: Annotated[
        int, Field(strict=True, ge=0, le=MAX_SEED), Setting("costada.controller.step:draws", SEARCH)
    ] = 0
    """Random seed of the run."""

    @model_validator(mode="after")
    def _check_contradictions(self) -> Self:
        if self.step_cap is not None and self.generator == ONE_ANSWER:
            raise ValueError(
                f"step_cap: got {self.step_cap:g} with generator {self.generator!r}, expected"
                f" generator {WITH_TOOLS!r} or a command"
            )
        check_lost_calls(self.lost_calls, is_hard=self.budget_policy == "hard")
        return self

    @property
    def retry_policy(self) -> RetryPolicy:
        """How long the search waits for its providers."""
        return RetryPolicy(**{name: getattr(self, name) for name in RetryPolicy.model_fields})


class Settings(SearchSettings):
    """The settings of a graph.

    Raises `pydantic.ValidationError` naming the field, the value and what was expected.
    """

    constants: Annotated[Constants, Setting("costada.nodes.context:RunContext.constants")] = (
        DEFAULT_CONSTANTS
    )
    """Constants of the controller."""

    on_exhausted: Annotated[
        Literal["stop", "interrupt"], Setting("costada.graph.routes:after_gate")
    ] = "stop"
    """interrupt: ask the caller for more budget instead of ending the run."""

    approve_guides: Annotated[bool, Setting("costada.graph.routes:next_step")] = False
    """Whether to ask the caller before each guide is bought."""


APART = {"method", "seed", "purse_slice"}
"""Settings in which the runs of one comparison may differ."""


def problem_texts(problem: Problem) -> dict[str, str]:
    """The facts of a problem as texts by name."""
    return as_texts(problem_facts(problem))


def evaluator_texts(facts: Mapping[str, str]) -> dict[str, str]:
    """The facts that decide the score of a program; limits and confinement are not among them."""
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
