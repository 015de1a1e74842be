"""The trace rows of a run, read from its file without loading the graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from costada.controller.method import OUT_OF_MONEY, StopReason, stop_reason
from costada.store.history import RunHistory
from costada.store.rows import Origin
from costada.store.run_store import RunStore

if TYPE_CHECKING:
    from costada.nodes.end_step import TraceRow
    from costada.runs.config import RunConfig


def stored_rows(store: RunStore, run_id: str) -> Sequence[TraceRow]:
    """Return the trace rows of a run in order."""
    return cast("Sequence[TraceRow]", store.steps(run_id))


def end_after(
    last: Mapping[str, Any], config: RunConfig, *, is_failing: bool = False
) -> StopReason | None:
    """Return why a run ended after its last row, `None` if it had not ended."""
    return stop_reason(
        config.budget,
        last["spent"],
        last["iteration"],
        config.max_iterations,
        is_out_of_money=OUT_OF_MONEY in last["events"],
        is_failing=is_failing,
    )


def num_cached(store: RunStore, run_id: str) -> int:
    """Return how many iterations of a run used the verdict of a program judged before."""
    return sum(bool(row.get("is_cached")) for row in store.steps(run_id))


def rows_of_file(database: Path) -> Sequence[TraceRow]:
    """Return the trace rows of the run in a file; none when it has not begun.

    Raises:
        ValueError: If there is no such file.
    """
    if not database.is_file():
        raise ValueError(f"{database.parent}: holds no run (there is no {database.name} in it)")
    with RunStore(database, is_read_only=True) as store:
        run_ids = store.run_ids()
        return stored_rows(store, run_ids[-1]) if run_ids else []


def origin_of_file(database: Path) -> Origin | None:
    """Return where the run in a file was forked from, `None` if it began by itself."""
    with RunHistory.of(database) as history:
        return history.origin(history.last_run())
