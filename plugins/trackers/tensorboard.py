"""Logs runs as event files for TensorBoard, in the run folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tensorboardX import SummaryWriter

from costada.reports.tracking import Step, TrackedEnd, TrackedRun, file_of

EVENT_FILES = "events.out.tfevents.*"
MAX_TEXT = 2**20
"""Characters of a program that is shown."""


class TensorboardTracker:
    """Logs values as scalars with the iteration as step, and settings and the result as texts.

    An event file cannot be continued, so a resumed run writes all its events to a new one.
    """

    def __init__(self) -> None:
        self._writer: Any = None

    def check(self) -> None:
        """Nothing needs to be set up."""

    def begin(self, run: TrackedRun) -> int:
        """Begin with the settings."""
        folder = Path(run.folder)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for before in file_of(folder, EVENT_FILES):
            before.unlink()
        self._writer = SummaryWriter(run.folder)
        rows = (
            f"| {name} | {text.replace('|', '&#124;')} |" for name, text in run.settings.items()
        )
        self._text("settings", "\n".join(["| setting | value |", "| --- | --- |", *rows]))
        return 0

    def log(self, steps: Sequence[Step]) -> None:
        """Write the values, so that TensorBoard sees them."""
        for iteration, values in steps:
            for name, value in values.items():
                self._writer.add_scalar(name, value, iteration)
        self._writer.flush()

    def end(self, end: TrackedEnd) -> None:
        """Write why the run ended, the best program and where the files are."""
        self._text("stop_reason", end.reason)
        for name, text in end.files.items():
            path = Path(text)
            is_shown = name != "report" and path.is_file()
            if is_shown:
                program = path.read_text("utf-8", "replace")[:MAX_TEXT]
                self._text(name, "".join(f"    {line}\n" for line in program.splitlines()))
            else:
                self._text(name, f"    {path}")
        self._writer.close()

    def _text(self, name: str, text: str) -> None:
        self._writer.add_text(name, text, 0)
