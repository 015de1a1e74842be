"""What is wrapped around a node: the run's context, time, telemetry and cancellation."""

import asyncio
from collections.abc import Callable
from contextvars import copy_context
from functools import partial
from inspect import Parameter, signature
from time import perf_counter
from typing import Any, cast

from langchain_core.runnables import Runnable, RunnableConfig

from costada.evaluators.sandbox.cancellation import CancellationToken, current_token
from costada.nodes.calls.telemetry import traced
from costada.nodes.changed_evaluator import check_evaluator
from costada.nodes.context import RunContext
from costada.nodes.open_run import newest_checkpoint
from costada.nodes.parallel.active_runs import confirm, register_run
from costada.nodes.parallel.pool import NODE_THREADS
from costada.nodes.seal import check_seal, sealed
from costada.nodes.state import SearchState, plain
from costada.store.lease import Lease, guarding_lease

Node = Callable[..., SearchState]


def observed(node: Node, name: str, context: RunContext) -> Node:
    """Bind the run's context to a node, and add the seconds of the step so far to its update.

    The update also holds `trace` where a trace began. The node that ends a step stores the seconds.
    Time spent waiting for a caller's answer is not counted: an interrupted node is executed again.
    A node takes the state, a `context`, and what LangGraph offers by name.
    """
    bound = partial(node, context=context)
    parameters = dict(signature(bound).parameters)
    takes_config = parameters.pop("config", None) is not None

    def run(state: SearchState, *, config: RunnableConfig, **given: object) -> SearchState:
        began = perf_counter()
        newest = newest_checkpoint(state) if context.is_saved_by_time else ""
        if takes_config:
            given["config"] = config
        is_first = register_run(state.get("run_id", ""), config, context)
        if is_first and not begins_run(state, name):
            check_seal(state, context.store)  # later nodes get the state of this execution
            check_evaluator(state, context)
        update = traced(name, partial(bound, state, **given), state, context)
        register_run(update.get("run_id", ""), config, context)
        opens_run = "run_id" in update
        seconds = {} if opens_run else dict(state.get("seconds", {}))
        seconds[name] = seconds.get(name, 0.0) + perf_counter() - began
        if "iterations" in update and not opens_run:
            context.store.timing.put(state["run_id"], update["iterations"], seconds)
            seconds = {}
        if lease := guarding_lease():
            # `RunCheckpoints` check the lease as they save; other savers do not
            (confirm if context.is_saved_by_time else Lease.check)(lease)
        written = {key: plain(value) for key, value in update.items()}
        update = cast(SearchState, {**written, "seconds": seconds})
        if newest:
            update["newest_checkpoint"] = newest
        return sealed(state, update, context.store)

    config = Parameter("config", Parameter.KEYWORD_ONLY, annotation=RunnableConfig)
    run.__name__ = name
    # LangGraph reads here what a node takes by name: the config, and the writer of a stream.
    run.__signature__ = signature(bound).replace(  # type: ignore[attr-defined]
        parameters=[*parameters.values(), config]
    )
    return run


def begins_run(state: SearchState, name: str) -> bool:
    """Whether a node that is about to be executed opens a new run on the thread of an old one."""
    return name == "allocate_frontier" and bool(state["stop_reason"])


class CancellableNode(Runnable[SearchState, SearchState]):
    """A node that leaves no evaluation behind when the task it runs in is cancelled.

    It runs in a thread, as every node of an async run does; a thread alone would continue until the
    candidate's time is over, and Ctrl-C would wait for it.
    """

    def __init__(self, node: Node, name: str) -> None:
        self._node = node
        self._takes_config = "config" in signature(node).parameters
        self.name = name

    def invoke(
        self, input: SearchState, config: RunnableConfig | None = None, **kwargs: Any
    ) -> SearchState:
        """Execute the node."""
        return self._ready(config)(input)

    async def ainvoke(
        self, input: SearchState, config: RunnableConfig | None = None, **kwargs: Any
    ) -> SearchState:
        """Execute the node in a thread; a cancellation stops its evaluation."""
        token = CancellationToken()
        current_token.set(token)
        try:
            work = partial(copy_context().run, self._ready(config), input)
            return await asyncio.get_running_loop().run_in_executor(NODE_THREADS, work)
        except asyncio.CancelledError:
            token.cancel()
            raise

    def _ready(self, config: RunnableConfig | None) -> Node:
        return partial(self._node, config=config) if self._takes_config else self._node


class Route(Runnable[SearchState, str]):
    """A route that never leaves its thread, so that a cancellation cannot come before it.

    LangGraph executes a function in another thread in an async run. A run that is cancelled while
    it waits for that thread saves what the node wrote, but not who goes next: it would end there.
    """

    def __init__(self, route: Callable[[SearchState], str], name: str) -> None:
        self._route = route
        self.name = name

    def invoke(
        self, input: SearchState, config: RunnableConfig | None = None, **kwargs: Any
    ) -> str:
        """The label of the next edge."""
        return self._route(input)

    async def ainvoke(
        self, input: SearchState, config: RunnableConfig | None = None, **kwargs: Any
    ) -> str:
        """The label of the next edge, at once."""
        return self._route(input)
