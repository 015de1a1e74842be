"""The progress of a run as events of a log in JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from costada.reports.json_log import is_on, log_event, log_message
from costada.reports.progress import Progress, RunHeading, progress_on
from costada.reports.summary import sum_by_role
from costada.reports.trace import ticket_of
from costada.store.history import RunHistory

if TYPE_CHECKING:
    from rich.console import Console

    from costada.nodes.trace_row import TraceRow
    from costada.values.search_result import Discovery

OF_A_STEP = (
    *("iteration", "frontier", "action", "models", "step_cost", "dollars_by_role", "spent"),
    *("objective", "best_objective", "events"),
)
"""Columns of a finished iteration that its event has."""


class LoggedEnd(Progress):
    """Logs only how the run ends, for a command that is quiet."""

    def begin(self, heading: RunHeading, rows: Sequence[TraceRow]) -> None:
        """Keep what the end needs."""
        self._heading = heading

    def end(self, result: Discovery) -> None:
        """Log why the run ended, and its totals."""
        if not is_on():
            return
        log_event(
            "end",
            stop_reason=result.stop_reason,
            iterations=result.iterations,
            spent=result.spent,
            remaining=result.remaining,
            in_doubt=result.in_doubt,
            dollars_by_role=self._dollars_by_role(),
            best_objective=result.best_objective,
            best_score=result.best_score,
            last_failure=result.last_failure,
        )

    def _dollars_by_role(self) -> dict[str, float]:
        """Dollars of all requests of the run, also of unfinished iterations."""
        if self._heading.database is None:
            return {}
        with RunHistory.of(self._heading.database) as history:
            used = sum_by_role(history.used(history.last_run()))
        return {role: float(each.dollars) for role, each in used.items()}


class LoggedProgress(LoggedEnd):
    """Logs the begin, each iteration, notices and the end."""

    def begin(self, heading: RunHeading, rows: Sequence[TraceRow]) -> None:
        """Log the heading."""
        super().begin(heading, rows)
        log_event(
            "begin",
            heading.title,
            budget=heading.budget,
            max_iterations=heading.max_iterations,
            parallel=heading.parallel,
            sandbox=heading.sandbox,
            done_before=rows[-1]["iteration"] if rows else 0,
        )

    def step(self, row: TraceRow) -> None:
        """Log the iteration."""
        facts: dict[str, Any] = {name: row.get(name) for name in OF_A_STEP if name in row}
        log_event("iteration", ticket=ticket_of(row), **facts)

    def notice(self, text: str) -> None:
        """Log the notice."""
        log_message(text, "info")


def logged_or_shown(console: Console, *, is_quiet: bool) -> Progress:
    """The progress of a command: events if it logs in JSON, else what the console can show."""
    if is_on():
        return LoggedEnd() if is_quiet else LoggedProgress()
    return progress_on(console, is_quiet=is_quiet)
