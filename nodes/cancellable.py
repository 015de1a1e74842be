"""A node whose evaluation an async caller can cancel."""

import asyncio
from collections.abc import Callable
from functools import partial
from inspect import signature
from typing import Any

from langchain_core.runnables import Runnable, RunnableConfig

from costada.evaluators.sandbox.interruption import Interruption, current_interruption
from costada.graph.state import SearchState


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
        interruption = Interruption()
        current_interruption.set(interruption)
        try:
            return await asyncio.to_thread(self._ready(config), input)
        except asyncio.CancelledError:
            interruption.request()
            raise

    def _ready(self, config: RunnableConfig | None) -> Callable[..., SearchState]:
        return partial(self._node, config=config) if self._takes_config else self._node


def cancellable(node: Callable[..., SearchState], name: str) -> CancellableNode:
    """Return a node whose evaluations end with the task it runs in; it may take the `config`."""
    return CancellableNode(node, name)
