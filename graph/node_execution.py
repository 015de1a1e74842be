"""One execution of the graph: its runs, and what is wrapped around its nodes.

A node gets the context of its run, its time is taken, it leaves a sealed state and says who goes
next. It can be cancelled, and an execution that is aborted cancels the work of its runs and closes
their accounts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import copy_context
from dataclasses import dataclass, field, replace
from functools import cache, partial
from inspect import signature
from time import perf_counter, sleep
from typing import Any
from uuid import UUID

from langchain_core.runnables import Runnable, RunnableConfig
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.errors import GraphBubbleUp
from langgraph.runtime import get_runtime
from langgraph.types import Command

from costada.evaluators.sandbox.concurrency import CancellationToken, current_token
from costada.graph.routes import Branch
from costada.nodes.calls.run_account import begin_execution, close_account, settle_account
from costada.nodes.context import Node, PayingNode, RunContext, SearchRuntime, has_listener
from costada.nodes.open_run import check_evaluator
from costada.nodes.pool import NODE_THREADS, pool_of
from costada.nodes.saved_state import check_seal, with_seal
from costada.nodes.state import SearchState, plain
from costada.store.lease import Lease, LostLease, guarded_by, guarding_lease

ACTIVE_RUNS = "__costada_runs"
"""Key of a configuration: the runs that it executes."""


@dataclass(slots=True)
class ActiveRuns:
    """The runs of one execution of a graph.

    Where other machines can reach the store, this process holds the thread while it executes it,
    and as long as a run has calls in flight: another process would pay for them again.

    Attributes:
        lease: The lease of the thread, `None` where no other machine can execute it.
        contexts: The contexts of the runs by their ids.
        is_aborted: Whether the execution has neither ended nor asked its caller.
    """

    lease: Lease | None = None
    contexts: dict[str, RunContext] = field(default_factory=dict)
    is_aborted: bool = True

    @contextmanager
    def noting_end(self) -> Iterator[None]:
        """Note whether the block ends or asks its caller; otherwise the runs are aborted."""
        try:
            yield
        except GraphBubbleUp:
            self.is_aborted = False
            raise
        self.is_aborted = False

    def abort(self) -> None:
        """Cancel the evaluations, and return to the purses of the runs what they did not spend.

        Calls in flight end by themselves, are stored and reported. A run that is resumed evaluates
        again, and draws its budget again. If another process has taken over the thread, or the
        server cannot be asked, the account in the purse is not changed.
        """
        for run_id, context in self.contexts.items():
            pool_of(context.store, run_id).cancel()
        with suppress(LostLease), guarded_by(self.lease):
            if self._is_held():
                for run_id, context in self.contexts.items():
                    close_account(run_id, context)

    def settle(self) -> None:
        """Make the accounts of the runs exact in their purses, as nothing executes them now."""
        with suppress(LostLease), guarded_by(self.lease):
            for run_id, context in self.contexts.items():
                settle_account(run_id, context, self._is_held)

    def _is_held(self) -> bool:
        """Whether this process still holds the thread; a purse in another database cannot check it.

        Raises:
            LostLease: Another process has taken it over.
        """
        if self.lease is None:
            return True
        try:
            confirm(self.lease)
        except OSError:
            return False
        return True

    def release(self) -> None:
        """End the execution; the thread is free when the last call in flight has ended."""
        if self.lease is None:
            return
        for run_id, context in self.contexts.items():
            self.lease.holder.share(self.lease)
            pool_of(context.store, run_id).when_settled(self.lease.release)
        self.lease.release()


def confirm(lease: Lease) -> None:
    """Ask the server whether a lease is held, before a write that does not check it.

    Raises:
        LostLease: Another process has taken it over.
        OSError: The server cannot be reached.
    """
    try:
        lease.holder.renew()
    except OSError:
        lease.holder.renew()  # on another connection, as the first one was cut
    lease.check()


def register_run(state: SearchState, config: RunnableConfig, context: RunContext) -> bool:
    """Register the run of a state with this execution; returns whether it is new."""
    runs, run = config.get("configurable", {}).get(ACTIVE_RUNS), state.get("run")
    if run is None or runs is None or run.id in runs.contexts:
        return False
    runs.contexts[run.id] = context
    begin_execution(run.id, context)
    return True


def wrap_node(
    node: Node | PayingNode,
    name: str,
    default: RunContext,
    branch: Branch | None = None,
) -> Callable[[SearchState, RunnableConfig, SearchRuntime], Command[str]]:
    """Execute a node, or that of the run's method, and add the seconds of the step so far.

    The update also holds where a trace began. The node that ends a step stores the seconds. Time
    spent waiting for a caller's answer is not counted: an interrupted node is executed again.

    Args:
        node: The node.
        name: Its name.
        default: The context of a run whose caller chooses nothing.
        branch: Who may go next; `None` for a node that is always followed by the same one.
    """

    def run(state: SearchState, config: RunnableConfig, runtime: SearchRuntime) -> Command[str]:
        began = perf_counter()
        context = context_of(runtime.context, default)
        runtime = runtime.override(context=context)
        newest = newest_checkpoint(state) if context.is_saved_by_time else ""
        is_first = register_run(state, config, context)
        if is_first and not begins_run(state, name):
            check_seal(state, context.store)  # later nodes get the state of this execution
            check_evaluator(state, context)
        work = context.method.nodes.get(name, node)
        given = {"config": config} if takes_config(work) else {}
        perform = partial(work, state, runtime, **given)
        if has_listener():
            from costada.nodes.calls.telemetry import run_in_span

            update = run_in_span(name, perform, state, context)
        else:
            update = perform()
        register_run(update, config, context)
        opens_run = "run" in update
        noted = update.get("observed") or state["observed"]
        seconds = dict(noted.seconds)
        seconds[name] = seconds.get(name, 0.0) + perf_counter() - began
        if "iterations" in update and not opens_run:
            context.store.timing.put(state["run"].id, update["iterations"], seconds)
            seconds = {}
        if lease := guarding_lease():
            # `RunCheckpoints` check the lease as they save; other savers do not
            (confirm if context.is_saved_by_time else Lease.check)(lease)
        update = {**update, "observed": replace(noted, seconds=seconds)}
        if newest:
            update["newest_checkpoint"] = newest
        left: SearchState = {**state, **update}
        # Plain before LangGraph saves them, which it does for each node before the step ends.
        written = {key: plain(value) for key, value in update.items()}
        # The node itself says who goes next: LangGraph would give a conditional edge a copy of all
        # channels, and a run that is cancelled before an edge was asked would end there.
        goto = branch.follow(left, context) if branch else ()
        return Command(update=with_seal(left, written, context.store), goto=goto)

    # LangGraph looks for graphs in the bytecode of a function, most of the time of a compilation.
    return partial(run)


@cache
def takes_config(node: Node | PayingNode) -> bool:
    """Whether the calls of a node inherit the callbacks of a configuration."""
    return "config" in signature(node).parameters


def context_of(given: object, default: RunContext) -> RunContext:
    """The context of a run, which a `DiscoveryGraph` resolves; else that of the graph."""
    return given if isinstance(given, RunContext) else default


def begins_run(state: SearchState, name: str) -> bool:
    """Whether a node is about to open a new run on the thread of an old one."""
    return name == "allocate_frontier" and bool(state["stop_reason"])


class CancellableNode(Runnable[SearchState, Command[str]]):
    """A node that cancels its evaluation when the task it runs in is cancelled.

    It runs in a thread, as every node of an async run does; a thread alone would continue until the
    candidate's time is over, and Ctrl-C would wait for it.
    """

    def __init__(self, node: Callable[..., Command[str]], name: str) -> None:
        self._node, self.name = node, name

    def invoke(
        self, input: SearchState, config: RunnableConfig | None = None, **given: Any
    ) -> Command[str]:
        """Execute the node."""
        return self._node(input, config, get_runtime())

    async def ainvoke(
        self, input: SearchState, config: RunnableConfig | None = None, **given: Any
    ) -> Command[str]:
        """Execute the node in a thread; a cancellation stops its evaluation."""
        token = CancellationToken()
        current_token.set(token)
        try:
            work = partial(copy_context().run, self.invoke, input, config)
            return await asyncio.get_running_loop().run_in_executor(NODE_THREADS, work)
        except asyncio.CancelledError:
            token.cancel()
            raise


PATIENCE_SECONDS = 1.0
"""How long to wait for a clock that is behind, as those of two machines may be."""

TICKS_PER_SECOND = 10_000_000
"""Resolution of the time in an id."""


def newest_checkpoint(state: SearchState) -> str:
    """Highest checkpoint id that a run knows of; raises as `await_clock` does."""
    now = get_runtime().execution_info
    if now is None or now.thread_id is None:
        return ""
    newest = max(now.checkpoint_id, state.get("newest_checkpoint", ""))
    await_clock(newest, now.thread_id)
    return newest


def await_clock(newest: str, thread: str) -> None:
    """Wait until a new checkpoint has a higher id than the newest one of a thread.

    Raises:
        ValueError: That takes more than a second; the message says how far the clock is behind.
    """
    while (made := empty_checkpoint()["id"]) <= newest:
        behind = seconds_after(made, newest)
        if behind > PATIENCE_SECONDS:
            raise ValueError(
                f"clock: it is {behind:.0f} seconds before the newest checkpoint of thread"
                f" {thread!r}, so it was set back. The saver takes the checkpoint with the latest"
                " time for the newest, and would never find what is saved now. Correct the clock"
                " or wait until then, and resume; no request was sent"
            )
        sleep(behind)


def seconds_after(earlier: str, later: str) -> float:
    """Seconds between two checkpoints by their ids, whose first 60 bits hold the time."""
    numbers = (UUID(name).int for name in (earlier, later))
    # Between the two parts of the time stand four bits that name the version.
    first, second = ((number >> 80) << 12 | (number >> 64) & 0xFFF for number in numbers)
    return (second - first) / TICKS_PER_SECOND
