"""A search inside somebody's graph: what it streams is told there, what it returns comes back."""

from collections.abc import Callable
from typing import Literal, TypedDict, cast

from langchain_core.runnables import RunnableConfig
from langgraph.config import get_stream_writer
from langgraph.graph.state import CompiledStateGraph
from langgraph.types import Command

from costada.graph.state import SearchInput, SearchOutput, SearchState

Search = CompiledStateGraph[SearchState, None, SearchInput, SearchOutput]
INTERNAL = ("__", "checkpoint")
"""How names begin under which LangGraph hands a run's own things down."""

Given = SearchInput | Command[object] | None


class _Options(TypedDict):
    stream_mode: list[Literal["custom", "values"]]
    output_keys: str | list[str]


def follow(graph: Search, given: Given, config: RunnableConfig | None) -> SearchOutput:
    """Return what a search returns, and write its trace rows to the stream of the graph around it.

    Those who stream the outer graph in mode `"custom"` see the rows without `subgraphs=True`.
    Interrupts of the search pass to the outer graph, which keeps it where it stands if it has a
    saver.

    Args:
        graph: The search.
        given: Its input.
        config: The configuration that the outer graph handed down.
    """
    tell, found = _writer(), SearchOutput()
    for mode, chunk in graph.stream(given, _placed(graph, config), **_options(graph)):
        if mode == "custom":
            tell(chunk)
        else:
            found = cast(SearchOutput, chunk)
    return found


async def afollow(graph: Search, given: Given, config: RunnableConfig | None) -> SearchOutput:
    """Return what `follow` returns, without blocking the event loop."""
    tell, found = _writer(), SearchOutput()
    async for mode, chunk in graph.astream(given, _placed(graph, config), **_options(graph)):
        if mode == "custom":
            tell(chunk)
        else:
            found = cast(SearchOutput, chunk)
    return found


def _placed(graph: Search, config: RunnableConfig | None) -> RunnableConfig | None:
    """Return the configuration of a search; one that saves nothing gets a place of its own.

    LangGraph hands `durability="sync"` down to it as well, and fails where nothing is saved.
    """
    if graph.checkpointer is not False:
        return config
    theirs = (config or RunnableConfig()).get("configurable", {})
    ours = {name: value for name, value in theirs.items() if not name.startswith(INTERNAL)}
    place = {**ours, "thread_id": "unsaved"}
    return RunnableConfig(**{**(config or RunnableConfig()), "configurable": place})


def _options(graph: Search) -> _Options:
    keys = graph.output_channels
    return _Options(
        stream_mode=["custom", "values"],
        output_keys=keys if isinstance(keys, str) else list(keys),
    )


def _writer() -> Callable[[object], None]:
    """Return the stream writer of the graph around; outside of one there is nobody to tell."""
    try:
        return get_stream_writer()
    except (RuntimeError, KeyError):
        return lambda row: None
