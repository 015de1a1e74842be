"""The state that travels along the edges: small and typed.

Programs, prompts and calls live in the run's store; the state carries their ids and hashes, so a
checkpoint stays the same size however long the run is.
"""

from collections.abc import Sequence
from dataclasses import is_dataclass
from typing import Annotated, Any, NotRequired, Self, cast

from langgraph.channels import EphemeralValue, LastValue
from pydantic import TypeAdapter
from typing_extensions import TypedDict

from costada.controller.credit import Credit
from costada.controller.method import Controller
from costada.controller.methods import METHODS
from costada.controller.router import Router
from costada.values.numbering import Iteration, TicketNumber
from costada.values.objective import FrontMember


class SteeredBy(TypedDict):
    """What a user put into a step: its number, its kind, and the hash of the text or program."""

    number: int
    kind: str
    text: str


class StepRecord(TypedDict):
    """One step, filled in from node to node.

    `number` is that of its ticket: it counts the launches of a run, keys the step's calls,
    candidates and random draws, and never changes. `frontier`, `action` and `intensity` are what
    the controller chose (k_t, a_t, I_t). `attempt` counts the attempts made. `parent` and
    `candidate` are candidate ids, `prompt`, `program`, `changes` and `failure` hashes of stored
    texts, `prompt_data` of the JSON of what the prompt was made of; an empty string means none.
    `score` (f_t) and `objective` are `None` until something was evaluated. `cost` is the step cost
    in dollars (c_t); `guide_calls` says how many of its calls were guide calls. `inspirations` are
    candidate ids, and `label` is the search strategy's word for the parent, where a strategy chose
    it. `models` names the model of every attempt, the current one last, in a run with several;
    `first_call` is the number of the current attempt's first call. `is_refused` says that its
    model did not make it, so that another is to make it; `refused` names such models of the step,
    which refuse all further requests or which a hard budget cannot pay for. `refusal` is the hash
    of why the current one refuses, and `disabled` names those that the step has disabled.
    `failed` holds failure and program of every attempt that failed. `is_guided` says that an
    attempt followed a tactic, `is_launched` that the current one is in flight, `is_credited` that
    the step has been credited, `is_out_of_money` that its last attempt was not made, as a hard
    budget could not pay for it. Where the generating model works with tools, `requests` counts its
    requests in the step, and `is_cut_short` says that its cap or the budget allows the step no
    further one. Only a step that carries out an input of a user has `steered`.
    """

    number: TicketNumber
    frontier: int
    action: str
    intensity: float
    attempt: int
    parent: str
    prompt: str
    prompt_data: str
    program: str
    changes: str
    candidate: str
    failure: str
    score: float | None
    objective: float | None
    cost: float
    guide_calls: int
    inspirations: list[str]
    label: str
    models: list[str]
    first_call: int
    is_refused: bool
    refused: list[str]
    refusal: str
    disabled: list[str]
    failed: list[list[str]]
    is_guided: bool
    is_launched: bool
    is_credited: bool
    is_out_of_money: bool
    requests: int
    is_cut_short: bool
    steered: NotRequired[SteeredBy]


class Ticket(TypedDict):
    """An attempt or a guide call in flight, and what had been seen when it was launched.

    `attempt` is 0 for a guide, whose `step` is `None` and whose `prompt` is the hash of its prompt
    as JSON. `expected` is dollars: what the ticket has cost so far and its call is expected to
    cost. The rest is the state as it was: `launched` and `open` tickets, `iterations`,
    `archive_seq`, the number of frontiers and the incumbent.
    """

    number: TicketNumber
    attempt: int
    step: StepRecord | None
    prompt: str
    expected: float
    launched: TicketNumber
    open: list[TicketNumber]
    iterations: Iteration
    archive_seq: int
    num_frontiers: int | None
    best: str


def state_types() -> tuple[type, ...]:
    """The frozen dataclasses of a graph's state: credit, all controllers, and the router."""
    kinds = (cast(type, method.kind) for method in METHODS.values())
    return (Credit, *dict.fromkeys(kinds), Router)


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
        return super().from_checkpoint(_restored(checkpoint))

    def update(self, values: Sequence[Any]) -> bool:
        """Take a value, as it is or plain."""
        return super().update([_restored(value) for value in values])


_PLAIN: dict[type, tuple[object, list[object]]] = {}
"""The last value of each type with its plain form: a channel is saved after every node."""


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


def _restored(value: Any) -> Any:
    if not isinstance(value, list):
        return value
    for known, form in tuple(_PLAIN.values()):
        if form is value:
            return known
    name, named = value
    kinds = [kind for kind in state_types() if kind.__name__ == name]
    if len(kinds) != 1:
        raise ValueError(
            f"checkpoint: it holds {name}, expected one of"
            f" {', '.join(kind.__name__ for kind in state_types())}; register the method that the"
            " run uses"
        )
    return _adapter(kinds[0]).validate_python(named)


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
    `stop_reason` is `"budget"`, `"iterations"`, `"flat"` or `"failures"`, and empty while the run
    continues; after `"failures"`, `last_failure` says what was wrong with the last attempt.
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

    `run_id` names the run's rows in the store, `run_seed` starts its randomness, `holdout_key` is
    the secret that decides the held-out inputs. `iteration` is the current step (t), 0 before the
    first. `newest_checkpoint` is the highest id of a checkpoint that the run has seen, absent where
    the saver goes by the order of writing. `archive_seq` counts changes of the archives: nodes read
    the archives as of it, so rows written after the last checkpoint are overwritten, never seen.
    `extended_budget` is the budget in dollars that the caller granted when the graph's was used up,
    0 until then; `granted_budget` is what the run has drawn from a purse, else absent or `None`.
    `launched` is the number of the last ticket, `tickets` are those in flight in the order of their
    launch, and `open` their numbers. `parallel` is how many could be in flight when the last step
    began. `landings` counts what has landed, and `awaits_money` says whether another ticket waited
    for money when the last one landed. `prepared` is the number of a ticket whose guide has
    landed and whose step has not begun, 0 for none. `stopping` is the reason why the run stops as
    soon as nothing is in flight, empty while it continues.
    `num_frontiers` is how many frontiers an attempt in flight has seen, else absent.
    `last_doubt` is an iteration and the dollars in doubt that it was charged, the last one.
    `spent_at_gain` is what the run had spent when its best score last rose, in dollars.
    `refused_answer` says what was wrong with the caller's last answer. `failures` counts the
    attempts in a row, up to the last finished step, that yielded no usable program. `best` is the
    incumbent's candidate id. `labels` are hashes of the texts behind the labels of a search
    strategy, where the method has one. `seconds` is what each node has taken since the last step
    ended, `router` the router of a run with several models, else absent or without records, `trace`
    where the run's OpenTelemetry trace began, if a tracer was configured. `chosen` is what the
    caller has chosen for the run by its `context`, by name; absent where nothing was ever chosen on
    the thread. `seal` shows that the search itself has left the state so; see `seal.py`.
    """

    run_id: str
    run_seed: int
    holdout_key: str
    iteration: Iteration
    newest_checkpoint: str
    archive_seq: int
    extended_budget: float
    granted_budget: float | None
    launched: TicketNumber
    tickets: list[Ticket]
    open: list[TicketNumber]
    parallel: int
    landings: int
    awaits_money: bool
    prepared: TicketNumber
    stopping: str
    num_frontiers: int | None
    last_doubt: tuple[Iteration, float]
    spent_at_gain: float
    refused_answer: str
    failures: int
    best: str
    labels: dict[str, str]
    seconds: dict[str, float]
    trace: dict[str, str]
    controller: Annotated[Controller, FrozenValue]
    router: Annotated[Router, FrozenValue]
    step: StepRecord
    credit: Annotated[Credit, FrozenValue]
    chosen: dict[str, object]
    seal: str
