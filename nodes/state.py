"""The state that travels along the edges: small and typed.

Programs, prompts and calls live in the run's store; the state carries their ids and hashes, so a
checkpoint stays the same size however long the run is.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, is_dataclass
from typing import Annotated, Any, Self, cast

from langgraph.channels import EphemeralValue, LastValue
from pydantic import TypeAdapter
from typing_extensions import TypedDict

from costada.controller.allocation import Action, Allocation
from costada.controller.credit import NO_CREDIT, Credit
from costada.controller.experiment import Toss
from costada.controller.method import Controller
from costada.controller.methods import METHODS
from costada.controller.router import ROUTERS, Router
from costada.store.earlier_states import NOT_RESUMABLE
from costada.store.rows import LandedTickets
from costada.store.user_inputs import InputKind
from costada.values.evaluation import FrontMember
from costada.values.numbering import START, START_TICKET, Iteration, TicketNumber


@dataclass(frozen=True, slots=True)
class Run:
    """What a run has from its beginning to its end.

    Attributes:
        id: Names the run's rows in the store.
        seed: Start of its randomness.
        holdout_key: The secret that decides the held-out inputs.
    """

    id: str
    seed: int
    holdout_key: str


@dataclass(frozen=True, slots=True)
class SteeredBy:
    """What a step took: the number and kind of the input, and the hash of its text or program.

    That of an unjudged program is the hash of what is known of it.
    """

    number: int
    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt of a step, filled in from node to node.

    Attributes:
        number: From 1 in its step; 0 before the first.
        first_call: Number of its first call among those of the step.
        parent: Id of the candidate it changes (p^par).
        inspirations: Ids of the candidates shown beside it.
        label: A search strategy's word for the parent, where a strategy chose it.
        prompt: Hash of the prompt's text.
        prompt_data: Hash of the JSON of what the prompt was made of.
        model: Name of the model that makes it, in a run with several.
        program: Hash of the proposed program; empty: none.
        changes: Hash of the summary of its changes.
        candidate: Id of the evaluated candidate; empty: none.
        failure: Hash of why it failed; empty: it has not.
        log: Hash of what the command of a generator printed; empty: none was run.
        score: Score of the candidate (f_t); `None` until one was evaluated.
        objective: The same in the benchmark's units.
        is_refused: Whether its model did not make it, so that another is to make it.
        refusal: Hash of why its model refuses all further requests, if it does.
        is_out_of_money: Whether a hard budget could not pay for it, or for the evaluation of its
            program.
        is_cut_short: Whether the step's cap or the budget allows no further request.
    """

    number: int = 0
    first_call: int = 1
    parent: str = ""
    inspirations: tuple[str, ...] = ()
    label: str = ""
    prompt: str = ""
    prompt_data: str = ""
    model: str = ""
    program: str = ""
    changes: str = ""
    candidate: str = ""
    failure: str = ""
    log: str = ""
    score: float | None = None
    objective: float | None = None
    is_refused: bool = False
    refusal: str = ""
    is_out_of_money: bool = False
    is_cut_short: bool = False


NO_ALLOCATION = Allocation(0, Action.BALANCED, 0.0)
"""That of the state before the first step."""

NO_ATTEMPT = Attempt()
"""The attempt of a step that has made none."""


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a search.

    Attributes:
        ticket: Number of its ticket, which keys its calls, candidates and random draws.
        allocation: What the controller chose (k_t, a_t, I_t).
        iteration: The iteration that it is (t); in flight, the one in which it was launched.
        attempt: The current attempt.
        earlier: The attempts that failed before it.
        requests: Requests so far, where the generating model works with tools.
        refused: Models that refuse further requests or cost more than a hard budget has left.
        disabled: Models that the step has disabled.
        is_guided: Whether an attempt followed a tactic.
        is_launched: Whether the current attempt is in flight.
        cost: Dollars of its calls (c_t).
        dollars_by_role: Parts of the cost; none if its evaluation cost nothing.
        guide_calls: How many of its calls were guide calls.
        credit: What it earned; `None` until it is credited.
        steered: The input of a user that it carries out, if any.
        toss: The toss of an experiment that it belongs to, if any.
    """

    ticket: TicketNumber = START_TICKET
    allocation: Allocation = NO_ALLOCATION
    iteration: Iteration = START
    attempt: Attempt = NO_ATTEMPT
    earlier: tuple[Attempt, ...] = ()
    requests: int = 0
    refused: tuple[str, ...] = ()
    disabled: tuple[str, ...] = ()
    is_guided: bool = False
    is_launched: bool = False
    cost: float = 0.0
    dollars_by_role: Mapping[str, float] = field(default_factory=dict)
    guide_calls: int = 0
    credit: Credit | None = None
    steered: SteeredBy | None = None
    toss: Toss | None = None

    @property
    def earned(self) -> Credit:
        """What it earned, nothing before it is credited."""
        return self.credit or NO_CREDIT

    @property
    def is_submission(self) -> bool:
        """Whether it evaluates a program that is there instead of asking a model for one."""
        return self.steered is not None and self.steered.kind != InputKind.TACTIC

    @property
    def is_users_program(self) -> bool:
        """Whether a user submitted the program that it evaluates."""
        return self.steered is not None and self.steered.kind == InputKind.PROGRAM

    @property
    def candidate_name(self) -> str:
        """Id of the candidate of its current attempt."""
        return f"{self.ticket}.{self.attempt.number}"

    @property
    def is_unpaid(self) -> bool:
        """Whether a hard budget could not pay for the program of its first attempt."""
        is_first = self.attempt.number == 1 and not self.is_unjudged
        return self.attempt.is_out_of_money and is_first

    @property
    def is_unjudged(self) -> bool:
        """Whether it has a program, and a hard budget could not pay for the evaluation."""
        return self.attempt.is_out_of_money and bool(self.attempt.program)

    @property
    def num_requested(self) -> int:
        """Number of its last call so far, which is that of the attempt where each makes one."""
        return self.requests or self.attempt.number

    @property
    def models(self) -> list[str]:
        """The model of every attempt, in a run with several; none for one that none could make."""
        return [each.model for each in (*self.earlier, self.attempt) if each.model]


@dataclass(frozen=True, slots=True)
class ArchiveVersion:
    """Which archives a node reads.

    Attributes:
        seq: Counts the changes. Rows that were written after the last checkpoint have a later
            number, so they are overwritten and never seen.
        num_frontiers: How many frontiers keep an archive.
    """

    seq: int = 0
    num_frontiers: int = 0


@dataclass(frozen=True, slots=True)
class Ticket:
    """An attempt or a guide call in flight, and what had been seen when it was launched.

    Attributes:
        number: Counts the launches of a run.
        attempt: Number of the attempt; 0 for a guide.
        step: The step of the attempt; `None` for a guide.
        prompt: Hash of the prompt; of a guide, of its JSON.
        expected: Dollars it has cost so far and its call is expected to cost.
        seen: The tickets that had landed.
        iterations: The iterations that had ended.
        archives: The archives as they were.
        best: Id of the incumbent.
    """

    number: TicketNumber
    attempt: int
    step: Step | None
    prompt: str
    expected: float
    seen: LandedTickets
    iterations: Iteration
    archives: ArchiveVersion
    best: str


@dataclass(frozen=True, slots=True)
class Flight:
    """The steps in flight, and the numbers of their tickets.

    Attributes:
        tickets: Those in flight, in the order of their launch.
        last_ticket: Number of the last ticket.
        open_tickets: Numbers of the steps and guides that have not been credited.
        guide_ticket: Number of a guide that has landed and whose step has not begun; 0: none.
        num_landed: How many have landed.
        is_waiting_for_funds: Whether another ticket waited for funds when the last one landed.
        parallel: How many could be in flight when the last step began (K).
        toss: The last toss about a guide, to which the next steps launched belong.
    """

    tickets: tuple[Ticket, ...] = ()
    last_ticket: TicketNumber = START_TICKET
    open_tickets: tuple[TicketNumber, ...] = ()
    guide_ticket: TicketNumber = START_TICKET
    num_landed: int = 0
    is_waiting_for_funds: bool = False
    parallel: int = 1
    toss: Toss | None = None

    @property
    def seen(self) -> LandedTickets:
        """Which tickets have landed; the current step has not, even if it is not in flight."""
        return LandedTickets(self.last_ticket, self.open_tickets)

    @property
    def expected(self) -> float:
        """Dollars that the calls in flight are expected to cost, with those before them."""
        return sum(ticket.expected for ticket in self.tickets)

    @property
    def steps(self) -> list[Step]:
        """The steps in flight."""
        return [ticket.step for ticket in self.tickets if ticket.step is not None]


@dataclass(frozen=True, slots=True)
class Account:
    """What a run may spend beside the graph's budget, and what it knows of its spending.

    Attributes:
        granted: Dollars it has drawn from a purse; `None` without one.
        extended: Budget in dollars that the caller granted when the graph's was used up; 0: none.
        doubtful: An iteration and the dollars in doubt that it was charged, the last one.
        spent_at_gain: Dollars spent when the best score last rose.
        reached: The target at which the run last stopped; `None` if it never did.
    """

    granted: float | None = None
    extended: float = 0.0
    doubtful: tuple[Iteration, float] = (START, 0.0)
    spent_at_gain: float = 0.0
    reached: float | None = None


@dataclass(frozen=True, slots=True)
class Observed:
    """What was observed of the nodes.

    Attributes:
        seconds: What each node has taken since the last step ended.
        trace: Where the run's OpenTelemetry trace began, if a tracer was configured.
    """

    seconds: Mapping[str, float] = field(default_factory=dict)
    trace: Mapping[str, str] = field(default_factory=dict)


RECORDS = (Run, Step, Flight, ArchiveVersion, Account, Observed)
"""The frozen dataclasses of every state, beside its controller and its router."""


def state_types() -> Iterator[type]:
    """The frozen dataclasses of a graph's state: its records, all routers, and all controllers.

    Those of plug-ins come last, which are imported then.
    """
    yield from (*RECORDS, Router)
    for method in METHODS.values():
        yield cast(type, method.kind)
    yield from dict.fromkeys(ROUTERS.values())


_ADAPTERS: dict[type, TypeAdapter[Any]] = {}


def _adapter(kind: type) -> TypeAdapter[Any]:
    if kind not in _ADAPTERS:
        _ADAPTERS[kind] = TypeAdapter(kind)
    return _ADAPTERS[kind]


class FrozenValue(LastValue[Any]):
    """A channel whose value is one of `state_types` in the state, and plain in a checkpoint.

    Plain values come back equal from every saver, and no saver has to import what a checkpoint
    names.
    """

    __slots__ = ()

    def checkpoint(self) -> Any:
        """The name of the value's type and its fields."""
        return plain(self.get()) if self.is_available() else super().checkpoint()

    def from_checkpoint(self, checkpoint: Any) -> Self:
        """A channel with the value that a checkpoint describes.

        Raises:
            ValueError: No method has a controller of this name, or a field is not what it holds.
        """
        return super().from_checkpoint(_restore(checkpoint))

    def update(self, values: Sequence[Any]) -> bool:
        """Take a value, as it is or plain."""
        return super().update([_restore(value) for value in values])


_PLAIN: dict[type, tuple[object, list[object]]] = {}
"""The last value of each type with its plain form: a channel is saved after every node.

By identity, so that `_restore` gives back the very object that a node wrote.
"""


def plain(value: object) -> object:
    """The name and the fields of one of `state_types`, which every saver can keep; else the value.

    What a node writes is saved before its step ends, for the case of a crash, so it is plain.
    """
    kind = type(value)
    known = _PLAIN.get(kind)
    if known is None and (not is_dataclass(value) or kind not in state_types()):
        return value
    if known is None or known[0] is not value:
        known = value, [kind.__name__, _adapter(kind).dump_python(value, mode="json")]
        _PLAIN[kind] = known
    return known[1]


def _restore(value: Any) -> Any:
    if not isinstance(value, list):
        return value
    # a copy, as the graph of another run may add a type meanwhile
    for known, form in tuple(_PLAIN.values()):
        if form is value:
            return known
    name, named = value
    if name == NOT_RESUMABLE:
        raise ValueError(
            f"checkpoint: the run cannot be resumed, as {named['reason']}; show it with costada"
            " report, trace or export, or resume it with the version that began it, from a backup"
        )
    found = next((kind for kind in state_types() if kind.__name__ == name), None)
    if found is None:
        known_names = dict.fromkeys(kind.__name__ for kind in state_types())
        raise ValueError(
            f"checkpoint: it holds {name}, expected one of {', '.join(known_names)}; register the"
            " method that the run uses"
        )
    return _adapter(found).validate_python(named)


class SearchInput(TypedDict, total=False):
    """What a caller may pass: the seed of the run's randomness (default: the settings' seed).

    A seed holds for the run that this input starts, not for a later one on the same thread.
    """

    seed: Annotated[int, EphemeralValue]


class SearchOutput(TypedDict, total=False):
    """What a run returns.

    `best_program` is the text of the best program so far, `best_files` the text of each of its
    files by path, absent if it is one text. `pareto_front` holds the candidates that no other one
    beats in all objectives, oldest first, absent with one objective.
    `best_score` is normalised (higher is better), `best_objective` is in the benchmark's units.
    `spent` and `remaining` are dollars; `remaining` is 0 when the budget was crossed. `in_doubt` is
    the part of `spent` that stands for calls whose bill is unknown, at their upper bound.
    `stop_reason` is `"target"`, `"budget"`, `"iterations"`, `"flat"` or `"failures"`, and empty
    while the run continues; after `"failures"`, `last_failure` says what was wrong with the last
    attempt.
    """

    best_program: str
    best_files: dict[str, str]
    best_score: float
    best_objective: float | None
    best_metrics: dict[str, float]
    pareto_front: list[FrontMember]
    spent: float
    in_doubt: float
    remaining: float
    iterations: Iteration
    stop_reason: str
    last_failure: str


class SearchState(SearchInput, SearchOutput, total=False):
    """Everything that the next step needs, and nothing that grows with the run.

    `archives` says which archives nodes read, `best` is the incumbent's candidate id. `result` is
    that of the incumbent that was best on the validation examples, absent where nothing was ever
    validated on the thread. `step` is the current step, `flight` holds those in flight. `stopping`
    is the reason why the run stops as soon as nothing is in flight, empty while it continues.
    `failures` counts the attempts in a row, up to the last finished step, that yielded no usable
    program. `refused_answer` says what was wrong with the caller's last answer. `router` is that of
    a run with several models, else absent or without records. `chosen` is what the caller has
    chosen for the run by its `context`, by name; absent where nothing was ever chosen on the
    thread. `newest_checkpoint` is the highest id of a checkpoint that the run has seen, absent
    where the saver goes by the order of writing.
    `seal` shows that the search itself has left the state so; see `saved_state.py`.
    """

    run: Annotated[Run, FrozenValue]
    controller: Annotated[Controller, FrozenValue]
    router: Annotated[Router, FrozenValue]
    step: Annotated[Step, FrozenValue]
    flight: Annotated[Flight, FrozenValue]
    archives: Annotated[ArchiveVersion, FrozenValue]
    account: Annotated[Account, FrozenValue]
    best: str
    result: str
    failures: int
    stopping: str
    refused_answer: str
    chosen: dict[str, object]
    observed: Annotated[Observed, FrozenValue]
    newest_checkpoint: str
    seal: str


_FROZEN = frozenset(
    key
    for key, kind in SearchState.__annotations__.items()
    if FrozenValue in getattr(kind, "__metadata__", ())
)


def restore(saved: Mapping[str, Any]) -> SearchState:
    """The state whose values a checkpoint holds; raises `ValueError` as `FrozenValue` does."""
    return cast(
        SearchState,
        {key: _restore(value) if key in _FROZEN else value for key, value in saved.items()},
    )


def has_current_step(state: SearchState) -> bool:
    """Whether there is a step that has begun or landed and has not ended."""
    return state["step"].iteration > state["controller"].iteration


def needs_guide(state: SearchState) -> bool:
    """Whether a call was decided on that has not been launched yet."""
    is_in_flight = any(ticket.step is None for ticket in state["flight"].tickets)
    return bool(state["controller"].pending) and not is_in_flight
