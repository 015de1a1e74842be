"""`load_run`: a run folder as plain data, for notebooks and scripts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

from costada.reports.export import TableName, table_of
from costada.runs.folder import RunFolder
from costada.runs.stored_run import run_at
from costada.store.address import is_there
from costada.store.candidates import SEED_ID
from costada.store.history import Iterations, RunHistory
from costada.values.candidate import Program

if TYPE_CHECKING:
    from costada.reports.export import Row

State = Literal["waiting", "running", "stopped", "finished"]


@dataclass(frozen=True, slots=True)
class LoadedRun:
    """A snapshot of a run; `pandas.DataFrame` accepts each of its tables.

    Attributes:
        path: The run folder; of a run in Postgres, that of its files on this machine.
        settings: The settings of the run, in JSON types.
        state: Whether the run waits for its first iteration, is running, was stopped and can be
            resumed, or is finished.
        iterations: Finished iterations.
        spent: Dollars of the finished iterations.
        charged: Dollars of all requests, also of steps that have not ended: what `spent` is with
            them. Those whose bill is unknown count as they do against the budget.
        best_score: Score of the best program; `None` before the first iteration has ended.
        best_objective: Its objective; `None` while nothing was valid.
        best_program: Its text; several files each below a line with the path.
        best_files: Text of each file of the best program by path; empty if it is one text.
        steps: One row per iteration.
        calls: One row per model request.
        candidates: One row per candidate, without its program.
    """

    path: Path
    settings: Mapping[str, Any]
    state: State
    iterations: int
    spent: float
    charged: float
    best_score: float | None
    best_objective: float | None
    best_program: str
    best_files: Mapping[str, str]
    steps: list[Row]
    calls: list[Row]
    candidates: list[Row]
    _run: RunFolder = field(repr=False)

    def program(self, candidate_id: str) -> str:
        """The program of a candidate, several files each below a line with the path.

        Raises:
            ValueError: If the run has no such candidate.
        """
        with open_history(self._run) as (history, run_id):
            found = history.program_of(run_id, candidate_id)
        if found is None:
            raise ValueError(f"candidate_id: got {candidate_id!r}, expected one of the run's")
        return found.text


def load_run(path: str | Path) -> LoadedRun:
    """Load a run, also while it is running. Executes nothing in its folder.

    Args:
        path: The run folder, or the address `postgresql://USER@HOST/DATABASE#RUN`.

    Raises:
        ValueError: If the folder holds no run, its run has not started, or its files are damaged.
        OSError: If a file cannot be read.
    """
    from costada.reports.page.opening import standing

    folder = run_at(path)
    settings = folder.load()
    with open_history(folder) as (history, run_id):
        steps, calls, candidates = (
            list(table_of(history, name, run_id).rows())
            for name in (TableName.STEPS, TableName.CALLS, TableName.CANDIDATES)
        )
        best_id = SEED_ID
        for row in steps:
            has_gained = cast("float", row["global_gain"] or 0.0) > 0
            if has_gained if row.get("is_result") is None else row["is_result"]:
                # A copy on another frontier is ID>FRONTIER@ITERATION; the program is stored under
                # the id.
                best_id = str(row["candidate_id"]).partition(">")[0]
        program = history.program_of(run_id, best_id) or Program.of("")
        rows = history.steps(Iterations(run_id))
        rows[-1:] = history.settled(run_id, rows[-1:])
        charged = history.charged(run_id, counts_lost=settings.lost_calls == "count")
        setup, start_score = history.setup(run_id), history.score_of(run_id, SEED_ID)
    now = standing(folder, settings, rows, setup.problem if setup else {}, start_score)
    last: Row = rows[-1] if rows else {"iteration": 0, "spent": 0.0}
    return LoadedRun(
        _run=folder,
        path=folder.path,
        settings=settings.model_dump(mode="json"),
        state=cast("State", now["state"]),
        iterations=cast("int", last["iteration"]),
        spent=cast("float", last["spent"]),
        charged=float(charged),
        best_score=cast("float | None", last.get("best_score")),
        best_objective=cast("float | None", last.get("best_objective")),
        best_program=program.text,
        best_files=program.by_path,
        steps=steps,
        calls=calls,
        candidates=candidates,
    )


@contextmanager
def open_history(folder: RunFolder) -> Iterator[tuple[RunHistory, str]]:
    """Open the history of a run, with the run's id.

    Raises:
        ValueError: If the folder holds no run that has started.
    """
    folder.load()
    if not is_there(folder.database):
        raise ValueError(f"{folder.place}: the run has not started, expected one that has")
    with RunHistory.of(folder.database) as history:
        if not (run_id := history.last_run()):
            raise ValueError(f"{folder.place}: the run has not started, expected one that has")
        yield history, run_id
