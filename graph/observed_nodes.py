"""A node whose evaluation an async caller can cancel."""

import asyncio
from collections.abc import Callable
from functools import partial
from inspect import Parameter, signature
from time import perf_counter
from typing import Any

from langchain_core.runnables import Runnable, RunnableConfig

from costada.evaluators.sandbox.cancellation import CancellationToken, current_token
from costada.nodes.calls.purse import note
from costada.nodes.calls.telemetry import traced
from costada.nodes.context import RunContext
from costada.nodes.open_run import newest_checkpoint
from costada.nodes.state import SearchState

CONFIG = Parameter("config", Parameter.KEYWORD_ONLY, annotation=RunnableConfig)


class WatchedNode:
    """A node that returns what it always returns, and the seconds of the step so far.

    The node that ends a step stores them. Time spent waiting for a caller's answer is not counted:
    an interrupted node is executed anew.
    """

    def __init__(self, node: Callable[..., SearchState], context: RunContext) -> None:
        """Watch a node that takes the state, a `context`, and what LangGraph offers by name."""
        self._node = partial(node, context=context)
        self._context = context
        self.__name__ = node.__name__
        own = signature(self._node)
        self._takes_config = CONFIG.name in own.parameters
        others = {name: each for name, each in own.parameters.items() if name != CONFIG.name}
        self.__signature__ = own.replace(parameters=[*others.values(), CONFIG])

    def __call__(
        self, state: SearchState, *, config: RunnableConfig, **given: object
    ) -> SearchState:
        """Return the node's update with `seconds`, and with `trace` where a trace began.

        Raises:
            ValueError: The clock was set back, and the saver goes by it.
        """
        began = perf_counter()
        newest = newest_checkpoint(state) if self._context.is_saved_by_time else ""
        if self._takes_config:
            given["config"] = config
        note(state.get("run_id", ""), config, self._context)
        work = partial(self._node, state, **given)
        update = traced(self.__name__, work, state, self._context)
        note(update.get("run_id", ""), config, self._context)
        timed = self._timed(state, update, perf_counter() - began)
        return SearchState(**timed, newest_checkpoint=newest) if newest else timed

    def _timed(self, state: SearchState, update: SearchState, took: float) -> SearchState:
        opens_run = "run_id" in update
        ends_step = "iterations" in update and not opens_run
        seconds = {} if opens_run else dict(state.get("seconds", {}))
        seconds[self.__name__] = seconds.get(self.__name__, 0.0) + took
        if ends_step:
            self._context.store.timing.put(state["run_id"], update["iterations"], seconds)
            seconds = {}
        return SearchState(**{**update, "seconds": seconds})


def watched(node: Callable[..., SearchState], context: RunContext) -> WatchedNode:
    """Return a node of the graph with the run's context bound to it, timed and traced."""
    return WatchedNode(node, context)


class CancellableNode(Runnable[SearchState, SearchState]):
    """A node that leaves no evaluation behind when the task it runs in is cancelled.

    It runs in a thread, as every node of an async run does; a thread alone would go on until the
    candidate's time is over, and Ctrl-C would wait for it.
    """

    def __init__(self, node: Callable[..., SearchState], name: str) -> None:
        self._node = node
        self._takes_config = "config" in signature(node).parameters
        self.name = name

    def invoke(
        self, input: SearchState, config: RunnableConfig | None = None, **kwargs: Any
    ) -> SearchState:
        """Return what the node returns."""
        return self._ready(config)(input)

    async def ainvoke(
        self, input: SearchState, config: RunnableConfig | None = None, **kwargs: Any
    ) -> SearchState:
        """Return what the node returns; a cancellation stops its evaluation."""
        interruption = CancellationToken()
        current_token.set(interruption)
        try:
            return await asyncio.to_thread(self._ready(config), input)
        except asyncio.CancelledError:
            interruption.cancel()
            raise

    def _ready(self, config: RunnableConfig | None) -> Callable[..., SearchState]:
        return partial(self._node, config=config) if self._takes_config else self._node


def cancellable(node: Callable[..., SearchState], name: str) -> CancellableNode:
    """Return a node whose evaluations end with the task it runs in; it may take the `config`."""
    return CancellableNode(node, name)
