"""The row of a finished run in an index, kept in its folder and read in place of the run file."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat

from costada.reports.page.opening import FINISHED
from costada.reports.run_view import RunView
from costada.store.files import read_bytes, replace_text

MAX_BYTES = 2**16
MAX_CURVE = 300
"""Points of a curve; of a longer one, some are left out evenly."""

MAX_TEXT = 300
"""Characters of a name or of an error in a row."""

ENDS = ("", "-wal")
"""Ends of the names of the files that a running run writes."""

Text = Annotated[str, Field(max_length=MAX_TEXT)]
Point = tuple[FiniteFloat, FiniteFloat | None, FiniteFloat]
"""Dollars spent, best objective and best score."""


class _Strict(BaseModel):
    # A folder may come from anybody.
    model_config = ConfigDict(extra="forbid", strict=True)


class FinishedRow(_Strict):
    """What an index says of a finished run, except where and when it was."""

    problem: Text
    method: Text
    model: Text
    seed: int
    budget: FiniteFloat
    max_iterations: int
    direction: Text | None
    state: Literal["finished"]
    words: Text
    spent: FiniteFloat
    iterations: int
    best: FiniteFloat | None
    curve: Annotated[list[Point], Field(max_length=MAX_CURVE + 2)]
    since_gain: FiniteFloat
    over: Text
    roles: Annotated[list[tuple[Text, FiniteFloat]], Field(max_length=MAX_TEXT)]
    seconds: FiniteFloat | None
    hourly: FiniteFloat | None
    ends: None


class _Kept(_Strict):
    files: list[tuple[int, int] | None]
    row: FinishedRow


def keep_row(run: RunView, row: Mapping[str, Any]) -> None:
    """Write the row beside the run file if the run has finished, with the state of its files.

    A run that can be resumed has none: its row names the folder, which may be moved.
    Raises `OSError` if it cannot be written.
    """
    if row["state"] == FINISHED and isinstance(run.database, Path):
        known = FinishedRow(**{name: row[name] for name in FinishedRow.model_fields})
        kept = _Kept(files=_states(run, run.database), row=known)
        replace_text(run.row, kept.model_dump_json())


def kept_row(run: RunView) -> dict[str, object] | None:
    """The row that was kept; `None` if there is none, it is malformed or the files have changed."""
    if not isinstance(run.database, Path):
        return None
    try:
        kept = _Kept.model_validate_json(read_bytes(run.row, MAX_BYTES))
    except (OSError, ValueError):
        return None
    return dict(kept.row) if kept.files == _states(run, run.database) else None


def _states(run: RunView, database: Path) -> list[tuple[int, int] | None]:
    """Size and time of the settings and the run file, which a copy of the folder keeps."""
    files = [str(run.settings), *(f"{database}{end}" for end in ENDS)]
    return [state and state[1:] for state in map(state_of, files)]


def state_of(file: str) -> tuple[int, int, int] | None:
    """Inode, size and time of a file, `None` if it cannot be looked at; no link is followed."""
    try:
        found = os.stat(file, follow_symlinks=False)
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns
