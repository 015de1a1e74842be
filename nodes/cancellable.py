"""A node whose evaluation an async caller can cancel."""

import asyncio
from collections.abc import Callable

from langchain_core.runnables import RunnableLambda

from costada.evaluators.sandbox.interruption import Interruption, current_interruption
from costada.graph.state import SearchState


def cancellable(
    node: Callable[[SearchState], SearchState], name: str
) -> RunnableLambda[SearchState, SearchState]:
    """Return a node that leaves no evaluation behind when the task it runs in is cancelled.

    It runs in a thread, as every node of an async run does; a thread alone would go on until the
    candidate's time is over, and Ctrl-C would wait for it.
    """

    async def run_in_thread(state: SearchState) -> SearchState:
        interruption = Interruption()
        current_interruption.set(interruption)
        try:
            return await asyncio.to_thread(node, state)
        except asyncio.CancelledError:
            interruption.request()
            raise

    return RunnableLambda(node, run_in_thread, name=name)
