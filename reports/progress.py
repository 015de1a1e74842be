"""What a person sees while a run goes on."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self

from rich.console import Console
from rich.live import Live

from costada.reports.dashboard import Dashboard, number
from costada.reports.formats import counted
from costada.reports.terminal import printable

if TYPE_CHECKING:
    from costada.nodes.end_step import TraceRow


STANDARD_ERROR = 2


@dataclass(frozen=True, slots=True)
class RunHeading:
    """What is known of a run before its first iteration; `budget` is dollars.

    `sandbox` is empty if the problem's own evaluate runs the candidates.
    """

    title: str
    budget: float
    max_iterations: int
    sandbox: str = ""


class Progress(Protocol):
    """Follows one run from begin to end, as a context manager."""

    def __enter__(self) -> Self:
        """Take over the terminal, if there is one."""
        ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Give the terminal back."""
        ...

    def begin(self, heading: RunHeading, rows: Sequence[TraceRow]) -> None:
        """Learn what runs, and the iterations finished before (none for a new run)."""
        ...

    def step(self, row: TraceRow) -> None:
        """Learn of a finished iteration."""
        ...

    def notice(self, text: str) -> None:
        """Learn of something outside the iterations; may be called inside a signal handler."""
        ...


class SilentProgress:
    """Shows nothing."""

    def __enter__(self) -> Self:
        """Do nothing."""
        return self

    def __exit__(self, *_: object) -> None:
        """Do nothing."""

    def begin(self, heading: RunHeading, rows: Sequence[TraceRow]) -> None:
        """Do nothing."""

    def step(self, row: TraceRow) -> None:
        """Do nothing."""

    def notice(self, text: str) -> None:
        """Do nothing."""


class LineProgress(SilentProgress):
    """Writes one line per iteration, for logs and pipes."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def begin(self, heading: RunHeading, rows: Sequence[TraceRow]) -> None:
        """Write the heading."""
        done = f", {counted(len(rows), 'iteration')} done before" if rows else ""
        sandbox = f", sandbox {heading.sandbox}" if heading.sandbox else ""
        self._write(f"{heading.title}: budget ${heading.budget:g}{sandbox}{done}")

    def step(self, row: TraceRow) -> None:
        """Write the iteration's line."""
        self._write(step_line(row))

    def notice(self, text: str) -> None:
        """Write the notice to standard error, past buffers that a signal may have caught busy."""
        os.write(STANDARD_ERROR, f"{printable(text)}\n".encode())

    def _write(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)


class LiveProgress:
    """Keeps one panel up to date in a terminal."""

    def __init__(self, console: Console) -> None:
        self._dashboard = Dashboard()
        self._live = Live(self._dashboard, console=console, refresh_per_second=4)

    def __enter__(self) -> Self:
        """Show the panel."""
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Leave the last picture of the panel standing."""
        self._dashboard.finish()
        self._live.stop()

    def begin(self, heading: RunHeading, rows: Sequence[TraceRow]) -> None:
        """Show the heading and where the run stands."""
        self._dashboard.sandbox = heading.sandbox
        self._dashboard.begin(heading.title, heading.budget, heading.max_iterations, rows)

    def step(self, row: TraceRow) -> None:
        """Show the iteration."""
        self._dashboard.step(row)

    def notice(self, text: str) -> None:
        """Show the notice until the end."""
        self._dashboard.notice = text


def progress_on(console: Console, *, is_quiet: bool) -> Progress:
    """Return a panel for a terminal, lines for anything else, nothing if quiet."""
    if is_quiet:
        return SilentProgress()
    return LiveProgress(console) if console.is_terminal else LineProgress(console)


def step_line(row: TraceRow) -> str:
    """Return an iteration in one line of text."""
    parts = [
        f"t={row['iteration']}",
        f"frontier {row['frontier']}",
        row["action"],
        f"step ${row['step_cost']:.4f}",
        f"spent ${row['spent']:.4f}",
        f"objective {number(row['objective'])}",
        f"best {number(row['best_objective'])}",
        *row["events"],
    ]
    return "  ".join(parts)
