"""The trace of a run as the paper prints it, and as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich import box
from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from costada.nodes.trace import TraceRow
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
TEXT_COLUMNS = ("action", "events")
WIDTH_WITHOUT_TERMINAL = 160


def trace_json(rows: Sequence[TraceRow]) -> str:
    """Return the rows as one JSON array, a row per line."""
    lines = ",\n".join(f"  {json.dumps(row)}" for row in rows)
    return f"[\n{lines}\n]" if rows else "[]"


def trace_table(rows: Sequence[TraceRow]) -> Table:
    """Return the paper's controller trace table (Sec. 5) of the rows."""
    table = Table(box=box.SIMPLE_HEAD, caption=_legend(), caption_justify="left", pad_edge=False)
    for symbol, _ in COLUMNS:
        is_text = symbol in TEXT_COLUMNS
        table.add_column(symbol, justify="left" if is_text else "right", no_wrap=symbol != "events")
    for row in rows:
        table.add_row(*_cells(row), style="bold" if row["global_gain"] > 0 else None)
    return table


def origin_words(origin: Origin) -> str:
    """Return in one line where a run was forked from."""
    return f"Forked from {origin.folder} after iteration {origin.iteration} (run {origin.run_id})."


def table_console() -> Console:
    """Return a console on standard output that does not cut the table when piped."""
    console = Console(highlight=False)
    return console if console.is_terminal else Console(width=WIDTH_WITHOUT_TERMINAL)


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


def _legend() -> str:
    return "; ".join(f"{symbol}: {meaning}" for symbol, meaning in COLUMNS if meaning)
