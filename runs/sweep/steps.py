"""How far a run has come, read from its trace file while it may still be written."""

import json
from dataclasses import dataclass
from pathlib import Path

from costada.runs.files import read_end

LONGEST_ROWS = 2**20
"""Bytes at the end of the file that are read; a row has a few hundred."""


@dataclass(frozen=True, slots=True)
class LastStep:
    """The last finished iteration of a run.

    Attributes:
        iteration: Its number (t).
        spent: Dollars the ledger shows after it (C_t).
        best_score: Best normalised score so far (y_t).
        best_objective: Objective of the candidate with that score; `None` if it has none.
    """

    iteration: int
    spent: float
    best_score: float
    best_objective: float | None


def last_step(steps: Path) -> LastStep | None:
    """Return the last whole row of a trace file, `None` while there is none.

    Raises:
        ValueError: If the row is damaged.
    """
    try:
        whole, newline, _ = read_end(steps, LONGEST_ROWS).rpartition("\n")
    except FileNotFoundError:
        return None
    if not newline:
        return None
    try:
        row = json.loads(whole.rpartition("\n")[2])
        return LastStep(row["iteration"], row["spent"], row["best_score"], row["best_objective"])
    except (ValueError, TypeError, KeyError, RecursionError):
        raise ValueError(f"{steps}: its last row is damaged") from None
