"""The trace of a run: its rows read from the run file, as the paper's table, and as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from costada.controller.step import FLAT, OUT_OF_MONEY, StopReason, stop_reason
from costada.reports.terminal import TerminalTable
from costada.store.address import StorePlace
from costada.store.history import RunHistory
from costada.store.rows import Origin, record
from costada.store.run_store import RunStore
from costada.values.numbering import START, TicketNumber

if TYPE_CHECKING:
    from costada.nodes.end_step import ModelRow, TraceRow
    from costada.reports.run_view import RunSettings

COLUMNS = (
    ("t", "iteration"),
    ("k", "frontier, from 1"),
    ("action", "local action"),
    ("I", "exploration intensity"),
    ("c", "step cost in dollars"),
    ("rho", "remaining share of the budget"),
    ("f", "score"),
    ("u", "utility"),
    ("r", "allocation reward"),
    ("nu", "steps without global progress"),
    ("L", "low-yield cost in dollars"),
    ("w", "consolidation steps left"),
    ("uses", "tactic uses left"),
    ("events", ""),
)
TICKET_COLUMN = ("n", "ticket, in the order of launching")
MODEL_COLUMN = ("model", "model of each attempt")
WORD_COLUMNS = ("action", "model", "events")
OPTIONAL_COLUMNS = ("n", "uses", "w", "L", "nu", "r", "I", "u", "rho", "model")
"""Columns that a narrow terminal leaves out, in this order."""


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
        raise ValueError(f"{database.parent}: holds no run (there is no {database.name} in it)")
    with RunStore.at(database, is_read_only=True) as store:
        run_ids = store.run_ids()
        return stored_rows(store, run_ids[-1]) if run_ids else []


def origin_of_file(database: StorePlace) -> Origin | None:
    """Where the run in a file was forked from, `None` if it was not forked."""
    with RunHistory.of(database) as history:
        return history.origin(history.last_run())


def end_after(
    last: Mapping[str, Any], settings: RunSettings, *, is_failing: bool = False
) -> StopReason | None:
    """Why a run ended after its last row, `None` if it had not ended."""
    return stop_reason(
        settings.budget,
        last["spent"],
        last["iteration"],
        settings.max_iterations,
        is_out_of_money=OUT_OF_MONEY in last["events"],
        is_failing=is_failing,
        is_flat=FLAT in last["events"],
    )


def ticket_of(row: Mapping[str, Any]) -> TicketNumber:
    """The number of the ticket that ended as an iteration: of its calls and its candidates."""
    return TicketNumber(int(row.get("ticket", row["iteration"])))


def attempts_made(row: Mapping[str, Any]) -> int:
    """How many attempts an iteration made: not the last one, if no money was left for it."""
    return int(row["attempts"]) - (OUT_OF_MONEY in row["events"])


def has_failed(row: Mapping[str, Any]) -> bool:
    """Whether an attempt of the iteration failed, rather than that none could be paid for."""
    return bool(row["failure"]) and (OUT_OF_MONEY not in row["events"] or attempts_made(row) > 0)


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
    columns, cells = list(COLUMNS), [list(_cells(row)) for row in rows]
    if any("models" in row for row in rows):
        columns.insert(3, MODEL_COLUMN)
        for row, line in zip(rows, cells, strict=True):
            line.insert(3, ", ".join(row.get("models", ())) or "-")
    if any(ticket_of(row) != TicketNumber(row["iteration"]) for row in rows):
        columns.insert(1, TICKET_COLUMN)
        for row, line in zip(rows, cells, strict=True):
            line.insert(1, str(ticket_of(row)))
    return TerminalTable(
        header=[symbol for symbol, _ in columns],
        rows=cells,
        words=[name for name in WORD_COLUMNS if name in dict(columns)],
        optional=[name for name in OPTIONAL_COLUMNS if name in dict(columns)],
        meanings={symbol: meaning for symbol, meaning in columns if meaning},
        bold=frozenset(place for place, row in enumerate(rows) if row["global_gain"] > 0),
        alternatives="--json or a wider terminal",
    )


def _cells(row: TraceRow) -> tuple[str, ...]:
    remarks = [event_words(event) for event in row["events"]]
    if (made := attempts_made(row)) > 1:
        remarks.append(f"{made} attempts")
    if row.get("is_cached"):
        remarks.append("known program")
    if has_failed(row):
        remarks.append("failed")
    return (
        str(row["iteration"]),
        str(row["frontier"]),
        row["action"],
        f"{row['intensity']:.3f}",
        f"{row['step_cost']:.4f}",
        f"{row['remaining_ratio']:.4f}",
        "-" if row["score"] is None else f"{row['score']:.4f}",
        f"{row['utility']:.4f}",
        f"{row['allocation_reward']:.4f}",
        str(row["stagnation"]),
        f"{row['low_yield_cost']:.4f}",
        str(row["consolidation_left"]),
        str(row["tactic_uses_left"]),
        ", ".join(remarks),
    )


def origin_words(origin: Origin) -> str:
    """One line that says where a run was forked from."""
    return f"Forked from {origin.folder} after iteration {origin.iteration} (run {origin.run_id})."


EVENT_MEANINGS = {
    "guide_scheduled": "progress has slowed; the next step asks a guide for ideas",
    "guide_charged": "a guide was asked and gave ideas, called tactics",
    "consolidation_opened": "an idea paid off; its frontier comes first",
    "backoff": "ideas brought nothing; the next guide comes later",
    "out_of_money": "the budget does not pay for the next call",
    "cut_short": "the step ended before its program was submitted",
    "flat": "another gain is too unlikely",
    "disabled": "this model gets no further requests",
    "confirmed": "a second series of measurements confirms the best",
    "measured_again": "a second series of measurements did not confirm it",
    "pareto_front": "no other program is better in every objective",
    "steered": "an idea that a user put in",
    "submitted": "a program that a user put in",
}
"""What events mean, by the part of their names before a colon."""


def event_meaning(event: str) -> str:
    """What an event means; empty for one that only a single method knows."""
    return EVENT_MEANINGS.get(event.partition(":")[0], "")


def event_words(event: str) -> str:
    """An event of a trace row in words."""
    return event.replace("_", " ").replace(":", ": ")
