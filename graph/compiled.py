"""The compiled discovery graph: its limit of supersteps is its own, wherever it runs."""

from typing import TYPE_CHECKING, Any, Self

from langchain_core.runnables import RunnableConfig
from langgraph.graph.state import CompiledStateGraph

from costada.graph.state import SearchInput, SearchOutput, SearchState


class DiscoveryGraph(CompiledStateGraph[SearchState, None, SearchInput, SearchOutput]):
    """A compiled search.

    A parent graph, a chain and an agent hand their `recursion_limit` down with their configuration,
    25 for instance, which would end a search after three iterations. A search ends by its budget
    and its iterations, so it goes by the limit in its own `config` only: `with_config` changes it.
    """

    @classmethod
    def of(cls, compiled: CompiledStateGraph[SearchState, None, SearchInput, SearchOutput]) -> Self:
        """Return a compiled graph as one whose limit is its own."""
        parts = {name: part for name, part in vars(compiled).items() if name != "__orig_class__"}
        return cls(**parts)

    if not TYPE_CHECKING:  # the overloads of the base class stay as they are

        def stream(self, input: object, config: RunnableConfig | None = None, **options: Any):
            """Return the stream of a run, as every graph does."""
            return super().stream(input, self._limited(config), **options)

        def astream(self, input: object, config: RunnableConfig | None = None, **options: Any):
            """Return the asynchronous stream of a run, as every graph does."""
            return super().astream(input, self._limited(config), **options)

    def _limited(self, config: RunnableConfig | None) -> RunnableConfig | None:
        limit = (self.config or {}).get("recursion_limit")
        if limit is None:
            return config
        return RunnableConfig(**{**(config or RunnableConfig()), "recursion_limit": limit})
