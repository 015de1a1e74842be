"""The trace of a run: its rows read from the run file, as the paper's table, and as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from costada.controller.step import FLAT, OUT_OF_MONEY, StopReason, stop_reason
from costada.evaluators.scoring import reaches
from costada.nodes.trace_row import EVENTS, STEP_COLUMNS, Column, TraceRow, kind_of
from costada.reports.terminal import TerminalTable
from costada.store.address import StorePlace
from costada.store.history import RunHistory
from costada.store.rows import Origin, record
from costada.store.run_store import RunStore
from costada.values.evaluation import Direction
from costada.values.numbering import START, TicketNumber

if TYPE_CHECKING:
    from costada.nodes.trace_row import ModelRow
    from costada.reports.run_view import RunSettings

TABLE_COLUMNS = {name: each for name, each in STEP_COLUMNS.items() if each.symbol}
MAX_DECIMALS = 4
"""Decimals of the paper's trace table."""

SMALLEST_SHOWN = 5e-7
"""Dollars that six decimals show."""


def stored_rows(store: RunStore, run_id: str) -> Sequence[TraceRow]:
    """The trace rows of a run in order, read without loading the graph."""
    return cast("Sequence[TraceRow]", store.steps(run_id))


def last_router(store: RunStore) -> Sequence[ModelRow]:
    """What is known of each model after the last iteration in a store; empty with one model."""
    run_ids = store.run_ids()
    last = store.last_step(run_ids[-1]) if run_ids else START
    if not last:
        return []
    row = cast("TraceRow", record(store.step_line(run_ids[-1], last)))
    return row.get("router", [])


def rows_of_file(database: StorePlace) -> Sequence[TraceRow]:
    """The trace rows of the run in a file, empty if it has not started.

    Raises:
        ValueError: If there is no such file.
    """
    if isinstance(database, Path) and not database.is_file():
        raise ValueError(
            f"{database.parent}: its run has not started (there is no {database.name} in it)"
        )
    with RunStore.at(database, is_read_only=True) as store:
        run_ids = store.run_ids()
        return stored_rows(store, run_ids[-1]) if run_ids else []


def origin_of_file(database: StorePlace) -> Origin | None:
    """Where the run in a file was forked from, `None` if it was not forked."""
    with RunHistory.of(database) as history:
        return history.origin(history.last_run())


def charged_of_file(database: StorePlace, *, counts_lost: bool) -> float:
    """Dollars of all requests of the run in a file; `counts_lost` as in `RunHistory.charged`."""
    with RunHistory.of(database) as history:
        return float(history.charged(history.last_run(), counts_lost=counts_lost))


def end_after(
    last: Mapping[str, Any],
    settings: RunSettings,
    problem: Mapping[str, Any],
    *,
    is_failing: bool = False,
) -> StopReason | None:
    """Why a run ended after its last row, `None` if it had not ended.

    `problem` holds `direction` and `reference` of the run's problem, as far as they are known.
    """
    return stop_reason(
        settings.budget,
        last["spent"],
        last["iteration"],
        settings.max_iterations,
        is_out_of_money=OUT_OF_MONEY in last["events"],
        is_failing=is_failing,
        is_flat=FLAT in last["events"],
        has_reached_target=reaches_target(last["best_score"], settings.target, problem),
    )


def reaches_target(score: float, target: float | None, problem: Mapping[str, Any]) -> bool:
    """Whether a best score reaches the target of a run, whose problem is as in `end_after`."""
    if target is None or problem.get("direction") is None:
        return False
    reference = problem.get("reference")
    known = None if reference is None else float(reference)
    return reaches(score, target, known, Direction(problem["direction"]))


def ticket_of(row: Mapping[str, Any]) -> TicketNumber:
    """The number of the ticket that ended as an iteration: of its calls and its candidates."""
    return TicketNumber(int(row.get("ticket", row["iteration"])))


def attempts_made(row: Mapping[str, Any]) -> int:
    """How many attempts an iteration made: not the last one, if no money was left for it."""
    return max(0, int(row["attempts"]) - (OUT_OF_MONEY in row["events"]))


def has_failed(row: Mapping[str, Any]) -> bool:
    """Whether an attempt of the iteration failed, rather than that none could be paid for."""
    return bool(row["failure"]) and (OUT_OF_MONEY not in row["events"] or attempts_made(row) > 0)


def failures_in_a_row(rows: Sequence[Mapping[str, Any]], max_failures: int, parallel: int) -> int:
    """Attempts in a row, up to the last of some rows, that yielded no usable program.

    As many as `max_failures` stop a run with `parallel` steps in flight. One that is resumed after
    that counts from 0.
    """
    count = num_late = 0
    for row in rows:
        if count < max_failures:
            num_late = 0
        else:
            # A run that stops lets the others of its `parallel` steps land; later rows are of a
            # resumed one.
            num_late += 1
            if num_late == parallel:
                count = num_late = 0
        count = count + attempts_made(row) if row["failure"] else 0
    return count


def failure_words(row: Mapping[str, Any]) -> str:
    """Why the last attempt of an iteration failed or was not made, in one line, else empty."""
    if not row["failure"]:
        return ""
    kind = "not paid for" if OUT_OF_MONEY in row["events"] else "failed"
    return f"{kind}: {row['failure'].splitlines()[0]}"


def trace_json(rows: Sequence[TraceRow]) -> str:
    """The rows as one JSON array, a row per line."""
    lines = ",\n".join(f"  {json.dumps(row)}" for row in rows)
    return f"[\n{lines}\n]" if rows else "[]"


def trace_table(rows: Sequence[TraceRow]) -> TerminalTable:
    """The paper's controller trace table (Sec. 5) of the rows.

    Tickets have a column where one of them ended out of turn, models where there are several.
    """
    is_shown = {
        "ticket": any(ticket_of(row) != TicketNumber(row["iteration"]) for row in rows),
        "models": any("models" in row for row in rows),
        "arm": any("arm" in row for row in rows),
        "dollars_by_role": any("dollars_by_role" in row for row in rows),
    }
    columns = {name: each for name, each in TABLE_COLUMNS.items() if is_shown.get(name, True)}
    is_word = {
        each.symbol: kind_of(TraceRow, name) in (str, list[str], dict[str, float])
        for name, each in columns.items()
    }
    droppable = sorted((each.left_out, each.symbol) for each in columns.values() if each.left_out)
    return TerminalTable(
        header=[each.symbol for each in columns.values()],
        rows=[[_cell(name, each, row) for name, each in columns.items()] for row in rows],
        words=[symbol for symbol, is_true in is_word.items() if is_true],
        optional=[symbol for _, symbol in droppable],
        meanings={
            each.symbol: each.text.partition(";")[0]
            for name, each in columns.items()
            if each.symbol != name
        },
        bold=frozenset(place for place, row in enumerate(rows) if row["global_gain"] > 0),
        alternatives="--json or a wider terminal",
    )


def _cell(name: str, column: Column, row: TraceRow) -> str:
    if name == "events":
        return ", ".join(_remarks(row))
    value = ticket_of(row) if name == "ticket" else row.get(name)
    if isinstance(value, list):
        return ", ".join(value) or "-"
    if isinstance(value, Mapping):
        return role_words(value)
    if isinstance(value, float):
        return f"{value:.{min(column.digits, MAX_DECIMALS)}f}"
    return "-" if value is None else str(value)


def role_words(dollars: Mapping[str, float]) -> str:
    """Dollars by role in one line."""
    return ", ".join(f"{role} ${each:.6f}" for role, each in dollars.items())


def _remarks(row: TraceRow) -> Iterator[str]:
    """What happened in a step, in words."""
    yield from map(event_words, row["events"])
    if (made := attempts_made(row)) > 1:
        yield f"{made} attempts"
    if row.get("is_cached"):
        yield "known program"
    if has_failed(row):
        yield "failed"


def charged_words(charged: float, rows: Sequence[TraceRow]) -> str:
    """One line on dollars of steps that have not ended, or that a bill returned; empty without any.

    Args:
        charged: Dollars of all requests of the run.
        rows: Of its finished iterations.
    """
    more = charged - (rows[-1]["spent"] if rows else 0.0)
    if more <= -SMALLEST_SHOWN:
        return f"${-more:.6f} were returned by the provider's bill, which leaves ${charged:.6f}."
    if more < SMALLEST_SHOWN:
        return ""
    return f"${more:.6f} are charged to steps that have not ended, of ${charged:.6f} in all."


def origin_words(origin: Origin) -> str:
    """One line that says where a run was forked from."""
    return f"Forked from {origin.folder} after iteration {origin.iteration} (run {origin.run_id})."


def event_meaning(event: str) -> str:
    """What an event means; empty for one that only a single method knows."""
    known = EVENTS.get(event.partition(":")[0])
    return known.text if known else ""


def event_words(event: str) -> str:
    """An event of a trace row in words."""
    return event.replace("_", " ").replace(":", ": ")
