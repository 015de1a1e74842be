"""A search with a saver of its own inside another graph: on a thread that the outer state names.

LangGraph does not keep the interrupts of such a search with those of the outer graph, and a node
that asked twice would be given the first answer twice. So searching and asking are two nodes here,
and an answer goes only to the question it was given to.
"""

from typing import Any, cast

from langchain_core.runnables import Runnable, RunnableConfig
from langgraph.graph import END, START, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.types import Command, StateSnapshot, interrupt

from costada.agents.following import Given, Search, afollow, follow
from costada.graph.state import SearchInput, SearchOutput


class ThreadInput(SearchInput, total=False):
    """The input of a search, and the id of its thread in its own saver."""

    thread: str


class ThreadState(ThreadInput, SearchOutput, total=False):
    """A search on its thread.

    `question` is what it asks its caller, `asked` the id of that interrupt, empty when there is
    none; `answer` is what the caller said to it.
    """

    question: object
    asked: str
    answer: object


def on_own_thread(search: Search) -> CompiledStateGraph[Any, None, Any, Any]:
    """Return a graph that goes on with a search on its thread, and asks what the search asks.

    A thread without a run begins one; one whose run is over returns what it found.
    """
    graph = StateGraph(ThreadState, input_schema=ThreadInput, output_schema=SearchOutput)
    graph.add_node("search", _Turn(search))
    graph.add_node("ask", _ask)
    graph.add_edge(START, "search")
    graph.add_conditional_edges(
        "search", lambda state: bool(state["asked"]), {True: "ask", False: END}
    )
    graph.add_edge("ask", "search")
    return graph.compile(name=search.name)


def _ask(state: ThreadState) -> ThreadState:
    """Return the answer to the search's question; does nothing else, as it is executed twice."""
    return ThreadState(answer=interrupt(state["question"]))


class _Turn(Runnable[ThreadState, ThreadState]):
    """Lets a search go on until it ends or asks."""

    def __init__(self, search: Search) -> None:
        self._search = search

    def invoke(
        self, input: ThreadState, config: RunnableConfig | None = None, **kwargs: Any
    ) -> ThreadState:
        """Return what was found, or asked."""
        place = _place(input)
        before = self._search.get_state(place)
        if _can_go_on(before, input):
            follow(self._search, _next(before, input), place)
        return _told(self._search.get_state(place))

    async def ainvoke(
        self, input: ThreadState, config: RunnableConfig | None = None, **kwargs: Any
    ) -> ThreadState:
        """Return what `invoke` returns, without blocking the event loop."""
        place = _place(input)
        before = await self._search.aget_state(place)
        if _can_go_on(before, input):
            await afollow(self._search, _next(before, input), place)
        return _told(await self._search.aget_state(place))


def _place(state: ThreadState) -> RunnableConfig:
    return RunnableConfig(configurable={"thread_id": state["thread"]})


def _can_go_on(before: StateSnapshot, state: ThreadState) -> bool:
    """Return whether the search is neither over nor waiting for an answer that is not there."""
    if before.interrupts:
        return _is_answered(before, state)
    return bool(before.next) or "stop_reason" not in before.values


def _is_answered(before: StateSnapshot, state: ThreadState) -> bool:
    return "answer" in state and before.interrupts[0].id == state["asked"]


def _next(before: StateSnapshot, state: ThreadState) -> Given:
    """Return what a search that can go on is given."""
    if before.interrupts:
        return Command(resume=state["answer"])
    if before.next:
        return None
    return SearchInput(seed=state["seed"]) if "seed" in state else SearchInput()


def _told(after: StateSnapshot) -> ThreadState:
    if after.interrupts:
        return ThreadState(question=after.interrupts[0].value, asked=after.interrupts[0].id)
    found = {key: after.values[key] for key in SearchOutput.__annotations__ if key in after.values}
    return cast(ThreadState, {**found, "asked": ""})
