"""The run's context: models, problem, prices and store, and what nodes read of them."""

import json
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from threading import Lock
from typing import Any, Generic, Literal, TypeVar
from weakref import WeakKeyDictionary

from langchain_core.language_models import LanguageModelInput
from langchain_core.messages import AIMessage
from langchain_core.runnables import Runnable, RunnableConfig
from langgraph.runtime import Runtime

from costada.controller.archive import Archive
from costada.controller.constants import Constants
from costada.controller.credit import Balance
from costada.controller.example_front import JudgedCandidate
from costada.controller.method import Controller, is_archiving
from costada.controller.methods import METHODS, Method
from costada.controller.router_rules import DEFAULT_ROUTER
from costada.evaluators.problem import Problem
from costada.evaluators.scoring import reaches
from costada.models.menu import ModelEntry
from costada.models.prices import PriceBook
from costada.models.providers import RetryPolicy
from costada.models.runnable_tree import AskedModel, asked_models
from costada.nodes.settings import Settings
from costada.nodes.state import SearchState, Step
from costada.prompts.render import Prompt
from costada.prompts.requests import MAX_WORST_EXAMPLES, ExampleView, ProgramView
from costada.store.in_flight_calls import InFlightCalls
from costada.store.purse import Purse
from costada.store.run_store import RunStore
from costada.store.user_inputs import InputKind, UnjudgedProgram
from costada.values.candidate import Candidate
from costada.values.evaluation import (
    EVAL_TIME,
    LOG,
    PRIVATE_METRICS,
    UNSHOWN,
    FrontMember,
    objective_values,
    read_objectives,
)
from costada.values.example_score import scores_by_place
from costada.values.numbering import TicketNumber

ChatModel = Runnable[LanguageModelInput, AIMessage]
"""Any LangChain chat model, also wrapped in retries or fallbacks."""

LandingOrder = Literal["landing", "launch"]

WALL_CLOCK = re.compile(
    r"(^|_)(execution|exec|evaluation|eval|elapsed|wall|wall_clock)_(time|seconds|duration)(_|$)"
)
"""Fits the names of metrics that hold the time of an evaluation."""


@dataclass(frozen=True, slots=True)
class PricedModel:
    """A chat model of a run with its prices.

    Attributes:
        entry: Its entry in the menu; `None` for a guide model that is not in the menu.
        model: The chat model, perhaps wrapped.
        prices: Prices of every model that may answer for it.
        expected: Dollars that an attempt is expected to cost by the list price (e_m), with the time
            of its evaluation.
    """

    entry: ModelEntry | None
    model: ChatModel
    prices: PriceBook
    expected: float = 0.0

    @property
    def name(self) -> str:
        """What the menu calls it; empty for a guide model that is not in the menu."""
        return "" if self.entry is None else self.entry.name

    @property
    def first(self) -> AskedModel:
        """The chat model that is asked first; any others are its fallbacks."""
        return asked_models(self.model)[0]

    @property
    def call_timeout(self) -> float | None:
        """Seconds that one call may take; `None`: as the settings say."""
        return None if self.entry is None else self.entry.timeout


@dataclass(frozen=True, slots=True)
class RunContext:
    """The models, the problem, the prices and the store of a compiled graph.

    `menu` holds the models that make attempts; where there are several, `router` names the rule
    that chooses among them. Guides go to `guide_model`, and without one to the first of the menu.
    `budget` is dollars (B); what a run may spend is `budget_of` it. Up to `parallel` steps are in
    flight at a time; they land in the `order` in which they finish, or in which they were launched.
    `is_saved_by_time` says that the saver takes the latest checkpoint by its time. `chosen` is what
    the caller of a run has chosen for it, which its state keeps; `max_budget` is the most that it
    may grant when it is asked, in dollars. `granted` are the models that evaluations ask, by the
    role of their calls and the names that requests give. `method`, `constants` and `retry_policy`
    follow from the settings.
    """

    problem: Problem
    menu: tuple[PricedModel, ...]
    budget: float
    settings: Settings
    store: RunStore
    name: str = "costada"
    guide_model: PricedModel | None = None
    router: str = DEFAULT_ROUTER
    purse: Purse | None = None
    is_saved_by_time: bool = True
    parallel: int = 1
    order: LandingOrder = "landing"
    chosen: Mapping[str, object] = field(default_factory=dict)
    max_budget: float = inf
    granted: Mapping[str, Mapping[str, PricedModel]] = field(default_factory=dict)
    method: Method = field(init=False)
    constants: Constants = field(init=False)
    retry_policy: RetryPolicy = field(init=False)

    @property
    def has_choice(self) -> bool:
        """Whether a router chooses the model of each attempt."""
        return len(self.menu) > 1

    @property
    def is_hard(self) -> bool:
        """Whether no call may exceed the budget."""
        return self.settings.budget_policy == "hard"

    @property
    def counts_lost(self) -> bool:
        """Whether calls with an unknown outcome count at their upper bound."""
        return self.settings.lost_calls == "count"

    def entry_of(self, asked: PricedModel) -> str | None:
        """Name of a model in the menu, empty for a separate guide model; `None` without a menu."""
        return asked.name if self.has_choice else None

    def __post_init__(self) -> None:
        # once for all steps: a plug-in's method is looked up among entry points
        method = METHODS[self.settings.method]
        object.__setattr__(self, "method", method)
        object.__setattr__(self, "constants", method.apply_switches(self.settings.constants))
        object.__setattr__(self, "retry_policy", self.settings.retry_policy)


SearchRuntime = Runtime[RunContext]
"""What a node is given beside the state."""

Node = Callable[[SearchState, SearchRuntime], SearchState]
"""A node: returns the keys of the state that it changes."""

PayingNode = Callable[[SearchState, SearchRuntime, RunnableConfig], SearchState]
"""A node whose calls inherit the callbacks of a configuration."""


Bought = TypeVar("Bought")


@dataclass(frozen=True, slots=True)
class PaidNode(Generic[Bought]):
    """A node whose call belongs to the step that follows.

    Attributes:
        prompt: Writes the prompt; the same prompt is asked whenever the call is repeated.
        buy: Asks for it under the number of a ticket; changes nothing but the journal.
        accept: The update of the state with what was bought, as it is when that arrives.
    """

    prompt: Callable[[SearchState, RunContext], Prompt]
    buy: Callable[[Prompt, TicketNumber, SearchState, RunnableConfig, RunContext], Bought]
    accept: Callable[[Bought, SearchState, RunContext], SearchState]

    def __call__(
        self, state: SearchState, runtime: SearchRuntime, config: RunnableConfig
    ) -> SearchState:
        """Buy it at once."""
        context, ticket = runtime.context, next_ticket(state)
        bought = self.buy(self.prompt(state, context), ticket, state, config, context)
        return self.accept(bought, state, context)


def has_listener() -> bool:
    """Whether a tracer provider is configured in this process."""
    # Not imported here: a provider can only be configured after OpenTelemetry is imported.
    trace: Any = sys.modules.get("opentelemetry.trace")
    return bool(trace) and not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)


def budget_of(state: SearchState, context: RunContext) -> float:
    """Dollars that the run may spend (B): the graph's budget, a purse's grant, or an extension.

    Raises:
        ValueError: The run draws from a purse, and the graph has none.
    """
    account = state["account"]
    granted = account.granted
    if granted is not None and context.purse is None:
        raise ValueError(
            "purse: got None for a run that draws from a purse; expected the purse it began with"
        )
    own = context.budget if granted is None else granted
    return max(own, extension_of(state, context))


def extension_of(state: SearchState, context: RunContext) -> float:
    """Dollars that the caller granted, at most what it may grant today; 0 for none."""
    return min(state["account"].extended, context.max_budget)


def balance_of(state: SearchState, context: RunContext) -> Balance:
    """Budget and spending of a run, in dollars, as of the last charge."""
    return Balance(budget_of(state, context), state.get("spent", 0.0))


def model_of(step: Step, context: RunContext) -> PricedModel:
    """The model of a step's current attempt."""
    return named_model(step.attempt.model, context) if context.has_choice else context.menu[0]


def named_model(name: str, context: RunContext) -> PricedModel:
    """The model of this name in the menu."""
    return next(each for each in context.menu if each.name == name)


def guides_of(state: SearchState, context: RunContext) -> list[PricedModel]:
    """The models that may be asked for a guide, in that order.

    A guide model of the menu comes first there unless it is disabled.
    """
    chosen = context.guide_model
    if chosen is not None and not chosen.name:
        return [chosen]
    if not context.has_choice:
        return list(context.menu)
    return sorted(models_left(state, context), key=lambda each: each is not chosen)


def models_left(state: SearchState, context: RunContext) -> list[PricedModel]:
    """The models of a menu that are not disabled, in its order."""
    disabled = {each.name for each in state["router"].records if each.is_disabled}
    return [each for each in context.menu if each.name not in disabled]


def is_sequential(state: SearchState, context: RunContext) -> bool:
    """Whether no step is in flight beside the current one.

    A run with one step in flight at a time may continue one that had several.
    """
    return context.parallel == 1 and not state["flight"].tickets


def next_ticket(state: SearchState) -> TicketNumber:
    """The number of the next ticket."""
    return TicketNumber(state["flight"].last_ticket + 1)


def candidate_of(candidate_id: str, state: SearchState, context: RunContext) -> Candidate:
    """A stored candidate of the run."""
    return context.store.candidates.get(state["run"].id, candidate_id)


def unjudged_of(step: Step, context: RunContext) -> UnjudgedProgram | None:
    """What is known of the program of an earlier step that this one evaluates, if it has one."""
    if step.steered is None or step.steered.kind != InputKind.UNJUDGED:
        return None
    return context.store.inputs.unjudged(step.steered.text)


def result_of(state: SearchState, context: RunContext) -> Candidate:
    """The candidate that the run returns: the incumbent, or the best one on validation examples."""
    return candidate_of(state.get("result", state["best"]), state, context)


def has_reached_target(state: SearchState, context: RunContext) -> bool:
    """Whether what the run returns is as good as it is to find."""
    target, problem = context.settings.target, context.problem
    if target is None:
        return False
    result = result_of(state, context)
    goal = target, problem.reference, problem.direction
    return result.is_valid and reaches(result.score, *goal)


def is_estimated(candidate: Candidate, problem: Problem) -> bool:
    """Whether the score of a valid candidate is estimated from some of the examples."""
    return candidate.is_valid and 0 < len(candidate.examples) < len(problem.examples)


def population_of(state: SearchState, context: RunContext) -> list[Candidate]:
    """The initial program and all valid candidates that have landed."""
    return context.store.candidates.population(state["run"].id, state["flight"].seen)


def archives_of(state: SearchState, context: RunContext) -> tuple[Archive, ...]:
    """The archive of every frontier (D^(k)) in the version that the state names.

    None for a method that does not draw its parents from archives.
    """
    controller, version = state["controller"], state["archives"]
    if not is_archiving(controller):
        return ()
    table, size = context.store.candidates, context.constants.archive_size
    return tuple(
        Archive(tuple(table.archive(state["run"].id, frontier, version.seq)), size, weights)
        for frontier, weights in enumerate(controller.archive_weights[: version.num_frontiers])
    )


def num_archives(controller: Controller) -> int:
    """How many frontiers of a method keep an archive."""
    return len(controller.archive_weights) if is_archiving(controller) else 0


def prompt_view(candidate: Candidate, problem: Problem) -> ProgramView:
    """What a prompt shows of a candidate; marks stay out, as they repeat the error.

    The log of a valid one stays out where it may hold private metrics, as in ShinkaEvolve.
    """
    is_private = candidate.is_valid and PRIVATE_METRICS in candidate.artifacts
    unshown = (*UNSHOWN, LOG) if is_private else UNSHOWN
    return ProgramView(
        code=candidate.program.source,
        score=candidate.score,
        metrics=repeatable_metrics(candidate, problem),
        artifacts={
            name: text
            for name, text in candidate.artifacts.items()
            if name not in unshown and text.strip()
        },
        error=candidate.error,
        worst_examples=worst_examples(candidate, problem),
    )


def worst_examples(candidate: Candidate, problem: Problem) -> tuple[ExampleView, ...]:
    """The examples on which a candidate has the lowest scores, none with a full score."""
    # Among equal scores the first in the order of judging, which is random for each candidate.
    ranked = sorted(candidate.examples, key=lambda each: each.score)
    return tuple(
        ExampleView(
            json.dumps(problem.examples[each.place], ensure_ascii=False), each.score, each.feedback
        )
        for each in ranked[:MAX_WORST_EXAMPLES]
        if each.score < 1
    )


def repeatable_metrics(candidate: Candidate, problem: Problem) -> dict[str, float]:
    """The metrics without wall-clock times, which would make every prompt different.

    An objective is shown unless the problem declares it as a time.
    """
    timings = {EVAL_TIME, *problem.timing_metrics}
    objectives = [each.metric for each in read_objectives(problem.objectives)]
    return {
        name: value
        for name, value in candidate.metrics.items()
        if name not in timings and (name in objectives or not WALL_CLOCK.search(name))
    }


def front_of(state: SearchState, context: RunContext) -> list[Candidate]:
    """The candidates on the Pareto front, oldest first; none with one objective."""
    if not context.problem.objectives:
        return []
    return context.store.candidates.front(state["run"].id, state["archives"].seq)


def example_front_of(state: SearchState, context: RunContext) -> list[JudgedCandidate]:
    """The candidates that are best on some example of a data set, oldest first."""
    front = context.store.candidates.front(state["run"].id, state["archives"].seq)
    return judged_on_all(front, context.problem)


def judged_on_all(candidates: Iterable[Candidate], problem: Problem) -> list[JudgedCandidate]:
    """Those candidates that were judged on all examples, with their scores."""
    return [
        JudgedCandidate(each.id, scores_by_place(each.examples))
        for each in candidates
        if each.is_valid and len(each.examples) == len(problem.examples)
    ]


def front_members(front: Sequence[Candidate], context: RunContext) -> list[FrontMember]:
    """What a caller sees of the front."""
    objectives = read_objectives(context.problem.objectives)
    return [
        FrontMember(
            candidate_id=each.id,
            score=each.score,
            objectives=objective_values(objectives, each.metrics),
        )
        for each in front
    ]


Kept = TypeVar("Kept")


class PerRun(Generic[Kept]):
    """One object per run, shared by all that have its run file open in this process.

    It is kept as long as one of them has.
    """

    def __init__(self, make: Callable[[], Kept]) -> None:
        self._make = make
        self._kept: WeakKeyDictionary[InFlightCalls, dict[str, Kept]] = WeakKeyDictionary()
        self._lock = Lock()

    def of(self, store: RunStore, run_id: str) -> Kept:
        """The object of a run, made when it is first asked for."""
        with self._lock:
            runs = self._kept.setdefault(store.call_log.in_flight, {})
            if run_id not in runs:
                runs[run_id] = self._make()
            return runs[run_id]
