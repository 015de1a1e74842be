"""What a person sees while a sweep goes on."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from time import monotonic
from typing import Protocol, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from costada.runs.output import printable
from costada.runs.sweep.sweep import Status, SweepRun

STANDARD_ERROR = 2
BAR_WIDTH = 20


class SweepProgress(Protocol):
    """Follows one sweep from begin to end, as a context manager."""

    def __enter__(self) -> Self:
        """Take over the terminal, if there is one."""
        ...

    def __exit__(self, *_: object) -> None:
        """Give the terminal back."""
        ...

    def begin(self, headline: str) -> None:
        """Learn how many runs there are and what they may cost."""
        ...

    def show(self, runs: Sequence[SweepRun]) -> None:
        """Learn how far all runs have come, about once a second."""
        ...

    def end(self, runs: Sequence[SweepRun], run: SweepRun) -> None:
        """Learn that a run has ended."""
        ...

    def notice(self, text: str) -> None:
        """Learn of something else; may be called inside a signal handler."""
        ...


class SilentSweep:
    """Shows nothing."""

    def __enter__(self) -> Self:
        """Do nothing."""
        return self

    def __exit__(self, *_: object) -> None:
        """Do nothing."""

    def begin(self, headline: str) -> None:
        """Do nothing."""

    def show(self, runs: Sequence[SweepRun]) -> None:
        """Do nothing."""

    def end(self, runs: Sequence[SweepRun], run: SweepRun) -> None:
        """Do nothing."""

    def notice(self, text: str) -> None:
        """Do nothing."""


class SweepLines(SilentSweep):
    """Writes one line per ended run, for logs and pipes."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def begin(self, headline: str) -> None:
        """Write the headline."""
        self._write(headline)

    def end(self, runs: Sequence[SweepRun], run: SweepRun) -> None:
        """Write how the run ended."""
        self._write(end_line(runs, run))

    def notice(self, text: str) -> None:
        """Write the notice to standard error, past buffers that a signal may have caught busy."""
        os.write(STANDARD_ERROR, f"{printable(text)}\n".encode())

    def _write(self, text: str) -> None:
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)


class SweepTable(SweepLines):
    """Keeps a table of the running runs below the lines of the ended ones."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._live = Live(console=console, auto_refresh=False, transient=True)
        self._began = monotonic()
        self._notice = ""

    def __enter__(self) -> Self:
        """Show the table."""
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Take the table away; the lines stay."""
        self._live.stop()

    def show(self, runs: Sequence[SweepRun]) -> None:
        """Draw the table anew."""
        self._live.update(sweep_table(runs, monotonic() - self._began, self._notice), refresh=True)

    def notice(self, text: str) -> None:
        """Show the notice until the end."""
        self._notice = text


def sweep_progress_on(console: Console, *, is_quiet: bool) -> SweepProgress:
    """Return a table for a terminal, lines for anything else, nothing if quiet."""
    if is_quiet:
        return SilentSweep()
    return SweepTable(console) if console.is_terminal else SweepLines(console)


def sweep_table(runs: Sequence[SweepRun], seconds: float, notice: str = "") -> RenderableType:
    """Return the running runs as a table, and all of them as numbers.

    Args:
        runs: Every run of the sweep.
        seconds: Time since this sweep began.
        notice: What else the user should know.
    """
    table = Table(box=None, padding=(0, 1), pad_edge=False, header_style="dim")
    for name in ("running", "iteration", "spent", "", "best score", "time"):
        table.add_column(name, no_wrap=True, justify="left" if name == "running" else "right")
    for run in runs:
        if run.status is Status.RUNNING:
            table.add_row(*_cells(run))
    parts: list[RenderableType] = [Text(), table, Text(), Text(_totals(runs, seconds))]
    if notice:
        parts.append(Text(notice, style="bold yellow"))
    return Group(*parts)


def end_line(runs: Sequence[SweepRun], run: SweepRun) -> str:
    """Return in one line how a run ended, and how many have."""
    num_ended = sum(each.status in (Status.FINISHED, Status.FAILED) for each in runs)
    parts = [f"[{num_ended}/{len(runs)}] {run.name}: {run.status}"]
    if run.step:
        parts += [
            f"score {run.step.best_score:.6g}",
            f"${run.spent:.4f} of ${run.config.budget:g}",
            f"iteration {run.step.iteration}",
        ]
    parts.append(clock(run.seconds))
    return "  ".join([*parts, *([run.error] if run.error else [])])


def clock(seconds: float) -> str:
    """Return a duration in hours, minutes and seconds."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def _cells(run: SweepRun) -> tuple[RenderableType, ...]:
    return (
        Text(run.name),
        f"{run.step.iteration if run.step else 0}/{run.config.max_iterations}",
        ProgressBar(total=run.config.budget, completed=run.spent, width=BAR_WIDTH),
        f"${run.spent:.4f} of ${run.config.budget:g}",
        f"{run.step.best_score:.6g}" if run.step else "",
        clock(run.seconds),
    )


def _totals(runs: Sequence[SweepRun], seconds: float) -> str:
    counts = Counter(run.status for run in runs)
    parts = [f"{counts[status]} {status}" for status in Status if counts[status]]
    spent = sum(run.spent for run in runs)
    budget = sum(run.config.budget for run in runs)
    return f"{', '.join(parts)}  spent ${spent:.4f}, budgets ${budget:g}  {clock(seconds)}"
