"""The row of a finished run in an index, kept in its folder and read in place of the run file.

A folder may come from anybody, so a row counts only beside the very files that it was made of. When
their status changed is among what shows that: the system alone sets it, so no copy has it again.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
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

FileState = tuple[int, int, int, int]
"""Inode, size, and when content and status changed, in nanoseconds."""

Text = Annotated[str, Field(max_length=MAX_TEXT)]
Number = Annotated[int, Field(ge=0, lt=2**63)]
"""A number as run files hold them."""

Point = tuple[FiniteFloat, FiniteFloat | None, FiniteFloat]
"""Dollars spent, best objective and best score."""


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class FinishedRow(_Strict):
    """What an index says of a finished run, except where and when it was."""

    problem: Text
    method: Text
    model: Text
    seed: Number
    budget: FiniteFloat
    max_iterations: Number
    direction: Text | None
    state: Literal["finished"]
    words: Text
    spent: FiniteFloat
    iterations: Number
    best: FiniteFloat | None
    curve: Annotated[list[Point], Field(max_length=MAX_CURVE + 2)]
    since_gain: FiniteFloat
    over: Text
    roles: Annotated[list[tuple[Text, FiniteFloat]], Field(max_length=MAX_TEXT)]
    requests: Annotated[list[tuple[Text, Number]], Field(max_length=MAX_TEXT)]
    seconds: FiniteFloat | None
    evaluation_seconds: FiniteFloat
    sandbox: Text
    purse: Text
    hourly: FiniteFloat | None
    ends: None


class _Kept(_Strict):
    files: list[FileState | None]
    row: FinishedRow


def keep_row(run: RunView, row: Mapping[str, Any], files: Sequence[FileState | None]) -> None:
    """Write the row beside the run file if the run has finished.

    A run that can be resumed has none: its row names the folder, which may be moved.

    Args:
        run: The run, in a folder.
        row: Its row.
        files: What `file_states` returned before the row was made: another process may have resumed
            the run since.

    Raises:
        OSError: If it cannot be written.
    """
    if row["state"] == FINISHED:
        known = FinishedRow(**{name: row[name] for name in FinishedRow.model_fields})
        replace_text(run.row, _Kept(files=[*files], row=known).model_dump_json())


def kept_row(run: RunView) -> dict[str, object] | None:
    """The row that was kept; `None` if there is none, it is malformed or the files are others."""
    if not isinstance(run.database, Path):
        return None
    try:
        kept = _Kept.model_validate_json(read_bytes(run.row, MAX_BYTES))
    except (OSError, ValueError):
        return None
    return dict(kept.row) if kept.files == file_states(run) else None


def file_states(run: RunView) -> list[FileState | None]:
    """The states of the settings and the run file, which change whenever the row may."""
    files = [str(run.settings), *(f"{run.database}{end}" for end in ENDS)]
    return [_state_of(file) for file in files]


def _state_of(file: str) -> FileState | None:
    """The state of a file, `None` if it cannot be looked at; no link is followed."""
    try:
        found = os.stat(file, follow_symlinks=False)
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
