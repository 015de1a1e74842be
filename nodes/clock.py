"""Detects a clock that was set back, before new checkpoints would sort below older ones.

A checkpoint's id begins with the time at which it was made, and LangGraph's savers take the highest
id of a thread for its newest checkpoint. What a process saves while its clock is behind would not
be found again: the run would resume from an older checkpoint and pay for its steps again.
"""

from time import sleep
from uuid import UUID

from langgraph.checkpoint.base import empty_checkpoint
from langgraph.runtime import get_runtime

from costada.graph.state import SearchState

PATIENCE_SECONDS = 1.0
"""How far behind a clock may be to be waited for, as those of two machines may be."""

TICKS_PER_SECOND = 10_000_000
"""Resolution of the time in an id."""


def newest_checkpoint(state: SearchState) -> str:
    """Return the highest id of a checkpoint that a run knows of, once the clock is beyond it.

    Raises:
        ValueError: The clock is behind it; the message says by how much.
    """
    now = get_runtime().execution_info
    if now is None or now.thread_id is None:
        return ""
    newest = max(now.checkpoint_id, state.get("newest_checkpoint", ""))
    await_clock(newest, now.thread_id)
    return newest


def await_clock(newest: str, thread: str) -> None:
    """Wait until a new checkpoint has a higher id than the newest one of a thread.

    Raises:
        ValueError: That takes more than a second.
    """
    while (made := empty_checkpoint()["id"]) <= newest:
        behind = seconds_after(made, newest)
        if behind > PATIENCE_SECONDS:
            raise ValueError(
                f"clock: it is {behind:.0f} seconds before the newest checkpoint of thread"
                f" {thread!r}, so it was set back. The saver takes the checkpoint with the latest"
                " time for the newest, and would never find what is saved now. Correct the clock"
                " or wait until then, and resume; no request was sent"
            )
        sleep(behind)


def seconds_after(earlier: str, later: str) -> float:
    """Return how many seconds after one checkpoint another one was made, by their ids."""
    first, second = (UUID(name).int for name in (earlier, later))
    return (_ticks(second) - _ticks(first)) / TICKS_PER_SECOND


def _ticks(number: int) -> int:
    """Return the time in an id: its first 60 bits without the four that name the version."""
    return (number >> 80) << 12 | (number >> 64) & 0xFFF
