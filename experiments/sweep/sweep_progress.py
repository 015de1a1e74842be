"""The progress and the result of a sweep, for a terminal and as JSON."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from math import inf
from pathlib import Path
from time import monotonic
from typing import Any, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from costada.experiments.sweep.sweep import Status, SweepRun
from costada.reports.formats import budget_text, clock, counted
from costada.reports.json_log import is_on, log_event, log_message
from costada.reports.progress import Lines, SilentProgress
from costada.runs.interruption import ExitCode

PAID_OUT = (Status.FINISHED, Status.CUT_SHORT, Status.SKIPPED)
"""What a sweep ends with where nothing failed: its runs are done, or its purse is empty."""
ENDED = (*PAID_OUT, Status.FAILED)
BAR_WIDTH = 20


class SweepProgress(SilentProgress):
    """Base class of progress displays; shows nothing."""

    def begin(self, headline: str) -> None:
        """Show the number of runs and their maximum cost."""

    def show(self, runs: Sequence[SweepRun]) -> None:
        """Show the state of all runs, about once a second."""

    def end(self, runs: Sequence[SweepRun], run: SweepRun) -> None:
        """Show that a run has ended."""

    def end_all(self, runs: Sequence[SweepRun]) -> None:
        """Note that the sweep has ended."""


class LoggedSweep(SweepProgress):
    """Logs events in JSON; of a quiet command only the end."""

    def __init__(self, *, is_quiet: bool) -> None:
        self._is_quiet = is_quiet

    def begin(self, headline: str) -> None:
        """Log the headline."""
        if not self._is_quiet:
            log_event("begin", headline)

    def end(self, runs: Sequence[SweepRun], run: SweepRun) -> None:
        """Log how the run ended."""
        if run.status in (Status.QUEUED, Status.RUNNING) or self._is_quiet:
            return
        facts = run_facts(run)
        is_bad = run.status is Status.FAILED or bool(run.warning)
        log_event("run_ended", level="warning" if is_bad else "info", run=run.name, **facts)

    def end_all(self, runs: Sequence[SweepRun]) -> None:
        """Log how many runs ended in which way, and what all have spent."""
        counts = Counter(run.status.value for run in runs)
        log_event("end", runs=len(runs), statuses=counts, spent=sum(run.spent for run in runs))

    def notice(self, text: str) -> None:
        """Log the notice."""
        if not self._is_quiet:
            log_message(text, "info")


class SweepLines(Lines, SweepProgress):
    """Writes one line per ended run."""

    def begin(self, headline: str) -> None:
        """Write the headline."""
        self.write(headline)

    def end(self, runs: Sequence[SweepRun], run: SweepRun) -> None:
        """Write how the run ended, and how many have; nothing if its job still runs."""
        if run.status in (Status.QUEUED, Status.RUNNING):
            return
        num_ended = sum(each.status in ENDED for each in runs)
        parts = [f"[{num_ended}/{len(runs)}] {run.name}: {run.status}"]
        if run.step:
            parts.append(f"score {run.step.best_score:.6g}")
            parts.append(f"${run.spent:.4f} of {budget_text(run.config.budget)}")
            parts.append(f"iteration {run.step.iteration}")
        parts.append(clock(run.seconds))
        self.write("  ".join([*parts, *(text for text in (run.error, run.warning) if text)]))


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
        """Remove the table; the lines stay."""
        self._live.stop()

    def show(self, runs: Sequence[SweepRun]) -> None:
        """Redraw the table."""
        self._live.update(sweep_table(runs, monotonic() - self._began, self._notice), refresh=True)

    def notice(self, text: str) -> None:
        """Show the notice until the end."""
        self._notice = text


def sweep_progress_on(console: Console, *, is_quiet: bool) -> SweepProgress:
    """A log in JSON if that is asked for, else a table for a terminal, lines or, quiet, nothing."""
    if is_on():
        return LoggedSweep(is_quiet=is_quiet)
    if is_quiet:
        return SweepProgress()
    return SweepTable(console) if console.is_terminal else SweepLines(console)


def sweep_table(runs: Sequence[SweepRun], seconds: float, notice: str = "") -> RenderableType:
    """The running runs as a table with the totals of all runs, `seconds` after the sweep began.

    Where the terminal is narrow, names are folded and bars are shorter; numbers stay whole.
    """
    table = Table(box=None, padding=(0, 1), pad_edge=False, header_style="dim")
    table.add_column("running", overflow="fold")
    table.add_column("iteration", no_wrap=True, justify="right")
    table.add_column("", max_width=BAR_WIDTH)
    for name in ("spent", "best score", "time"):
        table.add_column(name, no_wrap=True, justify="right")
    for run in runs:
        if run.status is Status.RUNNING:
            table.add_row(
                Text(run.name),
                f"{run.step.iteration if run.step else 0}/{run.config.max_iterations}",
                ProgressBar(total=run.config.budget, completed=run.spent),
                f"${run.spent:.4f} of {budget_text(run.config.budget)}",
                f"{run.step.best_score:.6g}" if run.step else "",
                clock(run.seconds),
            )
    totals = f"{_totals(runs)}  {clock(seconds)}"
    parts: list[RenderableType] = [Text(), table, Text(), Text(totals)]
    if notice:
        parts.append(Text(notice, style="bold yellow"))
    return Group(*parts)


def status_text(runs: Sequence[SweepRun]) -> str:
    """All runs of a sweep as a table, with the totals; errors of failed ones come last."""
    rows = [("run", "status", "iteration", "spent", "best score")]
    rows += [
        (
            run.name,
            run.status.value,
            f"{run.step.iteration if run.step else 0}/{run.config.max_iterations}",
            f"${run.spent:.4f} of ${run.config.budget:g}",
            f"{run.step.best_score:.6g}" if run.step else "",
        )
        for run in runs
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
    errors = [f"{run.name}: {run.error}" for run in runs if run.error]
    return "\n".join([*lines, _totals(runs), *errors, *_smaller_budgets(runs)])


def _smaller_budgets(runs: Sequence[SweepRun]) -> list[str]:
    """Lines that name the runs that began with less than their budget; none without such a run."""
    given = [
        f"  {run.name}: {budget_text(run.budget_at_start)} of {budget_text(run.config.budget)}"
        for run in runs
        if run.budget_at_start is not None
    ]
    if not given:
        return []
    return [
        f"Began with less than --budget, as the purse had no more: {len(given)}",
        *given,
        "They decided by that smaller budget: `costada compare` never averages them with the"
        " others, also after they are resumed.",
    ]


def _totals(runs: Sequence[SweepRun]) -> str:
    counts = Counter(run.status for run in runs)
    states = ", ".join(f"{counts[status]} {status}" for status in Status if counts[status])
    spent, budget = sum(run.spent for run in runs), sum(run.config.budget for run in runs)
    return f"{states}  spent ${spent:.4f}, budgets {budget_text(budget)}"


def largest_bill(runs: Sequence[SweepRun], left: float = inf) -> float:
    """The dollars that unfinished runs may still spend within their budgets.

    `left` is what the purse that they share has left.
    """
    unfinished = (run for run in runs if run.status is not Status.FINISHED)
    return min(left, sum(max(0.0, run.config.budget - run.spent) for run in unfinished))


def headline(runs: Sequence[SweepRun], num_jobs: int, left: float = inf) -> str:
    """How many runs there are and what they may cost; `left` as for `largest_bill`."""
    unfinished = [run for run in runs if run.status is not Status.FINISHED]
    if not unfinished:
        return f"{counted(len(runs), 'run')}, all finished before: nothing is left to spend."
    parts = [f"{counted(len(runs), 'run')}, at most {num_jobs} at once"]
    if len(unfinished) < len(runs):
        parts.append(f"{len(runs) - len(unfinished)} finished before")
    if num_begun := sum(run.has_begun for run in unfinished):
        parts.append(f"{num_begun} begun before")
    crosses = any(run.config.budget_policy == "crossing" for run in runs)
    bill = largest_bill(runs, left)
    text = f"{', '.join(parts)}. Largest bill from here on: {budget_text(bill)}"
    if bill == left:
        limit = "the last iterations may exceed it" if crosses else "no run exceeds it"
        return f"{text} in the purse; {limit}."
    budgets = Counter(run.config.budget for run in unfinished)
    terms = " + ".join(f"{count} x {budget_text(each)}" for each, count in sorted(budgets.items()))
    sources = terms
    if spent := sum(run.spent for run in unfinished):
        sources += f" - ${spent:.4f} spent"
    limit = "a run's last iteration may exceed its" if crosses else "no run exceeds its"
    return f"{text} = {sources}; {limit} budget."


def sweep_text(runs: Sequence[SweepRun], out: Path, seconds: float) -> str:
    """The result in a few lines; failures come last."""
    finished = [run for run in runs if run.status is Status.FINISHED]
    unpaid = Counter(run.status for run in runs if run.status in PAID_OUT[1:])
    spent = sum(run.spent for run in runs)
    lines = [
        f"Finished {len(finished)} of {counted(len(runs), 'run')}; all together spent"
        f" ${spent:.4f} ({clock(seconds)} in this sweep).",
        f"  runs            {out}",
    ]
    if num_jobs := sum(run.status in (Status.QUEUED, Status.RUNNING) for run in runs):
        lines.append(f"{counted(num_jobs, 'job')} queued or running: --status shows all runs.")
    elif len(finished) + unpaid.total() < len(runs):
        lines.append("Repeat the command to resume.")
    if warned := [run for run in runs if run.warning]:
        lines.append(f"With warnings: {len(warned)}")
        lines += [f"  {run.name}: {run.warning}" for run in warned]
    for status, count in sorted(unpaid.items()):
        lines.append(f"{status.capitalize()}, as too little is left in the purse: {count}")
    if unpaid:
        lines.append("Repeat the command with a higher --total to run them.")
    lines += _smaller_budgets(runs)
    failures = [run for run in runs if run.status is Status.FAILED]
    if failures:
        lines.append(f"Failed: {len(failures)}")
        lines += [f"  {run.name}: {run.error}" for run in failures]
        if any(run.folder.log.is_file() for run in failures):
            lines.append("Their full output is in the .log files beside their folders.")
    return "\n".join(lines)


def sweep_json(runs: Sequence[SweepRun]) -> str:
    """The runs as one JSON array, a run per line; dollars are numbers."""
    lines = ",\n".join(f"  {json.dumps(run_facts(run))}" for run in runs)
    return f"[\n{lines}\n]"


def run_facts(run: SweepRun) -> dict[str, Any]:
    """A run in types of JSON."""
    step = run.step
    return {
        "problem": run.config.problem,
        "method": run.config.method,
        "model": run.config.model,
        "seed": run.config.seed,
        "budget": run.config.budget,
        "budget_at_start": run.budget_at_start,
        "status": run.status,
        "iterations": step.iteration if step else 0,
        "spent": run.spent,
        "best_score": step.best_score if step else None,
        "best_objective": step.best_objective if step else None,
        "error": run.error or None,
        "warning": run.warning or None,
        "folder": str(run.folder.path),
    }


def exit_code(runs: Sequence[SweepRun]) -> ExitCode:
    """The command's exit code: any failure counts more than an interruption."""
    statuses = {run.status for run in runs}
    if Status.FAILED in statuses:
        return ExitCode.FAILED
    return ExitCode.FINISHED if statuses <= {*PAID_OUT} else ExitCode.INTERRUPTED
