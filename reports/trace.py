"""The trace of a run as the paper prints it, and as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from costada.reports.terminal import Sheet

if TYPE_CHECKING:
    from costada.nodes.end_step import TraceRow
    from costada.store.rows import Origin


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
WORD_COLUMNS = ("action", "events")
SPARE_COLUMNS = ("uses", "w", "L", "nu", "r", "I", "u", "rho")
"""What a narrow terminal does without, the first of them first."""


def trace_json(rows: Sequence[TraceRow]) -> str:
    """Return the rows as one JSON array, a row per line."""
    lines = ",\n".join(f"  {json.dumps(row)}" for row in rows)
    return f"[\n{lines}\n]" if rows else "[]"


def trace_sheet(rows: Sequence[TraceRow]) -> Sheet:
    """Return the paper's controller trace table (Sec. 5) of the rows."""
    return Sheet(
        header=[symbol for symbol, _ in COLUMNS],
        rows=[_cells(row) for row in rows],
        words=WORD_COLUMNS,
        spare=SPARE_COLUMNS,
        meanings={symbol: meaning for symbol, meaning in COLUMNS if meaning},
        bold=frozenset(place for place, row in enumerate(rows) if row["global_gain"] > 0),
        ways="--json or a wider terminal",
    )


def origin_words(origin: Origin) -> str:
    """Return in one line where a run was forked from."""
    return f"Forked from {origin.folder} after iteration {origin.iteration} (run {origin.run_id})."


def _cells(row: TraceRow) -> tuple[str, ...]:
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
        _remarks(row),
    )


def event_words(event: str) -> str:
    """Return an event of a trace row as shown to a person."""
    return event.replace("_", " ").replace(":", ": ")


def _remarks(row: TraceRow) -> str:
    remarks = [event_words(event) for event in row["events"]]
    if row["attempts"] > 1:
        remarks.append(f"{row['attempts']} attempts")
    if row.get("is_cached"):
        remarks.append("known program")
    if row["failure"]:
        remarks.append("failed")
    return ", ".join(remarks)
