"""The data of a run's page in JSON types: all figures, and texts by iteration."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from math import isfinite
from operator import itemgetter
from threading import Lock
from typing import Any, NamedTuple

from costada.controller.allocation import Frontier, after_visit
from costada.controller.constants import Constants
from costada.controller.costada import CostAda
from costada.controller.methods import METHODS
from costada.models.reply_content import visible_text
from costada.nodes.trace_row import GUIDE_CHARGED, MODEL_COLUMNS, STEP_COLUMNS
from costada.reports.page.failures import failures_of
from costada.reports.page.opening import (
    best_program,
    heading,
    settings_rows,
    standing,
    task_of,
)
from costada.reports.patch import program_rows
from costada.reports.run_view import RunView
from costada.reports.trace import ticket_of
from costada.store.address import is_there
from costada.store.candidates import SEED_ID
from costada.store.history import LAST_TICKET, Iterations, PastCandidate, RunHistory, Tickets
from costada.store.rows import checking_rows
from costada.values.candidate import Program, changed_files
from costada.values.evaluation import COMBINED_SCORE
from costada.values.numbering import START, START_TICKET, Iteration, TicketNumber, next_iteration
from costada.values.roles import ROLES

Json = Mapping[str, object]
Step = Mapping[str, Any]
ITERATION = itemgetter("iteration")

STEP = {name: each for name, each in STEP_COLUMNS.items() if each.is_on_page}
STEP_FACTS = [
    [name, each.label, each.unit, each.digits, each.term]
    for name, each in STEP.items()
    if each.label
]
"""What the page lists of a step: column, label, unit, digits and the term that explains it."""

CALL = ("iteration", "ticket", "role", "attempt", "status", "cost", "bound", "saved")
CALL_FACTS = (
    *("input_tokens", "output_tokens", "cached_tokens", "reasoning_tokens", "seconds"),
    *("ended_at", "frontier", "entry"),
)
CANDIDATE = ("id", "iteration")
CANDIDATE_FACTS = (
    *("score", "objective", "is_valid", "parent_id", "generation", "is_copy", "inspirations"),
)
METRIC = "metric "
"""Begins the column of a metric that an evaluator returns."""

MAX_METRICS = 8
"""Metrics that the page can place and colour candidates by."""

FAILURE = ("iteration", "attempt", "place", "kind", "text")
MAX_REASON = 300
"""Characters of a failure among the figures; its whole text is among the texts."""


KEPT = ("iteration", "ticket", "failure", "attempts", "events")
"""Columns of steps that belong to a part: to find their tickets, and failures in a row."""


class Part(NamedTuple):
    """Some iterations to which nothing will be added: the lowest, their figures and their texts."""

    first: Iteration
    figures: Json
    texts: list[Json]


class Feed:
    """Reads one run repeatedly; may be used from several threads.

    Calls, candidates and failures are keyed by ticket in the run file, and by the iteration as
    which their ticket ended here. Those of tickets that have not ended belong to the iteration
    after the last.

    Every method raises `ValueError` when the folder holds no run, or its file is damaged, and
    `OSError` when a file cannot be read.
    """

    def __init__(self, run: RunView) -> None:
        self._run = run
        self._lock = Lock()
        self._run_id = ""
        self._steps: list[dict[str, Any]] = []
        self._averages: Averages | None = None
        self._models: dict[str, Step] = {}
        self._ended: dict[TicketNumber, Iteration] = {}
        self._guided: list[Iteration] = []
        self._parallel = 1
        self._best = 0, SEED_ID

    def figures(self, after: Iteration = START, *, opens_page: bool = False) -> Json:
        """The figures of the iterations after one, and the calls of tickets that have not ended.

        Task and settings come with those of the whole run, the best program whenever it is new;
        all of them also where a page opens with these figures, and has those before them as parts.
        Before the run begins, there is nothing but heading, task and settings.
        """
        is_news = after > START and not opens_page
        settings = self._run.load()
        empty = {
            "run_id": "",
            "after": after,
            "written": datetime.now(UTC).isoformat(timespec="seconds"),
            "heading": heading(self._run, settings),
            "standing": standing(self._run, settings, (), {}),
            "task": None if is_news else task_of(settings),
            "settings": None if is_news else settings_rows(settings),
            "best": None,
            "facts": None if is_news else STEP_FACTS,
            "roles": None if is_news else [*ROLES],
            "steps": _table([*STEP], ()),
            "models": _table(("iteration", *MODEL_COLUMNS), ()),
            "calls": _table((*CALL, *CALL_FACTS), ()),
            "candidates": _table((*CANDIDATE, *CANDIDATE_FACTS), ()),
            "objectives": [],
            "front": [],
            "archived": [],
            "faults": _table(FAILURE, ()),
        }
        if not is_there(self._run.database):
            return empty
        # Two readers at once would otherwise add the same new steps twice.
        with self._lock, self._history() as history:
            run_id = history.last_run()
            self._read_new_steps(history, run_id)
            steps = [step for step in self._steps if step["iteration"] > after]
            sent = {ticket for ticket, iteration in self._ended.items() if iteration <= after}
            facts = heading(self._run, settings, history, run_id)
            start = history.score_of(run_id, SEED_ID) if not self._steps else None
            newest = max(sent, default=TicketNumber(-1))
            missed = list[TicketNumber]()
            if newest > len(sent):  # some tickets before it have not ended, or ended later
                known = history.tickets(run_id)
                missed = [each for each in known if 0 < each < newest and each not in sent]
            return {
                **empty,
                "run_id": run_id,
                "heading": facts,
                "standing": standing(self._run, settings, self._steps, facts, start),
                "task": None if is_news else task_of(settings, history, run_id),
                "best": self._best_after(history, after if is_news else START),
                "objectives": self._objectives(),
                "front": history.front(run_id) if self._objectives() else [],
                "archived": history.archived(run_id),
                **_tables(
                    history,
                    Tickets(run_id, newest, missed),
                    Iterations(run_id, after or Iteration(-1)),
                    self._tactics(history, Iterations(run_id, after or Iteration(-1))),
                    steps,
                    self._iteration_of,
                    self._objectives(),
                ),
            }

    def texts(self, first: Iteration, last: Iteration) -> list[Json]:
        """All texts of the given iterations, in order.

        One entry per iteration: requests with prompt and answer, candidates with their programs,
        the tactics that a guide gave. Iteration 0 has the initial program.
        """
        with self._history() as history:
            run_id = history.last_run()
            with self._lock:
                self._read_new_steps(history, run_id)
            return self._texts(history, Iterations(run_id, Iteration(first - 1), last))

    def parts(self, first: Iteration, size: int) -> Iterator[Part]:
        """The iterations from one on to which nothing will be added, `size` at a time.

        The run is seen as it is when this begins. Of the steps of a part that has been taken, only
        what later figures need stays in memory.
        """
        if not is_there(self._run.database):
            return
        with self._history() as history:
            run_id = history.last_run()
            with self._lock:
                self._read_new_steps(history, run_id)
            last = self._steps[-1]["iteration"] if self._steps else START
            # The newest step stays whole, as later figures begin with it. The guide of a step in
            # flight may be charged to one that ends later, see `_tactics`.
            while first + size - 1 + self._reach - 1 < last:
                span = Iterations(run_id, Iteration(first - 1), Iteration(first + size - 1))
                history.begin_part()
                yield self._part(history, span)
                with self._lock:
                    # Other dictionaries: one that loses keys keeps its memory.
                    self._steps[self._places_of(span)] = [
                        {name: step[name] for name in KEPT} for step in self._steps_in(span)
                    ]
                first = Iteration(first + size)

    def rest(self, first: Iteration, size: int) -> Iterator[tuple[Iteration, list[Json]]]:
        """All texts from an iteration on: the first iteration of each block, and its texts."""
        with self._history() as history:
            run_id = history.last_run()
            with self._lock:
                self._read_new_steps(history, run_id)
            end = self._iteration_of(LAST_TICKET)
            for begin in range(first, end + 1, size):
                history.begin_part()
                span = Iterations(run_id, Iteration(begin - 1), Iteration(begin + size - 1))
                if texts := self._texts(history, span):
                    yield Iteration(begin), texts

    def _part(self, history: RunHistory, span: Iterations) -> Part:
        steps = self._steps_in(span)
        tables = _tables(
            history,
            self._tickets_of(history, span),
            span,
            self._tactics(history, span),
            steps,
            self._iteration_of,
            self._objectives(),
        )
        return Part(Iteration(span.after + 1), tables, self._texts(history, span))

    def _steps_in(self, span: Iterations) -> list[dict[str, Any]]:
        return self._steps[self._places_of(span)]

    def _places_of(self, span: Iterations) -> slice:
        low = bisect_right(self._steps, span.after, key=ITERATION)
        return slice(low, bisect_right(self._steps, span.until, key=ITERATION))

    @contextmanager
    def _history(self) -> Iterator[RunHistory]:
        """The run file as it is now; a damaged row in it raises `ValueError`."""
        with RunHistory.of(self._run.database) as history, checking_rows(self._run.database):
            yield history

    def _texts(self, history: RunHistory, span: Iterations) -> list[Json]:
        tickets = self._tickets_of(history, span)
        tactics = dict(self._tactics(history, span))
        reasons = {row["iteration"]: row["failure"] for row in history.steps(span)}
        calls: dict[Iteration, list[Json]] = {}
        for call in history.calls(tickets):
            facts = {
                **call.facts,
                "role": call.role,
                "attempt": call.attempt,
                "number": call.number,
                "status": call.status,
                "cost": f"{call.cost:f}",
                "bound": f"{call.bound:f}",
                "prompt": history.text(call.prompt),
                "answer": visible_text(history.text(call.answer)),
            }
            calls.setdefault(self._iteration_of(call.ticket), []).append(facts)
        candidates: dict[Iteration, list[Json]] = {}
        for each in (*history.candidates(tickets), *history.copies(span)):
            parent = str(each.facts.get("parent_id") or "").partition(">")[0]
            program, before = history.program(each.program), history.program_of(span.run_id, parent)
            facts = {**_facts_of(each), **_program(program, before)}
            for text in facts.get("files", {}).values():
                history.count(text)
            candidates.setdefault(_iteration_of(each, self._iteration_of), []).append(facts)
        return [
            {
                "iteration": iteration,
                "failure": reasons.get(iteration),
                "calls": calls.get(iteration, []),
                "candidates": candidates.get(iteration, []),
                "tactics": tactics.get(iteration, {}).get("tactics") or [],
                "mode": tactics.get(iteration, {}).get("mode") or "",
            }
            for iteration in sorted({*calls, *candidates, *tactics})
        ]

    def _tactics(
        self, history: RunHistory, span: Iterations
    ) -> list[tuple[Iteration, dict[str, Any]]]:
        """What guides gave, with the iterations that were charged for them.

        A guide is charged with the step that it prepares. With several in flight, that step ends
        some iterations after the guide.
        """
        found = []
        earlier = Iteration(span.after - self._reach)
        for given, record in history.tactics(span._replace(after=earlier)):
            place = bisect_left(self._guided, given)
            charged = self._guided[place] if place < len(self._guided) else given
            iteration = charged if charged < given + self._reach else given
            if span.after < iteration <= span.until:
                found.append((iteration, record))
        return found

    @property
    def _reach(self) -> int:
        """Iterations from that of a guide on, one of which is charged for it."""
        return 2 * self._parallel - 1

    def _iteration_of(self, ticket: TicketNumber) -> Iteration:
        """The iteration as which a ticket ended; of one that has not, the one after the last."""
        last = self._steps[-1]["iteration"] if self._steps else START
        return self._ended.get(ticket, next_iteration(last) if ticket else START)

    def _tickets_of(self, history: RunHistory, span: Iterations) -> Tickets:
        """The tickets that belong to a span of iterations."""
        found: list[TicketNumber] = [step["ticket"] for step in self._steps_in(span)]
        if span.after < 0 <= span.until:
            found.append(START_TICKET)
        if span.after < self._iteration_of(LAST_TICKET) <= span.until:
            tickets = history.tickets(span.run_id)
            found += [each for each in tickets if each and each not in self._ended]
        return Tickets(span.run_id, LAST_TICKET, found)

    def _read_new_steps(self, history: RunHistory, run_id: str) -> None:
        """Read the new steps, or all steps of another run; the caller holds the lock."""
        last = self._steps[-1:]
        is_settled = history.settled(run_id, last) != last  # by a bill, since they were read
        if run_id != self._run_id or self._averages is None or is_settled:
            self._run_id, self._steps, self._ended, self._guided = run_id, [], {}, []
            self._models, self._best = {}, (0, SEED_ID)
            settings = self._run.load()
            self._parallel = settings.parallel
            self._averages = Averages(settings.method, settings.constants)
        known = self._steps[-1]["iteration"] if self._steps else START
        for step in history.settled(run_id, history.steps(Iterations(run_id, known))):
            utility, estimate = self._averages.after(step)
            failure = step["failure"] and step["failure"][:MAX_REASON]
            ticket = ticket_of(step)
            self._ended[ticket] = step["iteration"]
            if step.get("is_result", step["global_gain"] > 0):
                self._best = step["iteration"], str(step["candidate_id"]).partition(">")[0]
            if GUIDE_CHARGED in step["events"]:
                self._guided.append(step["iteration"])
            kept = {"failure": failure, "smoothed_utility": utility, "ticket": ticket}
            # A row for each model at each step would mostly repeat what has not changed.
            kept["router"] = self._changed_models(step)
            self._steps.append({**step, **kept, "allocation_estimate": estimate})

    def _best_after(self, history: RunHistory, after: int) -> Json | None:
        """The best program, `None` if an earlier answer had it."""
        iteration, candidate_id = self._best
        if after > 0 and iteration <= after:
            return None
        return best_program(history, self._run_id, candidate_id)

    def _objectives(self) -> list[str]:
        """The objectives of the run by name, such as `speed:max`; none if it has one."""
        last = self._steps[-1] if self._steps else {}
        with checking_rows(self._run.database):
            return [*(last.get("objectives") or {}).keys()]

    def _changed_models(self, step: Step) -> list[Step]:
        """The models of a menu that are not as they were before a step."""
        with checking_rows(self._run.database):
            changed = [
                row for row in step.get("router", ()) if row != self._models.get(row["name"])
            ]
            self._models |= {row["name"]: row for row in changed}
            return changed


class Averages:
    """The moving averages behind CostAda's decisions, recomputed from the steps of a run."""

    def __init__(self, method: str, constants: Constants) -> None:
        """Begin before the first step; methods with other averages have none here."""
        kind = METHODS[method].kind
        self._has_utility = isinstance(kind, type) and issubclass(kind, CostAda)
        self._has_estimate = kind is CostAda
        self._constants = METHODS[method].apply_switches(constants)
        self._frontiers: dict[int, Frontier] = {}

    def after(self, step: Step) -> tuple[float | None, float | None]:
        """Both averages of a step's frontier at its end (H and R, Sec. 4.2 and 4.3).

        To be called with each step once, in order. Both are at least 0, or `None` for a method
        that does not use them.
        """
        if not self._has_utility:
            return None, None
        number = step["frontier"]
        now = after_visit(
            self._frontiers.get(number, Frontier(best_score=0.0)),
            step["score"],
            step["utility"],
            step["allocation_reward"],
            self._constants,
        )
        self._frontiers[number] = now
        return now.smoothed_utility, now.allocation_estimate if self._has_estimate else None


def _program(program: Program, before: Program | None) -> dict[str, Any]:
    """What the page shows of a program: its text, or the files in which it differs from another."""
    diff = None if before is None else program_rows(before, program)
    if program.is_one_text:
        return {"code": program.text, "diff": diff}
    shown = changed_files(program, before or {})
    return {
        "files": shown,
        "unchanged": [path for path in program if path not in shown],
        "diff": diff,
    }


def _tables(
    history: RunHistory,
    tickets: Tickets,
    iterations: Iterations,
    tactics: Sequence[tuple[Iteration, Mapping[str, Any]]],
    steps: Sequence[Step],
    iteration_of: Callable[[TicketNumber], Iteration],
    objectives: Sequence[str],
) -> dict[str, object]:
    calls = history.calls(tickets)
    candidates = [*history.candidates(tickets), *history.copies(iterations)]
    candidates.sort(key=partial(_iteration_of, of_ticket=iteration_of))
    outcomes = history.failures(tickets)
    failures = failures_of(calls, candidates, outcomes, tactics, steps, iteration_of)
    call_rows = [
        [
            *(iteration_of(each.ticket), each.ticket, each.role, each.attempt, each.status),
            *(float(each.cost), float(each.bound), float(each.saved)),
            *map(each.facts.get, CALL_FACTS),
        ]
        for each in calls
    ]
    goals = [name.rpartition(":")[0] for name in objectives]
    metrics = _metrics_beside(goals, candidates)
    own_facts = (*CANDIDATE_FACTS, "values") if objectives else CANDIDATE_FACTS
    candidate_rows = [
        [
            *(each.id, _iteration_of(each, iteration_of)),
            *map(_facts_of(each).get, CANDIDATE_FACTS),
            *([_values(each.facts, goals)] if objectives else []),
            *map(_short, _values(each.facts, metrics)),
        ]
        for each in candidates
    ]
    columns = [name for name in STEP if any(name in step for step in steps)]
    model_rows = (
        [step["iteration"], *map(row.get, MODEL_COLUMNS)]
        for step in steps
        for row in step["router"]
    )
    return {
        "steps": _table(columns, ([step.get(name) for name in columns] for step in steps)),
        "models": _table(("iteration", *MODEL_COLUMNS), model_rows),
        "calls": _table((*CALL, *CALL_FACTS), call_rows),
        "candidates": _table(
            (*CANDIDATE, *own_facts, *(METRIC + name for name in metrics)), candidate_rows
        ),
        "faults": _table(FAILURE, ([getattr(each, name) for name in FAILURE] for each in failures)),
    }


def _iteration_of(
    candidate: PastCandidate, of_ticket: Callable[[TicketNumber], Iteration]
) -> Iteration:
    """The iteration in which a candidate was made, or migrated as a copy."""
    return of_ticket(candidate.ticket) if candidate.migrated_in is None else candidate.migrated_in


def _facts_of(candidate: PastCandidate) -> dict[str, Any]:
    is_copy = candidate.migrated_in is not None
    return {**candidate.facts, "id": candidate.id, "is_copy": is_copy}


def _metrics_beside(goals: Sequence[str], candidates: Iterable[PastCandidate]) -> list[str]:
    """The first metrics by name that candidates have beside the objectives."""
    names = {name for each in candidates for name in each.facts.get("metrics") or ()}
    return sorted(names - {*goals, COMBINED_SCORE})[:MAX_METRICS]


def _short(value: object) -> float | None:
    """A metric with six significant digits, as each byte of a page counts once for a candidate."""
    is_number = isinstance(value, int | float) and isfinite(value)
    return float(f"{value:.6g}") if is_number else None


def _values(facts: Mapping[str, Any], metrics: Sequence[str]) -> list[object]:
    """The values of the objectives' metrics, `None` where the evaluator reported none."""
    known = facts.get("metrics")
    return [known.get(name) if isinstance(known, Mapping) else None for name in metrics]


def _table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> dict[str, object]:
    """Column names and rows: smaller than a name beside every value."""
    return {"columns": columns, "rows": list(rows)}
