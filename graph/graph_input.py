"""What a caller gives a run: its input, what it chooses by its context, and its answer to a pause.

Nothing is ignored: keys that the run would not read are refused.
"""

import json
import reprlib
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence
from difflib import get_close_matches
from threading import Lock
from typing import TYPE_CHECKING, Any, TypeGuard

from langgraph.types import Command, StateSnapshot
from pydantic import BaseModel
from typing_extensions import TypedDict

from costada.controller.constants import Constants
from costada.nodes.settings import Settings
from costada.nodes.state import SearchInput
from costada.store.run_store import RunStore

if TYPE_CHECKING:
    from costada.nodes.context import RunContext


NOTHING: Mapping[str, object] = {}
NO_CHOICES = "which is not read there: the graph was made without choices=Choices(...)"

SETTING_ARGUMENTS = {
    **{
        name: f"create_discovery_graph(..., controller={{{name!r}: ...}})"
        for name in Constants.model_fields
    },
    **{name: f"create_discovery_graph(..., {name}=...)" for name in Settings.model_fields},
    **{
        name: f"create_discovery_graph(..., {name}=...)"
        for name in ("max_iterations", "reference_cost", "guide_model", "problem", "models")
    },
    "budget": "create_discovery_graph(..., budget=DOLLARS)",
}
"""How each setting of a search is given. A configurable `model` is a chat model's own."""


def check_input(given: object, *, is_parents_state: bool = False) -> None:
    """Refuse keys of a run's input that the run would ignore.

    Args:
        given: The input of a run: a mapping, a command, or `None` to resume.
        is_parents_state: Whether it is the whole state of a parent graph, whose own keys pass.

    Raises:
        ValueError: Naming the key, and where it is given if it is named like a setting.
    """
    if isinstance(given, Command):
        check_command(given)
        return
    if not isinstance(given, Mapping):
        return
    unknown = [key for key in given if key not in SearchInput.__annotations__]
    refused = [key for key in unknown if key in SETTING_ARGUMENTS or not is_parents_state]
    if not refused:
        return
    advice = _advice(refused[0])
    if is_parents_state:
        advice += ", or hide the parent's key: as_discovery_node(graph, input={...}, output={...})"
    expected = ", ".join(SearchInput.__annotations__)
    raise ValueError(f"input: got key {refused[0]!r}, expected {expected}{advice}")


def check_keys(where: str, given: object, known: Mapping[str, object] = NOTHING) -> None:
    """Refuse keys named like a setting in a place where no setting is read; all others pass.

    Args:
        where: What messages call the place.
        given: A mapping, or anything else, which is not checked.
        known: Keys with values that pass all the same.

    Raises:
        ValueError: Naming the key, and where the setting is given.
    """
    for key, value in given.items() if isinstance(given, Mapping) else ():
        if key in SETTING_ARGUMENTS and (key not in known or known[key] != value):
            raise ValueError(f"{where}: got key {key!r}, which is not read there{_advice(key)}")


def check_no_context(context: object) -> None:
    """Refuse the context of a graph without choices, which reads none.

    Raises:
        ValueError: Naming the key, the nearest one of a context and where that setting is given.
    """
    if context is None:
        return
    if not isinstance(context, Mapping):
        raise ValueError(f"context: got {context!r}, {NO_CHOICES}")
    for key in context:
        near = get_close_matches(str(key), {*SearchContext.__annotations__, *SETTING_ARGUMENTS}, 1)
        hint = f"; did you mean {near[0]!r}?" if near and near[0] != key else ""
        advice = _advice(near[0]) if near else ""
        raise ValueError(f"context: got key {key!r}, {NO_CHOICES}{hint}{advice}")


def _advice(key: str) -> str:
    """Where a setting is given, nothing for another key."""
    if key in SearchInput.__annotations__:
        return f'; it is part of the input: {{"{key}": ...}}'
    return f"; it is set in {SETTING_ARGUMENTS[key]}" if key in SETTING_ARGUMENTS else ""


Overrides = Mapping[str, object]
"""What was chosen, by name: plain values that a checkpoint can keep."""

BUDGET, SEED = "budget", "seed"
MAX_BUILT = 64
"""Searches of different choices that stay in memory."""


class SearchContext(TypedDict, total=False):
    """What the caller of a run chooses, for type checkers; `Choices` says which keys a graph takes.

    `budget` is in dollars, `problem` and `models` are names, `parallel` is the number of steps in
    flight, and `settings` holds further settings by name.
    """

    seed: int
    budget: float
    problem: str
    models: Sequence[str]
    parallel: int
    settings: Mapping[str, object]


class RunOverrides:
    """Reads the `context` of a run and builds each search that it chooses once.

    Attributes:
        schema: What may be chosen, as the context schema of the graph.
        defaults: The values of a run that chooses none, by the same names.
        max_parallel: Most steps that a run may have in flight.
        methods: The methods that a run may use, beside that of the graph.
    """

    def __init__(
        self,
        schema: type[BaseModel],
        defaults: Overrides,
        read: Callable[[object], Overrides],
        build: Callable[[Overrides], "RunContext"],
        max_parallel: int = 1,
        methods: Collection[str] = (),
    ) -> None:
        """Keep the schema, and the functions that check a context and build its search."""
        self.schema, self.defaults = schema, defaults
        self.max_parallel, self.methods = max_parallel, methods
        self._read, self._build = read, build
        self._built: OrderedDict[str, RunContext] = OrderedDict()
        self._lock = Lock()

    def read(self, context: object, seed: object = None) -> Overrides:
        """What a context chooses.

        Args:
            context: A mapping, or an instance of the schema; `None` chooses nothing.
            seed: The seed of the input, if there is one.

        Raises:
            ValueError: A name is unknown or a value beyond the limits, or the two seeds differ.
        """
        chosen = self._read({} if context is None else context)
        if seed is not None and SEED in chosen and chosen[SEED] != seed:
            raise ValueError(
                f"seed: got {seed!r} in the input and {chosen[SEED]!r} in the context, expected"
                " only one"
            )
        return chosen

    def check_saved(self, chosen: object) -> Overrides:
        """The choices saved in a run's state, checked against the limits of today.

        Raises:
            ValueError: A name is unknown or a value beyond the limits.
        """
        try:
            return self._read(self._with_budget(chosen, {}))
        except ValueError as error:
            raise ValueError(f"the run has chosen what is not allowed: {error}") from None

    def resume(self, saved: Overrides, context: object) -> Overrides:
        """The choices of a resumed run: those it began with, or a higher budget.

        Raises:
            ValueError: The context chooses something else.
        """
        chosen = self.read(self._with_budget(context, saved))
        known = {**self.defaults, **saved}
        for name, value in chosen.items():
            before = known.get(name)
            is_higher = isinstance(value, float) and isinstance(before, float) and value > before
            if value != before and not (name == BUDGET and is_higher):
                began = "those of the graph" if before is None else repr(before)
                raise ValueError(
                    f"context: got {name} {value!r} for a run that began with {began}, expected the"
                    " same"
                    f"{' or a higher one' if name == BUDGET else ''}; only a new run can choose it"
                )
        new = {name: value for name, value in chosen.items() if value != known.get(name)}
        return {**saved, **new}

    def _with_budget(self, given: object, saved: Overrides) -> object:
        """The given context with the run's budget, where a new run would have to choose one."""
        field = self.schema.model_fields.get(BUDGET)
        if not (field and field.is_required() and isinstance(given, Mapping | None)):
            return given
        return {BUDGET: saved.get(BUDGET, self.defaults[BUDGET]), **(given or {})}

    def search(self, chosen: Overrides) -> "RunContext":
        """The context of the search that was chosen, for any seed.

        Raises:
            ValueError: The choice contradicts itself.
        """
        lasting = {name: value for name, value in chosen.items() if name != SEED}
        key = json.dumps(lasting, sort_keys=True)
        with self._lock:
            if key not in self._built:
                try:
                    self._built[key] = self._build(lasting)
                except ValueError as error:
                    lines = str(error).splitlines()
                    raise ValueError("\n".join(f"context: {line}" for line in lines)) from None
            self._built.move_to_end(key)
            # A server is sent any number of budgets; a run in progress holds its own search.
            while len(self._built) > MAX_BUILT:
                self._built.popitem(last=False)
            return self._built[key]


TACTIC, PROGRAM = "tactic", "program"
"""The keys of such a value: a string, and a string or strings by path."""

EXPECTED = (
    f'{{"{TACTIC}": TEXT}} or {{"{PROGRAM}": TEXT}}, or None in place of the command to continue'
)

NO_UPDATE = (
    "the state of a search follows from its calls and programs, and no caller changes it. Continue"
    " a run with None as input, which also takes up limits that were raised, and give it an idea"
    f' or a program with Command(resume={{"{TACTIC}": TEXT}}) or {{"{PROGRAM}": TEXT}}'
)


def check_command(given: Command[Any]) -> None:
    """Refuse a command that is empty, or that is more than an answer; raises `ValueError`."""
    for name in ("update", "goto"):
        if value := getattr(given, name):
            raise ValueError(f"{name}: got {reprlib.repr(value)} in a command: {NO_UPDATE}")
    if given.resume is None:
        raise ValueError(f"resume: got None in a command, expected {EXPECTED}")


def has_answer(given: object) -> TypeGuard[Command[Any]]:
    """Whether a run is resumed with a value."""
    return isinstance(given, Command) and given.resume is not None


def accept_answer(
    given: Command[Any], paused: StateSnapshot, store: RunStore, *, is_newest: bool
) -> Command[Any] | None:
    """Put an idea or a program into the run of a thread; returns what to resume the run with.

    A step takes it, after those that came before it. A run that asks its caller something gets the
    value as the answer instead, and refuses it there.

    Args:
        given: What the run is resumed with.
        paused: The state at the checkpoint that it is resumed from.
        store: Keeps the run.
        is_newest: Whether the thread has no newer checkpoint.

    Raises:
        ValueError: The value is neither, the run has not begun, is over or has gone beyond the
            checkpoint, or as `UserInputTable.put_idea` and `put_program` do.
    """
    if paused.interrupts:
        return given
    answer = given.resume
    if not isinstance(answer, Mapping) or {TACTIC, PROGRAM}.isdisjoint(answer):
        if not paused.next:
            return given
        raise ValueError(
            f"resume: got {reprlib.repr(answer)} for a run that asks nothing, expected {EXPECTED}"
        )
    keys = list(answer)
    if len(keys) != 1:
        raise ValueError(f"resume: got {', '.join(map(str, keys))}, expected one of them alone")
    run = paused.values.get("run")
    if not run or not paused.next:
        raise ValueError(
            f"resume: got a {keys[0]} for a run that {'is over' if run else 'has not begun'};"
            ' expected one that pauses, as interrupt_before=["build_context"] makes it'
        )
    if not is_newest:
        raise ValueError(
            f"resume: got a {keys[0]} for an earlier checkpoint of the thread, expected its newest"
            " one: name the thread without a checkpoint_id"
        )
    if keys[0] == TACTIC:
        store.inputs.put_idea(run.id, answer[TACTIC])
    else:
        store.inputs.put_program(run.id, answer[PROGRAM])
    return None
