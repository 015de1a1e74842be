"""The panel of a running search: budget, incumbent, current step, last events."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import chain
from math import ceil
from time import monotonic
from typing import TYPE_CHECKING

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from costada.reports.formats import counted
from costada.reports.trace import event_words

if TYPE_CHECKING:
    from costada.nodes.end_step import TraceRow


@dataclass(frozen=True, slots=True)
class Outlook:
    """What is left of a run: iterations, and the seconds they will take."""

    iterations: int
    seconds: float


def outlook(
    budget: float,
    spent: float,
    iteration: int,
    max_iterations: int,
    seconds_per_iteration: float,
) -> Outlook:
    """Return what is left of a run at the mean step cost and the mean pace so far.

    Args:
        budget: Dollars the run may spend (B).
        spent: Dollars it has spent (C_t).
        iteration: Iterations finished (t), at least 1.
        max_iterations: Iterations after which it ends (T_max).
        seconds_per_iteration: How long one took on average.
    """
    mean_cost, left = spent / iteration, max_iterations - iteration
    if mean_cost > 0:
        left = min(left, ceil((budget - spent) / mean_cost))
    left = max(0, left)
    return Outlook(left, left * seconds_per_iteration)


EVENTS_SHOWN = 5
PANEL_WIDTH = 88
WIDTH_OF_TWO = 78


class Dashboard:
    """A rich renderable that is told of each iteration and draws itself anew when asked."""

    def __init__(self) -> None:
        self.notice = ""
        self.sandbox = ""
        self._title = "costada"
        self._budget = 0.0
        self._max_iterations = 0
        self._row: TraceRow | None = None
        self._events: deque[str] = deque(maxlen=EVENTS_SHOWN)
        self._began = self._step_began = monotonic()
        self._ended: float | None = None
        self._before = 0

    def begin(
        self, title: str, budget: float, max_iterations: int, rows: Sequence[TraceRow]
    ) -> None:
        """Note the run's heading and the iterations finished before."""
        self._title, self._budget, self._max_iterations = title, budget, max_iterations
        for row in rows:
            self.step(row)
        self._before = rows[-1]["iteration"] if rows else 0

    def step(self, row: TraceRow) -> None:
        """Note a finished iteration."""
        previous = self._row["best_objective"] if self._row else None
        self._row = row
        self._step_began = monotonic()
        if row["global_gain"] > 0:
            before = "" if previous is None else f"from {previous:.6g} "
            self._events.append(
                f"t={row['iteration']}  best {before}to {number(row['best_objective'])}"
            )
        self._events.extend(
            f"t={row['iteration']}  {event_words(event)}" for event in row["events"]
        )
        if row["failure"]:
            self._events.append(f"t={row['iteration']}  failed: {row['failure'].splitlines()[0]}")

    def finish(self) -> None:
        """Stop the clock."""
        self._ended = monotonic()

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the panel as it stands now, with one fact a line where two find no room."""
        facts = _grid(self._facts(), num_beside=2 if options.max_width >= WIDTH_OF_TWO else 1)
        parts: list[RenderableType] = [self._budget_bar(), Text(), facts]
        if self._events:
            parts += [Text()]
            parts += [Text(line, style="dim", no_wrap=True) for line in self._events]
        if self.notice:
            parts += [Text(), Text(self.notice, style="bold yellow")]
        foot = Text(f"sandbox {self.sandbox}", style="dim") if self.sandbox else None
        yield Panel(
            Group(*parts),
            title=Text(self._title),
            title_align="left",
            subtitle=foot,
            subtitle_align="left",
            width=PANEL_WIDTH,
        )

    def _budget_bar(self) -> RenderableType:
        spent = self._row["spent"] if self._row else 0.0
        line = Table.grid(padding=(0, 1))
        bar = ProgressBar(total=self._budget or 1.0, completed=spent, width=44)
        line.add_row("budget", bar, f"${spent:.4f} of ${self._budget:g}")
        return line

    def _facts(self) -> list[tuple[str, str]]:
        now = self._ended or monotonic()
        waiting = f"{_clock(now - self._began)} ({_clock(now - self._step_began)} in this step)"
        row = self._row
        if row is None:
            return [("iteration", f"1 of at most {self._max_iterations}"), ("time", waiting)]
        score = f"{number(row['best_objective'])} (score {row['best_score']:.4f})"
        action = f"{row['action']} (intensity {row['intensity']:.2f})"
        facts = [("best", score), ("last step", f"${row['step_cost']:.4f}")]
        facts += [("frontier", str(row["frontier"])), ("mode", action)]
        done = f"{row['iteration']} of at most {self._max_iterations}"
        facts += [("iterations", done), ("time", waiting)]
        left = self._outlook(row)
        if left:
            more = f"about {counted(left.iterations, 'iteration')}"
            facts += [("left", more), ("end", self._end(left))]
        return facts

    def _outlook(self, row: TraceRow) -> Outlook | None:
        """Return what is left of the run, once an iteration has told how fast it goes."""
        num_here = row["iteration"] - self._before
        if self._ended or num_here < 1:
            return None
        pace = (self._step_began - self._began) / num_here
        return outlook(self._budget, row["spent"], row["iteration"], self._max_iterations, pace)

    def _end(self, left: Outlook) -> str:
        """Return when the run will end, by the clock; with the date if that is days away."""
        wait = timedelta(seconds=left.seconds - (monotonic() - self._step_began))
        end = datetime.now() + max(wait, timedelta())
        return f"about {end:%Y-%m-%d %H:%M}" if wait.days else f"about {end:%H:%M}"


def _grid(facts: Sequence[tuple[str, str]], num_beside: int) -> Table:
    grid = Table.grid(padding=(0, 2))
    for _ in range(num_beside):
        grid.add_column(style="dim", min_width=12)
        grid.add_column(min_width=22)
    for first in range(0, len(facts), num_beside):
        grid.add_row(*chain.from_iterable(facts[first : first + num_beside]))
    return grid


def number(objective: float | None) -> str:
    """Return an objective as shown to a person."""
    return "none" if objective is None else f"{objective:.6g}"


def _clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes}:{rest:02}"
