"""The compiled discovery graph: its limit of supersteps is its own, and it returns what it drew."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Self

from langchain_core.runnables import RunnableConfig, ensure_config
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.errors import GraphBubbleUp
from langgraph.graph.state import CompiledStateGraph
from langgraph.types import StateUpdate

from costada.graph.arguments import check_config, check_input, check_keys, check_updates
from costada.nodes.calls.purse import PURSES, give_back
from costada.nodes.state import SearchInput, SearchOutput, SearchState
from costada.store.purse import Purse

NO_THREAD = (
    "Checkpointer requires one or more of the following 'configurable' keys: thread_id,"
    " checkpoint_ns, checkpoint_id"
)
"""What LangGraph says of a saver without a thread, where nothing at all is configurable."""

NODE_NAME = "langgraph_node"
"""Metadata that LangGraph adds to the configuration of whatever runs as a node."""

INTERNAL = "__pregel"
"""How the configurable keys begin that LangGraph hands down to what runs below a graph."""


class DiscoveryGraph(CompiledStateGraph[SearchState, None, SearchInput, SearchOutput]):
    """A compiled search.

    A parent graph, a chain and an agent hand their `recursion_limit` down with their configuration,
    25 for instance, which would end a search after three iterations. A search ends by its budget
    and its iterations, so it goes by the limit in its own `config` only: `with_config` changes it.

    Nothing that a caller gives is ignored: unknown keys of the input and of an update of the state
    are refused, and so is a key named like a setting of the search anywhere in a configuration,
    where other keys are a parent's or a server's own. Below a parent graph the input is the
    parent's state, whose other keys pass too.

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
            """Yield what a run streams, as every graph does; raises as `check_input` does too."""
            self._check_run(input, config, options)
            with _giving_back() as purses:
                yield from super().stream(input, self._own(config, purses), **options)

        async def astream(
            self, input: object, config: RunnableConfig | None = None, **options: Any
        ):
            """Yield what a run streams, without blocking the event loop."""
            self._check_run(input, config, options)
            with _giving_back() as purses:
                async for part in super().astream(input, self._own(config, purses), **options):
                    yield part

    def bulk_update_state(
        self, config: RunnableConfig, supersteps: Sequence[Sequence[StateUpdate]]
    ) -> RunnableConfig:
        """Update the state, as `update_state` does; an unknown key raises `ValueError`."""
        check_updates(supersteps)
        return super().bulk_update_state(config, supersteps)

    async def abulk_update_state(
        self, config: RunnableConfig, supersteps: Sequence[Sequence[StateUpdate]]
    ) -> RunnableConfig:
        """Do what `bulk_update_state` does, without blocking the event loop."""
        check_updates(supersteps)
        return await super().abulk_update_state(config, supersteps)

    def _check_run(
        self, given: object, config: RunnableConfig | None, options: dict[str, Any]
    ) -> None:
        """Refuse what a run would ignore; raises `ValueError`."""
        is_node = NODE_NAME in (config or {}).get("metadata", {})
        check_input(given, is_parents_state=is_node)
        check_keys("context", options.get("context"))
        check_keys("invoke or stream", options)
        places = [each or RunnableConfig() for each in (ensure_config(), self.config, config)]
        for place in places:
            check_config(place)
        configurable = [key for place in places for key in place.get("configurable", {})]
        is_nested = any(key.startswith(INTERNAL) for key in configurable)
        has_saver = isinstance(self.checkpointer, BaseCheckpointSaver)
        if has_saver and not is_nested and "thread_id" not in configurable:
            raise ValueError(NO_THREAD)

    def _own(self, config: RunnableConfig | None, purses: dict[str, Purse]) -> RunnableConfig:
        given = config or RunnableConfig()
        noted = {**given.get("configurable", {}), PURSES: purses}
        own = RunnableConfig(**{**given, "configurable": noted})
        if limit := (self.config or {}).get("recursion_limit"):
            own["recursion_limit"] = limit
        return own


@contextmanager
def _giving_back() -> Iterator[dict[str, Purse]]:
    """Have runs that are left give back what they did not spend, but not those that ask."""
    purses: dict[str, Purse] = {}
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
