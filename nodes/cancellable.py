"""A node whose evaluation an async caller can cancel."""

import asyncio
from collections.abc import Callable
from typing import Any

from langchain_core.runnables import Runnable, RunnableConfig

from costada.evaluators.sandbox.interruption import Interruption, current_interruption
from costada.graph.state import SearchState


class CancellableNode(Runnable[SearchState, SearchState]):
    """A node that leaves no evaluation behind when the task it runs in is cancelled.

    It runs in a thread, as every node of an async run does; a thread alone would go on until the
    candidate's time is over, and Ctrl-C would wait for it.
    """

    def __init__(self, node: Callable[[SearchState], SearchState], name: str) -> None:
        self._node = node
        self.name = name

    def invoke(
        self, input: SearchState, config: RunnableConfig | None = None, **kwargs: Any
    ) -> SearchState:
        """Return what the node returns."""
        return self._node(input)

    async def ainvoke(
        self, input: SearchState, config: RunnableConfig | None = None, **kwargs: Any
    ) -> SearchState:
        """Return what the node returns; a cancellation stops its evaluation."""
        interruption = Interruption()
        current_interruption.set(interruption)
        try:
            return await asyncio.to_thread(self._node, input)
        except asyncio.CancelledError:
            interruption.request()
            raise


def cancellable(node: Callable[[SearchState], SearchState], name: str) -> CancellableNode:
    """Return a node whose evaluation ends with the task it runs in."""
    return CancellableNode(node, name)
