"""The compiled discovery graph: its limit of supersteps is its own, and it returns what it drew."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Self

from langchain_core.runnables import RunnableConfig
from langgraph.errors import GraphBubbleUp
from langgraph.graph.state import CompiledStateGraph

from costada.graph.state import SearchInput, SearchOutput, SearchState
from costada.nodes.purse import PURSES, give_back
from costada.store.purse import Ledger


class DiscoveryGraph(CompiledStateGraph[SearchState, None, SearchInput, SearchOutput]):
    """A compiled search.

    A parent graph, a chain and an agent hand their `recursion_limit` down with their configuration,
    25 for instance, which would end a search after three iterations. A search ends by its budget
    and its iterations, so it goes by the limit in its own `config` only: `with_config` changes it.

    A run that raises, is cancelled or whose stream is left gives back to its purse what it did not
    spend; it draws that again when it goes on. One that asks its caller keeps it.
    """

    @classmethod
    def of(cls, compiled: CompiledStateGraph[SearchState, None, SearchInput, SearchOutput]) -> Self:
        """Return a compiled graph as one whose limit is its own."""
        parts = {name: part for name, part in vars(compiled).items() if name != "__orig_class__"}
        return cls(**parts)

    if not TYPE_CHECKING:  # the overloads of the base class stay as they are

        def stream(self, input: object, config: RunnableConfig | None = None, **options: Any):
            """Yield what a run streams, as every graph does."""
            with _giving_back() as purses:
                yield from super().stream(input, self._own(config, purses), **options)

        async def astream(
            self, input: object, config: RunnableConfig | None = None, **options: Any
        ):
            """Yield what a run streams, without blocking the event loop."""
            with _giving_back() as purses:
                async for part in super().astream(input, self._own(config, purses), **options):
                    yield part

    def _own(self, config: RunnableConfig | None, purses: dict[str, Ledger]) -> RunnableConfig:
        given = config or RunnableConfig()
        noted = {**given.get("configurable", {}), PURSES: purses}
        own = RunnableConfig(**{**given, "configurable": noted})
        if limit := (self.config or {}).get("recursion_limit"):
            own["recursion_limit"] = limit
        return own


@contextmanager
def _giving_back() -> Iterator[dict[str, Ledger]]:
    """Have runs that are left give back what they did not spend, but not those that ask."""
    purses: dict[str, Ledger] = {}
    is_left = True
    try:
        yield purses
        is_left = False
    except GraphBubbleUp:
        is_left = False
        raise
    finally:
        if is_left:
            give_back(purses)
