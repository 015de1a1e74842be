"""The progress of a running search: a panel in a terminal, lines in a pipe, or nothing."""

from __future__ import annotations

import logging
import os
import sqlite3
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from itertools import chain
from math import ceil, inf
from time import monotonic, time
from typing import TYPE_CHECKING, Self

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from costada.reports.formats import budget_text, clock, counted, objective_text
from costada.reports.status import erase_status
from costada.reports.terminal import printable
from costada.reports.trace import event_meaning, event_words, failure_words, role_words
from costada.store.address import StorePlace, is_there
from costada.store.history import CacheUse, PastCall, RunHistory, UsedCalls
from costada.store.outage import outages
from costada.values.roles import JUDGING, ROLES

if TYPE_CHECKING:
    from rich.console import JustifyMethod

    from costada.nodes.trace_row import ModelRow, TraceRow
    from costada.values.search_result import Discovery

STANDARD_ERROR = 2
EVENTS_KEPT = 60
EVENTS_LEFT = 5
"""Events or steps that stay on the terminal when the run has ended."""

LOG = logging.getLogger("costada.runs")

CALLS_SHOWN = 8
POLL_SECONDS = 1.0
"""How often the panel looks for requests in flight."""

SUM_SECONDS = 5.0
"""How often it sums dollars, and what prompt caches have saved, of all requests of the run."""

FRAME = 4
"""Characters of the panel's frame in a line; it takes two lines as well."""

LABEL_WIDTH, VALUE_WIDTH = 10, 24
COLUMN_WIDTH, MAX_COLUMNS = 38, 4
"""Characters of a fact with its label, and how many facts stand side by side at most."""

STEPS_FROM = 116
"""Characters of a terminal from which the panel lists the last steps in place of events."""

MIN_GAUGE, MAX_GAUGE = 10, 120


@dataclass(frozen=True, slots=True)
class RunHeading:
    """A run before its first iteration; `budget` is dollars.

    `sandbox` is empty if the problem's own evaluate runs the candidates. `parallel` is the most
    iterations in flight at the same time; `database` is the run file, which says what is in flight,
    `None` if that is not shown.
    """

    title: str
    budget: float
    max_iterations: int
    sandbox: str = ""
    parallel: int = 1
    database: StorePlace | None = None


class SilentProgress:
    """Shows nothing; the base of every progress."""

    def __enter__(self) -> Self:
        """Take over the terminal, if there is one."""
        erase_status()
        return self

    def __exit__(self, *_: object) -> None:
        """Release the terminal."""

    def notice(self, text: str) -> None:
        """Show something outside the steps; may be called inside a signal handler."""


class Lines(SilentProgress):
    """Writes lines, for logs and pipes."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def write(self, text: str) -> None:
        """Write one line."""
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)

    def notice(self, text: str) -> None:
        """Write to standard error, past buffers that a signal may have interrupted."""
        os.write(STANDARD_ERROR, f"{printable(text)}\n".encode())


class Progress(SilentProgress):
    """Shows nothing of the run that it follows."""

    def begin(self, heading: RunHeading, rows: Sequence[TraceRow]) -> None:
        """Begin with a run and the last of the iterations that it finished before."""

    def step(self, row: TraceRow) -> None:
        """Add a finished iteration."""

    def end(self, result: Discovery) -> None:
        """Note how the run ended; not called if it failed with an error."""


class LoggedNotices(Progress):
    """Logs notices as warnings of `costada.runs`, for programs that run a search."""

    def notice(self, text: str) -> None:
        """Log the notice."""
        LOG.warning(text)


class LineProgress(Lines, Progress):
    """Writes one line per iteration, and what an event means below the first of its kind."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._explained: set[str] = set()

    def begin(self, heading: RunHeading, rows: Sequence[TraceRow]) -> None:
        """Write the heading."""
        done = f", {counted(rows[-1]['iteration'], 'iteration')} done before" if rows else ""
        sandbox = f", sandbox {heading.sandbox}" if heading.sandbox else ""
        self.write(f"{heading.title}: budget {budget_text(heading.budget)}{sandbox}{done}")

    def step(self, row: TraceRow) -> None:
        """Write the iteration's line."""
        parts = [
            f"t={row['iteration']}",
            f"frontier {row['frontier']}",
            row["action"],
            *([f"model {', then '.join(models)}"] if (models := row.get("models")) else []),
            f"step ${row['step_cost']:.4f}{_by_role(row)}",
            f"spent ${row['spent']:.4f}",
            f"objective {objective_text(row['objective'])}",
            f"best {objective_text(row['best_objective'])}",
            *row["events"],
        ]
        self.write("  ".join(parts))
        for event in row["events"]:
            if meaning := first_meaning(event, self._explained):
                self.write(f"  {event.partition(':')[0]}: {meaning}")


class LiveProgress(Progress):
    """Keeps one panel up to date: budget, incumbent, requests in flight, last events."""

    def __init__(self, console: Console) -> None:
        # rich draws this object from a thread of its own, so what it shows is read while steps are
        # added.
        self._live = Live(self, console=console, refresh_per_second=4)
        self._notice = ""
        self._heading = RunHeading("costada", 0.0, 0)
        self._row: TraceRow | None = None
        self._events: deque[str] = deque(maxlen=EVENTS_KEPT)
        self._steps: deque[tuple[TraceRow, str]] = deque(maxlen=EVENTS_KEPT)
        self._explained: set[str] = set()
        self._began = self._step_began = monotonic()
        self._ended: float | None = None
        self._before = 0
        self._in_flight: Sequence[PastCall] = ()
        self._looked = -inf
        self._summed = -inf
        self._cached = ""
        self._by_role: Mapping[str, Decimal] = {}

    def __enter__(self) -> Self:
        """Show the panel."""
        super().__enter__()
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop the clock; the last state of the panel stays visible."""
        self._ended = monotonic()
        self._live.stop()

    def begin(self, heading: RunHeading, rows: Sequence[TraceRow]) -> None:
        """Show the heading and where the run stands."""
        self._heading = heading
        for row in rows:
            self.step(row)
        self._before = rows[-1]["iteration"] if rows else 0

    def step(self, row: TraceRow) -> None:
        """Show the iteration."""
        previous = self._row["best_objective"] if self._row else None
        self._row = row
        self._step_began = monotonic()
        events = []
        for event in row["events"]:
            meaning = first_meaning(event, self._explained)
            events.append(event_words(event) + (f" ({meaning})" if meaning else ""))
        self._steps.append((row, ", ".join(events)))
        if row["global_gain"] > 0:
            before = "" if previous is None else f"from {previous:.6g} "
            events.insert(0, f"best {before}to {objective_text(row['best_objective'])}")
        if failure := failure_words(row):
            events.append(failure)
        self._events.extend(f"t={row['iteration']}  {event}" for event in events)

    def notice(self, text: str) -> None:
        """Show the notice until the end."""
        self._notice = text

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the panel as it stands now; it fits on the terminal, whose width it uses."""
        inner = options.max_width - FRAME
        columns = min(MAX_COLUMNS, max(1, inner // COLUMN_WIDTH))
        self._look()
        spent, budget = self._row["spent"] if self._row else 0.0, self._heading.budget
        bar = Table.grid(padding=(0, 1))
        money = f"${spent:.4f} of {budget_text(budget)}"
        width = min(MAX_GAUGE, max(MIN_GAUGE, inner - LABEL_WIDTH - len(money) - 2))
        bar.add_row("budget", ProgressBar(total=budget or 1.0, completed=spent, width=width), money)
        facts = self._facts()
        grid = _columns(columns)
        for first in range(0, len(facts), columns):
            grid.add_row(*chain.from_iterable(facts[first : first + columns]))
        parts: list[RenderableType] = [bar, Text(), grid]
        if self._row and (models := self._row.get("router")):
            parts += [Text(), models_grid(models, is_narrow=columns == 1)]
        words = "\n".join(map(str, outages())) or self._notice
        notice = [Text(), Text(words, style="bold yellow")] if words else []

        def room(*shown: RenderableType) -> int:
            """Lines that the terminal has left below some parts."""
            lines = console.render_lines(Group(*shown), options.update(width=inner), pad=False)
            # The cursor stands below the panel, whose frame takes two lines.
            return console.height - 1 - 2 - len(lines)

        flight = self._flight(columns)
        if room(*parts, *flight, *notice) < 0:
            # Only the number of requests is left, without the list.
            flight = flight[:-1]
        parts += flight
        num_lines = room(*parts, *notice) - 1
        if self._ended:
            num_lines = min(num_lines, EVENTS_LEFT)
        if inner >= STEPS_FROM - FRAME and self._steps and num_lines > 1:
            parts += [Text(), self._last_steps(num_lines - 1)]
        elif self._events and num_lines > 0:
            parts += [Text()]
            lines = list(self._events)[-num_lines:]
            parts += [Text(line, style="dim", no_wrap=True, overflow="ellipsis") for line in lines]
        sandbox = self._heading.sandbox
        yield Panel(
            Group(*parts, *notice),
            title=Text(self._heading.title),
            title_align="left",
            subtitle=Text(f"sandbox {sandbox}", style="dim") if sandbox else None,
            subtitle_align="left",
        )

    def _last_steps(self, number: int) -> Table:
        """The last steps, one in a line."""
        has_models = any(row.get("models") for row, _ in self._steps)
        grid = Table.grid(padding=(0, 2), expand=True)
        headings = ("t", "frontier", "action", "model", "step", "objective", "best", "")
        for heading in headings:
            if heading != "model" or has_models:
                is_number = heading in ("t", "frontier", "step", "objective", "best")
                grid.add_column(
                    Text(heading, style="dim"),
                    justify="right" if is_number else "left",
                    no_wrap=True,
                    overflow="ellipsis",
                    ratio=None if heading else 1,
                )
        grid.show_header = True
        for row, events in list(self._steps)[-number:]:
            style = "bold green" if row["global_gain"] > 0 else ""
            grid.add_row(
                str(row["iteration"]),
                str(row["frontier"]),
                row["action"],
                *([Text(", then ".join(row.get("models", [])))] if has_models else []),
                f"${row['step_cost']:.4f}",
                objective_text(row["objective"]),
                Text(objective_text(row["best_objective"]), style=style),
                Text(", ".join(filter(None, (events, failure_words(row)))), style="dim"),
            )
        return grid

    def _look(self) -> None:
        """Read the requests in flight and, less often, what roles and prompt caches have done."""
        database, now = self._heading.database, monotonic()
        if database is None or self._ended or now - self._looked <= POLL_SECONDS:
            return
        self._looked = now
        # The file may be busy, or not there yet: what was known is shown once more.
        with suppress(ValueError, OSError, sqlite3.Error):
            if not is_there(database):
                return
            with RunHistory.of(database) as history:
                run_id = history.last_run()
                self._in_flight = history.open_calls(run_id)
                if now - self._summed > SUM_SECONDS:
                    self._summed = now
                    self._cached = cache_words(history.cache_use(run_id))
                    self._by_role = judged_by_role(history.used(run_id))

    def _flight(self, columns: int) -> list[RenderableType]:
        """The requests in flight, in as many lines however many there are."""
        heading = self._heading
        if heading.database is None or self._ended:
            return []
        calls = sorted(self._in_flight, key=lambda call: call.facts["ended_at"])
        most = sum((call.bound for call in calls), Decimal(0))
        words = f"{counted(len(calls), 'request')}, at most ${most:.4f}" if calls else "nothing"
        grid = _columns(columns, label_style="")
        cells = [(_purpose(call), _waiting(call)) for call in calls[:CALLS_SHOWN]]
        if len(calls) > CALLS_SHOWN:
            cells[-1] = ("", f"and {len(calls) - CALLS_SHOWN + 1} more")
        room = ceil(min(heading.parallel, CALLS_SHOWN) / columns) * columns
        cells += [("", "")] * (room - len(cells))
        for first in range(0, len(cells), columns):
            grid.add_row(*chain.from_iterable(cells[first : first + columns]))
        return [Text(), Text.assemble(("in flight  ", "dim"), words), grid]

    def _facts(self) -> list[tuple[str, str]]:
        now = self._ended or monotonic()
        since = clock(now - self._step_began)
        is_alone = self._heading.parallel == 1
        place = f"{since} in this step" if is_alone else f"last step {since} ago"
        total = clock(now - self._began)
        waiting = f"{total} ({place})"
        row, most = self._row, self._heading.max_iterations
        if row is None:
            time = waiting if is_alone else total  # there is no last step yet
            return [("iteration", f"1 of at most {most}"), ("time", time)]
        facts = [
            ("best", f"{objective_text(row['best_objective'])} (score {row['best_score']:.4f})"),
            ("last step", f"${row['step_cost']:.4f}{_by_role(row)}"),
            ("frontier", str(row["frontier"])),
            ("mode", f"{row['action']} (intensity {row['intensity']:.2f})"),
            ("iterations", f"{row['iteration']} of at most {most}"),
            ("time", waiting),
        ]
        facts += [(role, f"${dollars:.4f}") for role, dollars in self._by_role.items()]
        if self._cached:
            facts.append(("cached", self._cached))
        if models := row.get("models"):
            facts.insert(4, ("last model", ", then ".join(models)))
        num_here = row["iteration"] - self._before
        if not self._ended and num_here >= 1:
            left = remaining_iterations(self._heading.budget, row["spent"], row["iteration"], most)
            seconds = left * (self._step_began - self._began) / num_here
            wait = timedelta(seconds=max(0.0, seconds - (monotonic() - self._step_began)))
            end = datetime.now() + wait
            form = "%Y-%m-%d %H:%M" if wait.days else "%H:%M"
            facts.append(("left", f"about {counted(left, 'iteration')}"))
            facts.append(("end", f"about {end:{form}}"))
        return facts


def _columns(number: int, label_style: str = "dim") -> Table:
    """A table of facts, some side by side; none takes a second line unless it stands alone."""
    grid = Table.grid(padding=(0, 1))
    for _ in range(number):
        grid.add_column(style=label_style, min_width=LABEL_WIDTH, no_wrap=number > 1)
        grid.add_column(min_width=VALUE_WIDTH, no_wrap=number > 1, overflow="ellipsis")
    return grid


def first_meaning(event: str, explained: set[str]) -> str:
    """What an event means if that has not been said yet; it is then added to `explained`."""
    kind = event.partition(":")[0]
    if kind in explained:
        return ""
    explained.add(kind)
    return event_meaning(event)


def models_grid(models: Sequence[ModelRow], *, is_narrow: bool) -> Table:
    """Dollars, attempts and expected credit of each model; the latter only where it fits."""
    grid = Table.grid(padding=(0, 2))
    headings = ("models", "dollars", "tries", *([] if is_narrow else ["expected credit"]), "")
    for place, heading in enumerate(headings):
        justify: JustifyMethod = "left" if place == 0 or not heading else "right"
        grid.add_column(justify=justify, min_width=0 if place else 12, no_wrap=place > 0)
    grid.add_row(*(Text(heading, style="dim") for heading in headings))
    for model in models:
        expected = f"{model['mean']:.3f} \u00b1 {model['deviation']:.3f}"
        grid.add_row(
            Text(model["name"]),
            f"${model['dollars']:.4f}",
            f"{model['tries']:,}",
            *([] if is_narrow else [expected]),
            Text("disabled" if model["is_disabled"] else "", style="yellow"),
        )
    return grid


def _by_role(row: TraceRow) -> str:
    """The dollars of a step by role, where its evaluation cost money."""
    return f" ({role_words(parts)})" if (parts := row.get("dollars_by_role")) else ""


def judged_by_role(used: Iterable[UsedCalls]) -> Mapping[str, Decimal]:
    """The dollars of each role so far; none if no evaluation cost money."""
    dollars: dict[str, Decimal] = {}
    for each in used:
        dollars[each.role] = dollars.get(each.role, Decimal(0)) + each.dollars
    if dollars.keys().isdisjoint(JUDGING):
        return {}
    return {role: dollars[role] for role in (*ROLES, *dollars) if role in dollars}


def cache_words(used: CacheUse) -> str:
    """The share of the prompts that came from caches, and the dollars that this saved, if any."""
    if not used.cached_tokens:
        return ""
    return f"{used.cached_tokens / used.input_tokens:.0%} of tokens in, ${used.saved:.4f} saved"


def _purpose(call: PastCall) -> str:
    """What a request is for: its frontier, counted from 1, or its role; and its menu's model."""
    frontier, entry = call.facts.get("frontier"), call.facts.get("entry")
    place = call.role if frontier is None else f"frontier {frontier + 1}"
    return f"{place}, {entry}" if entry else place


def _waiting(call: PastCall) -> str:
    """How long ago a request was sent, and the most that it can cost."""
    return f"{clock(max(0.0, time() - call.facts['ended_at']))}, at most ${call.bound:.4f}"


def progress_on(console: Console, *, is_quiet: bool) -> Progress:
    """A panel for a terminal, lines for anything else, nothing if quiet."""
    if is_quiet:
        return Progress()
    return LiveProgress(console) if console.is_terminal else LineProgress(console)


def remaining_iterations(budget: float, spent: float, iteration: int, max_iterations: int) -> int:
    """Iterations left at the mean step cost so far; at least one is finished."""
    mean_cost, left = spent / iteration, max_iterations - iteration
    if mean_cost > 0:
        left = min(left, ceil((budget - spent) / mean_cost))
    return max(0, left)
