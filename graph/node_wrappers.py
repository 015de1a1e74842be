"""What is wrapped around a node: the run's context, time, telemetry and cancellation."""

import asyncio
from collections.abc import Callable
from contextvars import copy_context
from dataclasses import replace
from functools import cache, partial
from inspect import signature
from time import perf_counter
from typing import Any, cast

from langchain_core.runnables import Runnable, RunnableConfig
from langgraph.runtime import get_runtime

from costada.evaluators.sandbox.concurrency import CancellationToken, current_token
from costada.nodes.calls.telemetry import traced
from costada.nodes.changed_evaluator import check_evaluator
from costada.nodes.context import Node, PayingNode, RunContext, SearchRuntime
from costada.nodes.open_run import newest_checkpoint
from costada.nodes.parallel.active_runs import ACTIVE_RUNS, confirm, register_run
from costada.nodes.parallel.pool import NODE_THREADS
from costada.nodes.seal import check_seal, sealed
from costada.nodes.state import SearchState, plain
from costada.store.lease import Lease, guarding_lease


def observed(
    node: Node | PayingNode,
    name: str,
    default: RunContext,
) -> Callable[[SearchState, RunnableConfig, SearchRuntime], SearchState]:
    """Execute a node, or that of the run's method, and add the seconds of the step so far.

    The update also holds where a trace began. The node that ends a step stores the seconds. Time
    spent waiting for a caller's answer is not counted: an interrupted node is executed again.

    Args:
        node: The node.
        name: Its name.
        default: The context of a run whose caller chooses nothing.
    """

    def run(state: SearchState, config: RunnableConfig, runtime: SearchRuntime) -> SearchState:
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
        update = traced(name, partial(work, state, runtime, **given), state, context)
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
        written = cast(SearchState, {key: plain(value) for key, value in update.items()})
        return sealed(state, written, context.store)

    return run


@cache
def takes_config(node: Node | PayingNode) -> bool:
    """Whether the calls of a node inherit the callbacks of a configuration."""
    return "config" in signature(node).parameters


def context_of(given: object, default: RunContext) -> RunContext:
    """The context of a run, which a `DiscoveryGraph` resolves; else that of the graph."""
    return given if isinstance(given, RunContext) else default


def begins_run(state: SearchState, name: str) -> bool:
    """Whether a node that is about to be executed opens a new run on the thread of an old one."""
    return name == "allocate_frontier" and bool(state["stop_reason"])


class CancellableNode(Runnable[SearchState, SearchState]):
    """A node that leaves no evaluation behind when the task it runs in is cancelled.

    It runs in a thread, as every node of an async run does; a thread alone would continue until the
    candidate's time is over, and Ctrl-C would wait for it.
    """

    def __init__(self, node: Callable[..., SearchState], name: str) -> None:
        self._node, self.name = node, name

    def invoke(
        self, input: SearchState, config: RunnableConfig | None = None, **given: Any
    ) -> SearchState:
        """Execute the node."""
        return self._node(input, config, get_runtime())

    async def ainvoke(
        self, input: SearchState, config: RunnableConfig | None = None, **given: Any
    ) -> SearchState:
        """Execute the node in a thread; a cancellation stops its evaluation."""
        token = CancellationToken()
        current_token.set(token)
        try:
            work = partial(copy_context().run, self.invoke, input, config)
            return await asyncio.get_running_loop().run_in_executor(NODE_THREADS, work)
        except asyncio.CancelledError:
            token.cancel()
            raise


class Route(Runnable[SearchState, str]):
    """A route that never leaves its thread, so that a cancellation cannot come before it.

    LangGraph executes a function in another thread in an async run. A run that is cancelled while
    it waits for that thread saves what the node wrote, but not who goes next: it would end there.
    """

    def __init__(
        self, route: Callable[[SearchState, RunContext], str], default: RunContext
    ) -> None:
        self._route, self._default = route, default
        self.name = route.__name__

    def invoke(self, input: SearchState, config: RunnableConfig | None = None, **given: Any) -> str:
        """The label of the next edge."""
        runs = (config or {}).get("configurable", {}).get(ACTIVE_RUNS)
        return self._route(input, context_of(runs and runs.context, self._default))

    async def ainvoke(
        self, input: SearchState, config: RunnableConfig | None = None, **given: Any
    ) -> str:
        """The label of the next edge, at once."""
        return self.invoke(input, config)
