"""Carries a plan out in a folder: streams the graph, keeps the files, can go on later."""

from __future__ import annotations

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
from costada.nodes.end_step import TraceRow
from costada.nodes.settings import problem_texts
from costada.nodes.state import SearchInput, SearchState
from costada.reports.picture import ReportData, write_report
from costada.reports.progress import Progress, RunHeading
from costada.reports.trace import stored_rows
from costada.runs.folder import RunFolder, StepLog
from costada.runs.gateway import gateway_of, stop_gateway
from costada.runs.lease import hold_lease
from costada.runs.plan import Plan
from costada.runs.resume import can_go_on, count, lost_steps
from costada.store.candidates import SEED_ID
from costada.store.checkpoints import RunSaver
from costada.store.files import remove_unfinished, replace_text
from costada.store.run_store import RunStore
from costada.store.setup import changes
from costada.values.discovery import Discovery, RunEnd
from costada.values.evaluation import Direction, failed

if TYPE_CHECKING:
    from costada.nodes.end_step import TraceRow
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
        return self._store.candidates.get(self._store.run_ids()[-1], improving[-1]).program.text

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


THREAD = RunnableConfig(configurable={"thread_id": "run"})


def carry_out(
    plan: Plan,
    folder: RunFolder,
    progress: Progress,
    control: RunControl,
    *,
    accepts_loss: bool = False,
) -> Discovery:
    """Return what a run finds; it goes on from its last checkpoint, if there is one.

    A run that has stopped goes on when the plan allows it more money or iterations than it had:
    what it did is left as it is, and from its last step on the controller sees the plan's budget.
    The folder must hold the run's settings. Its files are up to date whenever this returns or
    raises, and calling it again after an interruption goes on.

    Args:
        plan: What to do.
        folder: Where the run lives.
        progress: Follows the iterations.
        control: Lets another party stop the run after the current node.
        accepts_loss: Whether steps that the run file has lost may be paid for again; the dollars
            that they had cost count as spent.

    Raises:
        ValueError: If another process is at work in the folder, its run file is damaged, another
            version's, has lost steps or is no longer there, or a provider refuses a request for
            good or does not answer.
        UnmeteredCall: If an answer came without token counts and estimates are not allowed.
        OSError: If a file cannot be written; the run can go on when it can.
    """
    folder.check_kept()
    with (
        hold_lease(folder.path),
        gateway_of(plan, folder) if plan.gateway else nullcontext(plan) as plan,
        RunStore(folder.database) as store,
        _saver(folder.database, keep_history=plan.keep_history) as saver,
    ):
        notice = _lost_steps_counted(plan, folder, store, accepts_loss=accepts_loss)
        graph = plan.graph(checkpointer=saver, store=store)
        record = RunRecord(folder, plan, store)
        try:
            with progress:
                if notice:
                    progress.notice(notice)
                _follow(graph, plan, record, progress, control)
        finally:
            record.finish()
        found = _discovery(_state(graph), plan, store, folder.path)
        if plan.gateway and found.stop_reason != "interrupted":
            stop_gateway(folder)
        return found


def is_finished(folder: RunFolder) -> bool:
    """Return whether the run in a folder has ended and, by its settings, has nothing left to do.

    Raises:
        ValueError: If its run file is damaged, another version's or no longer there.
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
    return has_stopped and not can_go_on(state, config.budget, config.max_iterations)


@contextmanager
def _saver(database: Path, *, keep_history: bool = True) -> Iterator[RunSaver]:
    with closing(RunSaver(database, keep_history=keep_history)) as saver:
        yield saver
        saver.prune_thread(THREAD)


def _follow(
    graph: DiscoveryGraph,
    plan: Plan,
    record: RunRecord,
    progress: Progress,
    control: RunControl,
) -> None:
    constants = plan.settings.constants
    sandbox = described_layer(plan.sandbox) if plan.sandbox else ""
    heading = RunHeading(plan.title, plan.budget, constants.max_iterations, sandbox)
    progress.begin(heading, record.rows)
    state = _state(graph)
    if state.get("stop_reason"):
        if not can_go_on(state, _obtainable(state, plan), constants.max_iterations):
            return
        graph.update_state(THREAD, SearchState(stop_reason=""), as_node="gate_intervention")
    _tell_changes(record, plan.sandbox or "", progress)
    given = None if state else SearchInput(seed=plan.settings.seed)
    try:
        for row in graph.stream(
            given, THREAD, stream_mode="custom", durability="sync", control=control
        ):
            record.add(cast(TraceRow, row))
            progress.step(cast(TraceRow, row))
    except GraphDrained:
        return
    except InterruptedError:
        if not control.drain_requested:
            raise


def _tell_changes(record: RunRecord, sandbox: str, progress: Progress) -> None:
    """Say what is not as it was when the run began."""
    if record.began_in not in ("", sandbox):
        progress.notice(f"This run began in sandbox {record.began_in} and goes on in {sandbox}")
    if record.changes:
        progress.notice(
            f"The problem has changed since this run began: {'; '.join(record.changes)}."
            " Earlier scores stay as they are"
        )


def _lost_steps_counted(
    plan: Plan, folder: RunFolder, store: RunStore, *, accepts_loss: bool
) -> str:
    """Charge a run for the steps that its file has lost, and return a notice for its user.

    A gateway that kept their answers reports their cost when they are requested again. Raises
    `ValueError` where they would be paid for again and that is not accepted.
    """
    lost = lost_steps(folder, store, counts_lost=plan.settings.lost_calls == "count")
    if lost is None:
        return ""
    if plan.gateway:
        return f"{lost.words}; the gateway has kept the answers"
    lost.check(folder, plan.budget, is_accepted=accepts_loss)
    if not lost.dollars:
        return f"{lost.words}; the answers are there, and the iterations are made again from them"
    count(lost, store)
    if plan.purse:
        run_id = store.run_ids()[-1]
        account = plan.purse.child(run_id, plan.budget)
        for iteration in range(lost.first, lost.last + 1):
            cost = store.call_log.step_cost(run_id, iteration, counts_lost=True)
            account.put(f"iteration {iteration}", cost=cost)
    return f"{lost.words}; these dollars count as spent in iteration {lost.first}"


def _obtainable(state: SearchState, plan: Plan) -> float:
    """Return the dollars that a run may spend by now; its purse may not have the whole budget."""
    if plan.purse is None or state["stop_reason"] != "budget":
        return plan.budget
    return min(plan.budget, state["spent"] + max(0.0, float(plan.purse.remaining)))


def _state(graph: DiscoveryGraph) -> SearchState:
    return cast(SearchState, graph.get_state(THREAD).values)


def _discovery(state: SearchState, plan: Plan, store: RunStore, folder: Path) -> Discovery:
    """Return the result so far; the initial program is the best before the run has opened."""
    spent, granted = state.get("spent", 0.0), state.get("granted_budget")
    reason = cast(RunEnd, state.get("stop_reason") or "interrupted")
    seed = plan.seed_evaluation or failed("not evaluated")
    is_open = "best" in state
    best = store.candidates.get(state["run_id"], state["best"]) if is_open else None
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
