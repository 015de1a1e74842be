"""The files of a run that show it: trace, best program and Pareto front, as the store has them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext, suppress
from functools import partial
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, cast

from costada.evaluators.problem import Problem
from costada.nodes.settings import evaluator_texts, problem_texts
from costada.reports.indexed_run import IndexedRun, files_of
from costada.reports.kept_row import file_states, keep_row
from costada.reports.page.page import ITERATIONS, PageWriter, write_page
from costada.reports.tracking import Tracking
from costada.runs.folder import BEST_PROGRAM, RunFolder
from costada.runs.plan import Plan
from costada.store.files import (
    append_text,
    read_bytes,
    remove_unfinished,
    replace_folder,
    replace_text,
)
from costada.store.outage import DatabaseUnavailable, outlast
from costada.store.rows import changes, record
from costada.store.run_store import RunStore
from costada.values.candidate import Candidate
from costada.values.evaluation import objective_values, read_objectives
from costada.values.numbering import START, Iteration, next_iteration
from costada.values.program_form import invalid_path_reason

if TYPE_CHECKING:
    from costada.nodes.trace_row import TraceRow

RECENT_ROWS = 100
"""Rows of the trace that a resumed run shows the last events of."""

INDEX = "front.json"
LAST = 2**62
"""A number of changes of the archives that no run reaches."""


class ParetoFolder:
    """Keeps the folder `pareto` of a run as the store has its front."""

    def __init__(self, path: Path, problem: Problem, store: RunStore) -> None:
        self._path, self._problem, self._store = path, problem, store
        self._written: list[str] = []
        remove_unfinished(self._path)

    def update(self, run_id: str) -> None:
        """Replace the folder if the front has changed; a run of one objective has none.

        Raises:
            OSError: It cannot be written.
        """
        if not self._problem.objectives:
            return
        front = self._store.candidates.front(run_id, LAST)
        names = [each.id for each in front]
        if names != self._written:
            replace_folder(self._path, front_files(front, self._problem))
            self._written = names


def front_files(front: Sequence[Candidate], problem: Problem) -> dict[str, str]:
    """The texts of the folder by path: the programs by candidate, and what each one is worth.

    The index lists them by score, the best first; a program of several files is a folder.

    Raises:
        ValueError: A run file from elsewhere names a candidate or a file outside of the folder.
    """
    objectives, files = read_objectives(problem.objectives), dict[str, str]()
    listed = []
    for each in sorted(front, key=lambda each: -each.score):
        ending = PurePath(problem.candidate_name).suffix if each.program.is_one_text else ""
        name = f"{each.id}{ending}"
        for path, text in each.program.items():
            files[name if each.program.is_one_text else f"{name}/{path}"] = text
        values = objective_values(objectives, each.metrics)
        listed.append({"program": name, "score": each.score, "objectives": values})
    for path in files:
        if fault := invalid_path_reason(path):
            raise ValueError(f"the Pareto front has a file {path!r}; expected {fault}")
    files[INDEX] = json.dumps(listed, indent=2) + "\n"
    return files


class StepLog:
    """The trace file of a run, one row per iteration, each once and in order.

    Attributes:
        last: The last iteration whose row it has.
    """

    def __init__(self, path: Path, lines: Sequence[str]) -> None:
        """Rewrite the file if it differs from the rows so far, given as JSON."""
        self._path = path
        self.last: Iteration = record(lines[-1])["iteration"] if lines else START
        text = "".join(f"{line}\n" for line in lines)
        if not _holds(path, text):
            replace_text(path, text)

    def append(self, iteration: Iteration, line: str) -> None:
        """Add the row of a finished iteration as JSON, unless the file has it."""
        if iteration > self.last:
            self.last = iteration
            append_text(self._path, f"{line}\n")


def _holds(path: Path, text: str) -> bool:
    """Whether a file exists, is not a link, and has this content."""
    content = text.encode("utf-8", "surrogatepass")
    try:
        is_same_size = not path.is_symlink() and path.stat().st_size == len(content)
        return is_same_size and read_bytes(path, len(content)) == content
    except FileNotFoundError:
        return False


class RunRecord:
    """Writes `steps.jsonl`, the best program and the Pareto front of one run.

    Attributes:
        database: The run file, or the run in Postgres.
        thread: The thread of the run's checkpoints.
        recent_rows: The last rows of the trace, as it was when this was made.
        first_sandbox: The sandbox that the run started in; empty if it has not started.
        changes: What has changed in the problem since then, except the sandbox and what decides
            scores, which the graph checks.
    """

    def __init__(self, folder: RunFolder, plan: Plan, store: RunStore, tracking: Tracking) -> None:
        """Bring files and trackers up to date with the store.

        Raises:
            ValueError: A folder, or what is not a file, is in the place of the page or of the row.
        """
        for path, what in ((folder.report, "page"), (folder.row, "row")):
            if path.exists() and not path.is_file():
                raise ValueError(f"{path}: is not a file, expected the {what} of the run there")
        self._folder, self._plan, self._store = folder, plan, store
        self._tracking = tracking
        self.database, self.thread = folder.database, folder.thread
        self._run_id = run_id = store.last_run()  # empty before it begins
        lines = store.step_lines(run_id)
        self.recent_rows = [cast("TraceRow", record(line)) for line in lines[-RECENT_ROWS:]]
        self.first_sandbox = store.sandbox(run_id)
        setup = store.setup(run_id)
        now = problem_texts(plan.problem)
        self.changes = changes(_other_facts(setup.problem), _other_facts(now)) if setup else []
        # A killed process leaves partial files; nobody else writes here, as the lease is held.
        written = (folder.settings, folder.steps, folder.path / BEST_PROGRAM)
        for path in (*written, folder.report, folder.row):
            remove_unfinished(path)
        self._log = StepLog(folder.steps, lines)
        self._write_best_program(store.last_improvement(run_id))
        self._pareto = ParetoFolder(folder.pareto, plan.problem, store)
        self._pareto.update(run_id)
        tracking.begin(lines)
        self._page: PageWriter | None = None
        self._page_thread = ThreadPoolExecutor(1, thread_name_prefix="costada-page")
        self._adding: Future[None] | None = None

    def add(self, iteration: Iteration) -> TraceRow:
        """Record a finished iteration, and return its row."""
        if iteration == next_iteration(START):
            # a run that stopped before its first checkpoint has begun again, with another id
            self._run_id = self._store.last_run()
        line = self._store.step_line(self._run_id, iteration)
        row = cast("TraceRow", record(line))
        self._log.append(iteration, line)
        if row.get("is_result", row["global_gain"] > 0):
            self._write_best_program(row["candidate_id"])
        self._pareto.update(self._run_id)
        self._tracking.step(row)
        # In a thread, so that the run goes on; what has come meanwhile waits for the next turn.
        if self._adding is None or (iteration % ITERATIONS == 0 and self._is_added):
            self._adding = self._page_thread.submit(self._add_to_page)
        return row

    def finish(self) -> None:
        """Make sure that the trace file and the front are as the store has them."""
        # A reader that closes the run file after its writer would leave a write-ahead log behind.
        self._page_thread.shutdown()
        self._run_id = self._store.last_run()
        for iteration, line in self._store.step_lines_after(self._run_id, self._log.last):
            self._log.append(iteration, line)
        self._pareto.update(self._run_id)

    def close_page(self, *, has_begun: bool) -> None:
        """Write the page if the run has begun, and the row of the index if it has finished.

        Raises as `write_page` does.
        """
        is_written = False
        with self._page or nullcontext():
            if has_begun and self._page and self._is_added:
                with suppress(DatabaseUnavailable):
                    self._page.write()
                    is_written = True
        if has_begun and not is_written:
            # from its beginning: a full disk may have room now, a database be back
            outlast(partial(write_page, self._folder))
        if has_begun and isinstance(self.database, Path):
            files, indexed = file_states(self._folder), IndexedRun("", self._folder, files_of)
            indexed.read()
            keep_row(self._folder, indexed.row, files)

    def _add_to_page(self) -> None:
        page = self._page = self._page or PageWriter(self._folder)
        try:
            page.add_parts()
        except DatabaseUnavailable:  # the page is begun again at the next turn
            self._page = None
            with page:
                pass

    @property
    def _is_added(self) -> bool:
        """Whether the page has all that it was to get; after a failure it gets nothing more."""
        adding = self._adding
        return adding is not None and adding.done() and adding.exception() is None

    def _write_best_program(self, candidate_id: str | None) -> None:
        """Write a candidate's program, the initial one without a candidate, if there is one."""
        problem = self._plan.problem
        if candidate_id is None and problem.initial_program is None:
            return
        program = problem.start
        if candidate_id is not None:
            program = self._store.candidates.get(self._run_id, candidate_id).program
        self._folder.write_best_program(program, PurePath(problem.candidate_name).suffix)


SHOWN = {
    "limits.wall_seconds": "timeout (limits.wall_seconds)",
    "limits.call_seconds": "call_timeout (limits.call_seconds)",
}
"""Facts that a `problem.toml` gives another name."""


def _other_facts(facts: Mapping[str, str]) -> dict[str, str]:
    """Facts of a problem besides those that decide scores, and its sandbox."""
    known = {"sandbox", *evaluator_texts(facts)}
    return {SHOWN.get(name, name): text for name, text in facts.items() if name not in known}
