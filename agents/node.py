"""A search as a node of a graph whose state knows nothing of it."""

from collections.abc import Callable, Mapping
from typing import Any, Literal, TypedDict, TypeVar, cast

from langchain_core.runnables import Runnable, RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.config import get_stream_writer
from langgraph.graph import END, START, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.types import Command, StateSnapshot, interrupt

from costada.graph.compiled import check_input
from costada.nodes.state import SearchInput, SearchOutput, SearchState

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


MANY = 1_000_000
"""Supersteps that no search needs: what limits it is its budget."""

State = TypeVar("State", bound=Mapping[str, Any])
Update = Mapping[str, object]


class DiscoveryNode(Runnable[State, Update]):
    """Runs a search in a state that is not its own; made by `as_discovery_node`."""

    def __init__(
        self,
        graph: Search,
        given: Callable[[State], SearchInput],
        update: Callable[[SearchOutput], Update],
    ) -> None:
        self._graph, self._given, self._update = graph, given, update
        self.name = graph.name

    def invoke(self, input: State, config: RunnableConfig | None = None, **kwargs: Any) -> Update:
        """Return the keys of the outer state that the search changes."""
        return self._update(follow(self._graph, self._given(input), _unlimited(config)))

    async def ainvoke(
        self, input: State, config: RunnableConfig | None = None, **kwargs: Any
    ) -> Update:
        """Return what `invoke` returns, without blocking the event loop."""
        return self._update(await afollow(self._graph, self._given(input), _unlimited(config)))


def _unlimited(config: RunnableConfig | None) -> RunnableConfig:
    return RunnableConfig(**{**(config or RunnableConfig()), "recursion_limit": MANY})


def as_discovery_node(
    graph: Search,
    *,
    output: Callable[[SearchOutput], Update] | Mapping[str, str],
    input: Callable[[State], SearchInput] | Mapping[str, str] | None = None,
    thread: Callable[[State], str] | None = None,
) -> DiscoveryNode[State]:
    """Return a search as a node for a graph with a state of another kind.

    `parent.add_node("discover", as_discovery_node(graph, output={"best_program": "code"}))`. Works
    for `invoke` and `ainvoke`, and in a chain. The search's trace rows come out of the parent's
    custom stream as the node's own. Under a saver of the parent a stopped run goes on where it was,
    given that the graph's `store` is still there; a search with `checkpointer=True` keeps its state
    across visits of the node, one with `False` saves nothing and begins anew. What the search asks
    its caller (`on_exhausted="interrupt"`) is an interrupt of the parent.

    A search with a saver of its own runs on the `thread` that the state names: it goes on where it
    was even if the parent saves nothing, and a thread whose run is over returns what it found.

    Args:
        graph: The search, as `create_discovery_graph` returns it.
        output: From the search's result (a `SearchOutput`) to the keys of the state that change: a
            function, or the state's key for each key of the result that is wanted.
        input: From the state to the search's input (a `SearchInput`): a function, or the state's
            key for each key of the input; without it the input is empty.
        thread: From the state to a thread id of the graph's own saver.

    Raises:
        ValueError: There is a `thread` but no saver of the graph's own to keep it, or the other way
            round, or a mapping names a key that a search does not have.
    """
    _check_thread(graph, thread)
    given = _checked(input) if callable(input) else _given_by(input or {})
    update = output if callable(output) else _update_by(output)
    if thread is None:
        return DiscoveryNode(graph, given, update)
    return DiscoveryNode(on_own_thread(graph), _given_with(given, thread), update)


def _check_thread(graph: Search, thread: object) -> None:
    saver = graph.checkpointer
    if thread is None and isinstance(saver, BaseCheckpointSaver):
        raise ValueError(
            f"thread: got None for a graph with a {type(saver).__name__} of its own, which is used"
            " inside another graph only on a thread of its own; expected a function of the state"
        )
    if thread is not None and not isinstance(saver, BaseCheckpointSaver):
        raise ValueError(
            f"thread: got one for a graph with checkpointer {saver!r}, expected a saver"
        )


def _given_with(
    given: Callable[[State], SearchInput], thread: Callable[[State], str]
) -> Callable[[State], ThreadInput]:
    return lambda state: ThreadInput(**{**given(state), "thread": thread(state)})


def _checked(given: Callable[[State], SearchInput]) -> Callable[[State], SearchInput]:
    """Return a function whose answer has no key that a search would ignore."""

    def read(state: State) -> SearchInput:
        found = given(state)
        check_input(found)
        return found

    return read


def _given_by(keys: Mapping[str, str]) -> Callable[[Mapping[str, Any]], SearchInput]:
    """Return what reads the input from a state; a key that is not there yet is left out."""
    _check("input", keys, SearchInput.__annotations__)
    return lambda state: cast(
        SearchInput, {ours: state[theirs] for ours, theirs in keys.items() if theirs in state}
    )


def _update_by(keys: Mapping[str, str]) -> Callable[[SearchOutput], Update]:
    """Return what picks the keys that the outer state asks for, under its names."""
    _check("output", keys, SearchOutput.__annotations__)
    return lambda found: {keys[name]: value for name, value in found.items() if name in keys}


def _check(argument: str, keys: Mapping[str, str], known: Mapping[str, object]) -> None:
    unknown = [key for key in keys if key not in known]
    if unknown:
        raise ValueError(f"{argument}: got key {unknown[0]!r}, expected one of {', '.join(known)}")
