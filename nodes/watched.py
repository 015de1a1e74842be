"""A node under observation: how long it works, and a span for whoever listens."""

from collections.abc import Callable
from functools import partial
from inspect import signature
from time import perf_counter

from costada.graph.state import SearchState
from costada.nodes.context import RunContext
from costada.nodes.telemetry import traced


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
        self.__signature__ = signature(self._node)

    def __call__(self, state: SearchState, **given: object) -> SearchState:
        """Return the node's update with `seconds`, and with `trace` where a trace began."""
        began = perf_counter()
        work = partial(self._node, state, **given)
        update = traced(self.__name__, work, state, self._context)
        return self._timed(state, update, perf_counter() - began)

    def _timed(self, state: SearchState, update: SearchState, took: float) -> SearchState:
        opens_run, ends_step = "run_id" in update, "iterations" in update
        seconds = {} if opens_run else dict(state.get("seconds", {}))
        seconds[self.__name__] = seconds.get(self.__name__, 0.0) + took
        if ends_step:
            self._context.store.timing.put(state["run_id"], update["iterations"], seconds)
            seconds = {}
        return SearchState(**{**update, "seconds": seconds})


def watched(node: Callable[..., SearchState], context: RunContext) -> WatchedNode:
    """Return a node of the graph with the run's context bound to it, timed and traced."""
    return WatchedNode(node, context)
