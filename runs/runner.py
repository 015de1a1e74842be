"""Runs a plan in a folder: streams the graph, writes the files, resumes from a checkpoint."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import cast

from langchain_core.runnables import RunnableConfig
from langgraph.errors import GraphDrained
from langgraph.runtime import RunControl

from costada.controller.credit import remaining
from costada.evaluators.sandbox.layer_choice import described_layer
from costada.graph.build import DiscoveryGraph
from costada.graph.routes import can_continue, can_resume
from costada.nodes.calls.run_account import reported_tickets, settle
from costada.nodes.charge_ledger import spent_by_ledger
from costada.nodes.pool import pool_of
from costada.nodes.state import SearchInput, SearchState, restore
from costada.reports.progress import Progress, RunHeading
from costada.reports.tracking import Tracking
from costada.runs.folder import BEST_PROGRAM, RunFolder
from costada.runs.gateways import installed_gateway, uses_gateway
from costada.runs.plan import Plan
from costada.runs.resume import lost_steps, repeats_steps
from costada.runs.run_files import RunRecord
from costada.runs.stored_run import StoredRun
from costada.store.address import is_there
from costada.store.checkpoints import END_OF_ITERATION, RunCheckpoints, RunSaver
from costada.store.lease import LostLease
from costada.store.outage import LostWrites, Patience, waiting_for_database
from costada.store.run_store import RunStore
from costada.values.evaluation import failed
from costada.values.numbering import START, Iteration
from costada.values.search_result import Discovery, RunEnd

LOG = logging.getLogger("costada.runs")


def execute_run(
    plan: Plan,
    folder: RunFolder,
    progress: Progress,
    control: RunControl,
    *,
    accepts_loss: bool = False,
    lease: AbstractContextManager[object] | None = None,
) -> Discovery:
    """Start a run, or resume it from its last checkpoint, and return what it finds.

    A stopped run continues when the plan allows it more money or iterations than before: its
    finished steps stay as they are, and from the next one on the controller sees the plan's budget.
    The folder must hold the run's settings. Its files are up to date whenever this returns or
    raises, and another call after an interruption resumes the run. Where its database has lost
    writes, the run goes on from what is there, and what is missing of its requests counts as spent.
    Where only the lease is lost, it goes on if no other process holds the run; writes that turn out
    to be missing then are no loss that is accepted.

    Args:
        plan: The run.
        folder: The run's folder.
        progress: Shows the iterations.
        control: Lets another party stop the run after the current node.
        accepts_loss: Whether steps that the run file has lost may be paid for again; their cost
            counts as spent.
        lease: Lease of a caller that holds the folder; released before the page is closed.

    Raises:
        ValueError: If another process works in the folder, its run file is damaged, another
            version's, missing or has lost steps, or a provider rejects a request permanently or
            does not respond.
        UnmeteredCall: If a response has no token counts and estimates are not allowed.
        OSError: If a file cannot be written, or its database was away for `longest_pause`; the run
            can be resumed afterwards.
    """
    longest_pause = plan.settings.retry_policy.longest_pause
    held = lease or folder.hold()
    with waiting_for_database(patience_of(longest_pause, control)):
        while True:
            try:
                return _execute(plan, folder, progress, control, accepts_loss, held)
            except (LostLease, LostWrites) as error:
                if lease is not None:  # what the caller holds ends with it
                    raise
                # From what is there; the folder knows what the requests that are not have cost.
                LOG.warning("%s", error)
                held = folder.hold()
                if isinstance(error, LostWrites):
                    accepts_loss = True
                    if plan.purse:
                        plan.purse.accept_loss()


def patience_of(longest_pause: float, control: RunControl) -> Patience:
    """How long a run waits for its database: not after it is asked to stop."""

    def check() -> None:
        if control.drain_requested:
            raise InterruptedError("the run was asked to stop while it waited for its database")

    return Patience(longest_pause, check)


def _execute(
    plan: Plan,
    folder: RunFolder,
    progress: Progress,
    control: RunControl,
    accepts_loss: bool,
    lease: AbstractContextManager[object],
) -> Discovery:
    """Do what `execute_run` does, without waiting for its database."""
    folder.check_kept()
    tracking = Tracking(folder.load().log, folder, plan.title)
    has_begun, reason = False, ""
    files: RunRecord | None = None
    try:
        with (
            lease,
            # After the lease: two processes would start a gateway each.
            gateway_of(plan, folder) as plan,
            RunStore.at(folder.database) as store,
            _saver(folder, keep_history=plan.keep_history) as saver,
        ):
            # Before the graph reads the call log, in which these dollars count as spent.
            notice = _charge_lost_steps(plan, folder, store, accepts_loss=accepts_loss)
            if isinstance(folder, StoredRun):
                store.call_log.note_beside(folder.requests, store.last_run())
            _note_purse(plan, folder, store)
            graph = plan.graph(checkpointer=saver, store=store)
            files = RunRecord(folder, plan, store, tracking)
            try:
                with progress:
                    if plan.gateway_notice:
                        progress.notice(plan.gateway_notice)
                    if notice:  # logged: a server shows no progress
                        LOG.warning("%s: %s", folder.place, notice)
                    _stream(graph, plan, store, files, progress, control)
            except (LostLease, LostWrites):
                store.call_log.share_no_more()
                raise
            finally:
                # An interrupted stream may lack steps that the store has.
                files.finish()
                has_begun = bool(store.run_ids())
            found = _discovery(_state(graph, folder.thread), plan, store, folder.path)
            reason = found.stop_reason
            if plan.gateway and reason != "interrupted":
                installed_gateway().stop(folder)
            progress.end(found)
            return found
    finally:
        # The lease is released: the page says how the run ended.
        try:
            if files:
                files.close_page(has_begun=has_begun)
        finally:
            tracking.end(reason, {BEST_PROGRAM: folder.best_program, "report": folder.report})


@contextmanager
def gateway_of(plan: Plan, folder: RunFolder) -> Iterator[Plan]:
    """Yield a plan whose models call through the run's gateway, if it uses one.

    The caller holds the run's lease.

    Raises:
        ValueError: The plan cannot use one, or its files are refused.
        OSError: A file cannot be written, or the gateway cannot be started or does not respond.
    """
    if not uses_gateway(plan.gateway, folder):
        yield plan
        return
    with installed_gateway().through(plan.models, folder, plan.call_timeout) as change:
        yield replace(plan.with_models_changed(change), gateway=True)


def is_finished(folder: RunFolder) -> bool:
    """Whether the run in a folder has ended and, by its settings, has nothing left to do.

    Raises:
        ValueError: If its run file is damaged, another version's or missing.
    """
    state = saved_state(folder)
    if state is None or not state.get("stop_reason"):
        return False
    config = folder.load()
    return not can_resume(state, config.budget, config.max_iterations, config.target)


def saved_state(folder: RunFolder) -> SearchState | None:
    """The state of a run at its last checkpoint, with what is spent now; `None` before the first.

    Raises:
        ValueError: If its run file is damaged, another version's or missing.
    """
    folder.check_kept()
    if not is_there(folder.database):
        return None
    with _saver(folder, is_read_only=True) as saver:
        saved = saver.get_tuple(folder.thread)
    state = restore(saved.checkpoint["channel_values"]) if saved else None
    if state is None or "run" not in state:
        return state
    with RunStore.at(folder.database, is_read_only=True) as store:
        return {**state, "spent": spent_by_ledger(state, store)}


@contextmanager
def _saver(
    folder: RunFolder, *, keep_history: bool = True, is_read_only: bool = False
) -> Iterator[RunCheckpoints]:
    """The saver of a run's checkpoints; in a database it can be one that only reads."""
    place = folder.database
    opened: RunCheckpoints
    if isinstance(place, Path):
        opened = RunSaver(place, keep_history=keep_history)
    else:
        from costada.store.postgres_checkpoints import PostgresRunSaver

        opened = PostgresRunSaver(
            place.database, keep_history=keep_history, is_read_only=is_read_only
        )
    with closing(opened) as saver:
        yield saver
        saver.prune_thread(folder.thread)


def _stream(
    graph: DiscoveryGraph,
    plan: Plan,
    store: RunStore,
    files: RunRecord,
    progress: Progress,
    control: RunControl,
) -> None:
    """Run the graph to its end or until it is interrupted."""
    heading = RunHeading(
        plan.title,
        plan.budget,
        plan.settings.constants.max_iterations,
        sandbox=_sandbox_text(plan),
        parallel=plan.parallel,
        database=files.database,
    )
    progress.begin(heading, files.recent_rows)
    state = _state(graph, files.thread)
    if state.get("stop_reason") and not can_continue(state, graph.search):
        return
    layer = plan.sandbox or ""
    if files.first_sandbox not in ("", layer):
        progress.notice(f"This run started in sandbox {files.first_sandbox}, now uses {layer}")
    if files.changes:  # logged, as a quiet command shows what is logged, too
        LOG.warning(
            "The problem has changed since this run started: %s. Earlier scores stay as they are",
            "; ".join(files.changes),
        )
    # Without an input LangGraph continues from the last checkpoint of the thread.
    given = None if state else SearchInput(seed=plan.settings.seed)
    try:
        # With custom streams LangGraph would execute every node in a thread of its own.
        # Sync durability: a node may spend money only when the one before it is on disk.
        # Of one key only: what every node has written would be picked out and handed over for each.
        values = graph.stream(
            given,
            files.thread,
            stream_mode="values",
            output_keys=END_OF_ITERATION,
            durability="sync",
            control=control,
        )
        for iteration in _iterations_after(state.get("iterations", START), values):
            progress.step(files.add(iteration))
    except GraphDrained:
        return
    except InterruptedError:
        if not control.drain_requested:
            raise
    finally:
        _await_calls(store, progress)


def _sandbox_text(plan: Plan) -> str:
    """What confines the candidates, and where; empty if the problem's own evaluate handles that."""
    backend = plan.problem.backend
    if backend is None or plan.sandbox is None:
        return described_layer(plan.sandbox) if plan.sandbox else ""
    return f"{plan.sandbox} or stronger, evaluations {backend.name}"


def _iterations_after(last: Iteration, values: Iterator[object]) -> Iterator[Iteration]:
    """The iterations that end after one; LangGraph also streams what a run resumes with."""
    for value in values:
        if isinstance(value, int) and value > last:
            last = Iteration(value)
            yield last


def _await_calls(store: RunStore, progress: Progress) -> None:
    """Let model calls in flight end, so that their answers are stored; cancel evaluations."""
    for run_id in store.run_ids()[-1:]:
        pool = pool_of(store, run_id)
        number = pool.num_in_flight
        pool.cancel()
        try:
            if number:
                progress.notice(
                    f"Calls in flight: {number}. Waiting for their answers, which are kept"
                )
        finally:
            pool.settle()  # also where the notice cannot be written


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
    if plan.gateway and repeats_steps(plan.parallel, plan.order):
        return f"{lost.words}; the gateway has kept the answers"
    if not accepts_loss:
        lost.check(folder, plan.budget, is_accepted=False)
    if not lost.is_paid_again:
        return f"{lost.words}; all that they cost counts already, and they are repeated"
    lost.charge(store)
    if plan.purse:
        run_id = store.run_ids()[-1]
        account = plan.purse.child(run_id, plan.budget)
        # The purse still has entries of the lost steps. Their dollars are part of this ticket now,
        # so each entry becomes what the call log has of it.
        forgotten = reported_tickets(account) - store.iterations(run_id).keys()
        counts_lost = plan.settings.lost_calls == "count"
        settle(account, store, run_id, counts_lost=counts_lost, lost=forgotten)
    return f"{lost.words}; these dollars count as spent in iteration {lost.first}"


def _note_purse(plan: Plan, folder: RunFolder, store: RunStore) -> None:
    """Let a run that is resumed name the purse that pays for it now; a new one does so itself.

    Raises:
        ValueError: A purse has paid for the run, or was to, and none is to pay for it now.
    """
    run_id, purse = store.last_run(), plan.purse.root if plan.purse else ""
    setup = store.setup(run_id)
    if not purse and (known := setup.purse if setup else folder.purse):
        raise ValueError(
            "purse: got None for a run that draws from a purse; expected the purse it began with,"
            f" {known!r}"
        )
    if setup and purse != setup.purse:
        store.put_setup(run_id, replace(setup, purse=purse))


def _state(graph: DiscoveryGraph, thread: RunnableConfig) -> SearchState:
    return cast(SearchState, graph.get_state(thread).values)


def _discovery(state: SearchState, plan: Plan, store: RunStore, folder: Path) -> Discovery:
    """The result so far; before the first checkpoint, the initial program is the best."""
    spent = state.get("spent", 0.0)
    granted = state["account"].granted if "account" in state else None
    reason = cast(RunEnd, state.get("stop_reason") or "interrupted")
    seed = plan.seed_evaluation or failed("not evaluated")
    result = state.get("result", state.get("best"))
    best = store.candidates.get(state["run"].id, result) if result is not None else None
    program = best.program if best else plan.problem.start
    return Discovery(
        best_program=program.text,
        best_score=best.score if best else seed.score,
        best_objective=best.objective if best else seed.objective,
        best_metrics=best.metrics if best else seed.metrics,
        best_files=program.by_path,
        validation_score=best.validation_score if best else None,
        in_doubt=state.get("in_doubt", 0.0),
        pareto_front=state.get("pareto_front", ()),
        spent=spent,
        remaining=max(0.0, remaining(plan.budget if granted is None else granted, spent)),
        iterations=state.get("iterations", 0),
        stop_reason=reason,
        folder=folder,
        sandbox=plan.sandbox,
        last_failure=state.get("last_failure", "") if reason == "failures" else "",
    )
