"""Runs a plan in a folder: streams the graph, writes the files, resumes from a checkpoint."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, cast

from langchain_core.runnables import RunnableConfig
from langgraph.errors import GraphDrained
from langgraph.runtime import RunControl

from costada.controller.money import remaining
from costada.evaluators.sandbox.layer_choice import described_layer
from costada.graph.build import DiscoveryGraph
from costada.nodes.settings import problem_texts
from costada.nodes.state import SearchInput, SearchState
from costada.reports.picture import ReportData, write_report
from costada.reports.progress import Progress, RunHeading
from costada.reports.trace import stored_rows
from costada.runs.folder import RunFolder
from costada.runs.gateway import gateway_of, stop_gateway
from costada.runs.lease import hold_lease
from costada.runs.plan import Plan
from costada.runs.resume import can_resume, lost_steps
from costada.store.candidates import SEED_ID
from costada.store.checkpoints import RunSaver
from costada.store.files import append_text, remove_unfinished, replace_text
from costada.store.rows import changes
from costada.store.run_store import RunStore
from costada.values.discovery import Discovery, RunEnd
from costada.values.evaluation import Direction, failed

if TYPE_CHECKING:
    from costada.nodes.end_step import TraceRow

THREAD = RunnableConfig(configurable={"thread_id": "run"})


class StepLog:
    """The trace file of a run, one row per iteration, each once and in order."""

    def __init__(self, path: Path, rows: Sequence[TraceRow]) -> None:
        """Replace the content of the file by the rows so far."""
        self._path = path
        self._last = rows[-1]["iteration"] if rows else 0
        replace_text(path, "".join(f"{json.dumps(row)}\n" for row in rows))

    def append(self, row: TraceRow) -> None:
        """Add the row of a finished iteration, unless the file has it."""
        if row["iteration"] > self._last:
            self._last = row["iteration"]
            append_text(self._path, f"{json.dumps(row)}\n")


class RunRecord:
    """Writes `steps.jsonl`, `best_program.py` and `report.png` of one run.

    Attributes:
        rows: The trace so far.
        first_sandbox: The sandbox that the run started in; empty if it has not started.
        changes: What has changed in the problem since then, except the sandbox.
    """

    def __init__(self, folder: RunFolder, plan: Plan, store: RunStore) -> None:
        """Bring the files up to date with the store."""
        self._folder, self._plan, self._store = folder, plan, store
        self.rows = self._stored()
        run_ids = store.run_ids()
        self.first_sandbox = store.sandbox(run_ids[-1]) if run_ids else ""
        setup = store.setup(run_ids[-1]) if run_ids else None
        now = problem_texts(plan.problem)
        self.changes = changes({**setup.problem, "sandbox": now["sandbox"]}, now) if setup else []
        for file in (folder.settings, folder.steps, folder.best_program, folder.report):
            remove_unfinished(file)
        self._log = StepLog(folder.steps, self.rows)
        self._write_best_program()

    def add(self, row: TraceRow) -> None:
        """Record a finished iteration."""
        self.rows.append(row)
        self._log.append(row)
        if row["global_gain"] > 0:
            self._write_best_program()

    def finish(self) -> None:
        """Write the picture, and the trace as the store has it."""
        self.rows = self._stored()
        StepLog(self._folder.steps, self.rows)
        problem, plan = self._plan.problem, self._plan
        run_ids = self._store.run_ids()
        seed_objective = plan.seed_evaluation.objective if plan.seed_evaluation else None
        if not plan.seed_evaluation and run_ids:
            seed_objective = self._store.candidates.get(run_ids[-1], SEED_ID).objective
        title = plan.title
        if self.rows and (objective := self.rows[-1]["best_objective"]) is not None:
            title = f"{title}: {objective:.6g} for ${self.rows[-1]['spent']:.4f}"
        report = ReportData(
            title=title,
            rows=self.rows,
            budget=plan.budget,
            seed_objective=seed_objective,
            reference=problem.reference,
            is_minimized=problem.direction is Direction.MINIMIZE,
        )
        write_report(report, self._folder.report)

    def _stored(self) -> list[TraceRow]:
        run_ids = self._store.run_ids()
        return list(stored_rows(self._store, run_ids[-1])) if run_ids else []

    def _write_best_program(self) -> None:
        improving = [row["candidate_id"] for row in self.rows if row["global_gain"] > 0]
        program = self._plan.problem.initial_program
        if improving and improving[-1] is not None:
            run_id = self._store.run_ids()[-1]
            program = self._store.candidates.get(run_id, improving[-1]).program.text
        replace_text(self._folder.best_program, program)


def carry_out(
    plan: Plan,
    folder: RunFolder,
    progress: Progress,
    control: RunControl,
    *,
    accepts_loss: bool = False,
) -> Discovery:
    """Start a run, or resume it from its last checkpoint, and return what it finds.

    A stopped run continues when the plan allows it more money or iterations than before: its
    finished steps stay as they are, and from the next one on the controller sees the plan's budget.
    The folder must hold the run's settings. Its files are up to date whenever this returns or
    raises, and another call after an interruption resumes the run.

    Args:
        plan: The run.
        folder: The run's folder.
        progress: Shows the iterations.
        control: Lets another party stop the run after the current node.
        accepts_loss: Whether steps that the run file has lost may be paid for again; their cost
            counts as spent.

    Raises:
        ValueError: If another process works in the folder, its run file is damaged, another
            version's, missing or has lost steps, or a provider rejects a request permanently or
            does not respond.
        UnmeteredCall: If a response has no token counts and estimates are not allowed.
        OSError: If a file cannot be written; the run can be resumed afterwards.
    """
    folder.check_kept()
    with (
        hold_lease(folder.path),
        gateway_of(plan, folder) if plan.gateway else nullcontext(plan) as plan,
        RunStore(folder.database) as store,
        _saver(folder.database, keep_history=plan.keep_history) as saver,
    ):
        notice = _charge_lost_steps(plan, folder, store, accepts_loss=accepts_loss)
        graph = plan.graph(checkpointer=saver, store=store)
        record = RunRecord(folder, plan, store)
        try:
            with progress:
                if notice:
                    progress.notice(notice)
                _stream(graph, plan, record, progress, control)
        finally:
            record.finish()
        found = _discovery(_state(graph), plan, store, folder.path)
        if plan.gateway and found.stop_reason != "interrupted":
            stop_gateway(folder)
        return found


def is_finished(folder: RunFolder) -> bool:
    """Whether the run in a folder has ended and, by its settings, has nothing left to do.

    Raises:
        ValueError: If its run file is damaged, another version's or missing.
    """
    folder.check_kept()
    if not folder.database.is_file():
        return False
    config = folder.load()
    with _saver(folder.database) as saver:
        saved = saver.get_tuple(THREAD)
    if saved is None:
        return False
    state = cast(SearchState, saved.checkpoint["channel_values"])
    has_stopped = bool(state.get("stop_reason"))
    return has_stopped and not can_resume(state, config.budget, config.max_iterations)


@contextmanager
def _saver(database: Path, *, keep_history: bool = True) -> Iterator[RunSaver]:
    with closing(RunSaver(database, keep_history=keep_history)) as saver:
        yield saver
        saver.prune_thread(THREAD)


def _stream(
    graph: DiscoveryGraph, plan: Plan, record: RunRecord, progress: Progress, control: RunControl
) -> None:
    """Run the graph to its end or until it is interrupted."""
    max_iterations = plan.settings.constants.max_iterations
    sandbox = described_layer(plan.sandbox) if plan.sandbox else ""
    progress.begin(RunHeading(plan.title, plan.budget, max_iterations, sandbox), record.rows)
    state = _state(graph)
    if state.get("stop_reason"):
        budget = plan.budget
        if plan.purse and state["stop_reason"] == "budget":
            # The purse may not have the whole budget.
            budget = min(budget, state["spent"] + max(0.0, float(plan.purse.remaining)))
        if not can_resume(state, budget, max_iterations):
            return
        graph.update_state(THREAD, SearchState(stop_reason=""), as_node="gate_intervention")
    layer = plan.sandbox or ""
    if record.first_sandbox not in ("", layer):
        progress.notice(f"This run started in sandbox {record.first_sandbox}, now uses {layer}")
    if record.changes:
        progress.notice(
            f"The problem has changed since this run started: {'; '.join(record.changes)}."
            " Earlier scores stay as they are"
        )
    given = None if state else SearchInput(seed=plan.settings.seed)
    try:
        for row in graph.stream(
            given, THREAD, stream_mode="custom", durability="sync", control=control
        ):
            record.add(cast("TraceRow", row))
            progress.step(cast("TraceRow", row))
    except GraphDrained:
        return
    except InterruptedError:
        if not control.drain_requested:
            raise


def _charge_lost_steps(
    plan: Plan, folder: RunFolder, store: RunStore, *, accepts_loss: bool
) -> str:
    """Charge a run for the steps that its file has lost, and return a notice for its user.

    A gateway that has their responses reports their cost when they are requested again. Raises
    `ValueError` where they would be paid for again and that is not accepted.
    """
    lost = lost_steps(folder, store, counts_lost=plan.settings.lost_calls == "count")
    if lost is None:
        return ""
    if plan.gateway:
        return f"{lost.words}; the gateway has kept the answers"
    lost.check(folder, plan.budget, is_accepted=accepts_loss)
    if not lost.dollars:
        return f"{lost.words}; the answers are stored, and the iterations are repeated from them"
    lost.charge(store)
    if plan.purse:
        run_id = store.run_ids()[-1]
        account = plan.purse.child(run_id, plan.budget)
        for iteration in range(lost.first, lost.last + 1):
            cost = store.call_log.step_cost(run_id, iteration, counts_lost=True)
            account.put(f"iteration {iteration}", cost=cost)
    return f"{lost.words}; these dollars count as spent in iteration {lost.first}"


def _state(graph: DiscoveryGraph) -> SearchState:
    return cast(SearchState, graph.get_state(THREAD).values)


def _discovery(state: SearchState, plan: Plan, store: RunStore, folder: Path) -> Discovery:
    """The result so far; before the first checkpoint, the initial program is the best."""
    spent, granted = state.get("spent", 0.0), state.get("granted_budget")
    reason = cast(RunEnd, state.get("stop_reason") or "interrupted")
    seed = plan.seed_evaluation or failed("not evaluated")
    best = store.candidates.get(state["run_id"], state["best"]) if "best" in state else None
    return Discovery(
        best_program=best.program.text if best else plan.problem.initial_program,
        best_score=best.score if best else seed.score,
        best_objective=best.objective if best else seed.objective,
        best_metrics=best.metrics if best else seed.metrics,
        spent=spent,
        remaining=max(0.0, remaining(plan.budget if granted is None else granted, spent)),
        iterations=state.get("iterations", 0),
        stop_reason=reason,
        folder=folder,
        sandbox=plan.sandbox,
        last_failure=state.get("last_failure", "") if reason == "failures" else "",
    )
