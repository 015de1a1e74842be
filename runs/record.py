"""The files a person reads, kept in step with the run: trace, best program, picture."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from costada.nodes.setup import problem_texts
from costada.runs.files import remove_unfinished, replace_text
from costada.runs.folder import RunFolder, StepLog
from costada.runs.report import ReportData, write_report
from costada.runs.rows import stored_rows
from costada.store.candidates import SEED_ID
from costada.store.setup import changes
from costada.values.evaluation import Direction

if TYPE_CHECKING:
    from costada.nodes.trace import TraceRow
    from costada.runs.plan import Plan
    from costada.store.run_store import RunStore


class RunRecord:
    """Writes `steps.jsonl`, `best_program.py` and `report.png` of one run."""

    def __init__(self, folder: RunFolder, plan: Plan, store: RunStore) -> None:
        """Bring the files to where the store is.

        `began_in` is the sandbox that the run began in; empty if it has not begun. `changes` says
        what of the problem, its sandbox apart, is no longer as it was then.
        """
        self._folder, self._plan, self._store = folder, plan, store
        self.rows: list[TraceRow] = list(self._stored())
        run_ids = store.run_ids()
        self.began_in = store.sandbox(run_ids[-1]) if run_ids else ""
        setup = store.setup(run_ids[-1]) if run_ids else None
        now = problem_texts(plan.problem)
        self.changes = changes({**setup.problem, "sandbox": now["sandbox"]}, now) if setup else []
        for file in (folder.settings, folder.steps, folder.best_program, folder.report):
            remove_unfinished(file)
        self._log = StepLog(folder.steps, self.rows)
        replace_text(folder.best_program, self._best_program())

    def add(self, row: TraceRow) -> None:
        """Take in a finished iteration."""
        self.rows.append(row)
        self._log.append(row)
        if row["global_gain"] > 0:
            replace_text(self._folder.best_program, self._best_program())

    def finish(self) -> None:
        """Write the picture, and the trace as the store has it."""
        self.rows = list(self._stored())
        StepLog(self._folder.steps, self.rows)
        write_report(self._report(), self._folder.report)

    def _stored(self) -> Sequence[TraceRow]:
        run_ids = self._store.run_ids()
        return stored_rows(self._store, run_ids[-1]) if run_ids else []

    def _best_program(self) -> str:
        improving = [row["candidate_id"] for row in self.rows if row["global_gain"] > 0]
        if not improving or improving[-1] is None:
            return self._plan.problem.initial_program
        return self._store.candidates.get(self._store.run_ids()[-1], improving[-1]).code

    def _report(self) -> ReportData:
        problem = self._plan.problem
        return ReportData(
            title=self._title(),
            rows=self.rows,
            budget=self._plan.budget,
            seed_objective=self._seed_objective(),
            reference=problem.reference,
            is_minimized=problem.direction is Direction.MINIMIZE,
        )

    def _seed_objective(self) -> float | None:
        if self._plan.seed_evaluation:
            return self._plan.seed_evaluation.objective
        run_ids = self._store.run_ids()
        return self._store.candidates.get(run_ids[-1], SEED_ID).objective if run_ids else None

    def _title(self) -> str:
        if not self.rows or self.rows[-1]["best_objective"] is None:
            return self._plan.title
        last = self.rows[-1]
        return f"{self._plan.title}: {last['best_objective']:.6g} for ${last['spent']:.4f}"
