"""An idea or a program that a caller gives a paused run, as the value it is resumed with."""

import reprlib
from collections.abc import Mapping
from typing import Any, TypeGuard

from langgraph.types import Command, StateSnapshot

from costada.store.run_store import RunStore

TACTIC, PROGRAM = "tactic", "program"
"""The keys of such a value: a text, and a text or texts by path."""


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
    """Put an idea or a program into the run of a thread; what the run is to be resumed with then.

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
