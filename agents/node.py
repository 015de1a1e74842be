"""A search as a node of a graph with another state."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Literal, NotRequired, TypedDict, TypeVar, cast

from langchain_core.runnables import Runnable, RunnableConfig
from langgraph.channels.base import BaseChannel
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.config import get_stream_writer
from langgraph.graph import END, START, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.types import Command, StateSnapshot, interrupt

from costada.graph.graph_input import SearchContext, check_input
from costada.nodes.state import SearchInput, SearchOutput, SearchState

Search = CompiledStateGraph[SearchState, SearchContext, SearchInput, SearchOutput]
Given = SearchInput | Command[object] | None
State = TypeVar("State", bound=Mapping[str, Any])
Update = Mapping[str, object]
Context = Mapping[str, object]

INTERNAL = ("__", "checkpoint")
"""Prefixes of the names under which LangGraph passes a run's internals to a nested graph."""

READER = "__pregel_read"
"""Where LangGraph passes a node the function that reads the channels of its graph."""

NO_LIMIT = 1_000_000
"""Recursion limit of a search: its budget limits it, not its number of supersteps."""


class _StreamOptions(TypedDict):
    stream_mode: list[Literal["custom", "values"]]
    output_keys: str | list[str]
    context: NotRequired[Any]


def run_search(
    graph: Search, given: Given, config: RunnableConfig | None, context: Context | None = None
) -> SearchOutput:
    """Run a search inside another graph, and write its trace rows to the stream of that graph.

    The outer graph's stream mode `"custom"` has the rows without `subgraphs=True`. Interrupts of
    the search pass to the outer graph, which saves them if it has a saver.

    Args:
        graph: The search.
        given: Its input.
        config: The configuration that the outer graph passed.
        context: What the outer graph chooses for the search.
    """
    write, found = stream_writer(), SearchOutput()
    options = _stream_options(graph, context)
    for mode, chunk in graph.stream(given, _own_config(graph, config), **options):
        if mode == "custom":
            write(chunk)
        else:
            found = cast(SearchOutput, chunk)
    return found


async def arun_search(
    graph: Search, given: Given, config: RunnableConfig | None, context: Context | None = None
) -> SearchOutput:
    """`run_search` without blocking the event loop."""
    write, found = stream_writer(), SearchOutput()
    options = _stream_options(graph, context)
    async for mode, chunk in graph.astream(given, _own_config(graph, config), **options):
        if mode == "custom":
            write(chunk)
        else:
            found = cast(SearchOutput, chunk)
    return found


def _own_config(graph: Search, config: RunnableConfig | None) -> RunnableConfig | None:
    """The configuration of a search; a search without a saver gets its own thread.

    LangGraph passes `durability="sync"` to it as well, and fails where nothing is saved.
    """
    if graph.checkpointer is not False:
        return config
    outer = config or RunnableConfig()
    own = {
        name: value
        for name, value in outer.get("configurable", {}).items()
        if not name.startswith(INTERNAL)
    }
    return RunnableConfig(**{**outer, "configurable": {**own, "thread_id": "unsaved"}})


def _stream_options(graph: Search, context: Context | None) -> _StreamOptions:
    keys = graph.output_channels
    keys = keys if isinstance(keys, str) else list(keys)
    options = _StreamOptions(stream_mode=["custom", "values"], output_keys=keys)
    return options if context is None else _StreamOptions(**{**options, "context": context})


def stream_writer() -> Callable[[object], None]:
    """Writes to the custom stream of the graph around."""
    try:
        return get_stream_writer()
    except (RuntimeError, KeyError):  # outside of a graph nothing is written
        return lambda row: None


class ThreadInput(SearchInput, total=False):
    """The input of a search, the id of its thread in its own saver, and what is chosen for it."""

    thread: str
    context: Context


class ThreadState(ThreadInput, SearchOutput, total=False):
    """A search on its own thread.

    `question` is the value of the search's interrupt, `interrupt_id` the interrupt's id, empty when
    there is none; `answer` is the caller's answer.
    """

    question: object
    interrupt_id: str
    answer: object


class _ThreadSearch(Runnable[ThreadState, ThreadState]):
    """Runs a search on its own thread until it ends or interrupts."""

    def __init__(self, search: Search) -> None:
        self._search = search

    def invoke(
        self, input: ThreadState, config: RunnableConfig | None = None, **kwargs: Any
    ) -> ThreadState:
        own = RunnableConfig(configurable={"thread_id": input["thread"]})
        before = self._search.get_state(own)
        if _can_continue(before, input):
            run_search(self._search, _next_input(before, input), own, input.get("context"))
        return _outcome(self._search.get_state(own))

    async def ainvoke(
        self, input: ThreadState, config: RunnableConfig | None = None, **kwargs: Any
    ) -> ThreadState:
        own = RunnableConfig(configurable={"thread_id": input["thread"]})
        before = await self._search.aget_state(own)
        if _can_continue(before, input):
            await arun_search(self._search, _next_input(before, input), own, input.get("context"))
        return _outcome(await self._search.aget_state(own))


def _can_continue(before: StateSnapshot, state: ThreadState) -> bool:
    """Whether the search has not ended and has the answer that it waits for, if any."""
    if before.interrupts:
        return "answer" in state and before.interrupts[0].id == state["interrupt_id"]
    return bool(before.next) or "stop_reason" not in before.values


def _next_input(before: StateSnapshot, state: ThreadState) -> Given:
    if before.interrupts:
        return Command(resume=state["answer"])
    if before.next:
        return None
    return SearchInput(seed=state["seed"]) if "seed" in state else SearchInput()


def _outcome(after: StateSnapshot) -> ThreadState:
    if after.interrupts:
        first = after.interrupts[0]
        return ThreadState(question=first.value, interrupt_id=first.id)
    found = {key: after.values[key] for key in SearchOutput.__annotations__ if key in after.values}
    return cast(ThreadState, {**found, "interrupt_id": ""})


def on_own_thread(search: Search) -> CompiledStateGraph[Any, Any, Any, Any]:
    """A graph that continues a search on its own thread, and passes on its interrupts.

    A thread without a run starts one; one whose run has ended returns its result.
    """

    def ask(state: ThreadState) -> ThreadState:
        # LangGraph runs this node twice: it must do nothing else.
        return ThreadState(answer=interrupt(state["question"]))

    graph = StateGraph(ThreadState, input_schema=ThreadInput, output_schema=SearchOutput)
    graph.add_node("search", _ThreadSearch(search))
    graph.add_node("ask", ask)
    graph.add_edge(START, "search")
    graph.add_conditional_edges(
        "search", lambda state: bool(state["interrupt_id"]), {True: "ask", False: END}
    )
    graph.add_edge("ask", "search")
    return graph.compile(name=search.name)


def _input_of(
    state: State, input: Callable[[State], SearchInput] | Mapping[str, str] | None
) -> SearchInput:
    """What a state gives a search."""
    if callable(input):
        given = input(state)
        check_input(given)  # refuses keys that a search would ignore
        return given
    keys = (input or {}).items()
    return cast(SearchInput, {own: state[key] for own, key in keys if key in state})


def _context_of(
    state: State, context: Callable[[State], Context] | Mapping[str, str] | None
) -> Context | None:
    """What a state chooses for a search."""
    if context is None or callable(context):
        return context and context(state)
    return {own: state[key] for own, key in context.items() if key in state}


class DiscoveryNode(Runnable[State, Update]):
    """Runs a search in a graph with another state; made by `as_discovery_node`."""

    def __init__(
        self,
        graph: Search,
        to_input: Callable[[State], SearchInput],
        to_update: Callable[[SearchOutput], Update],
        to_context: Callable[[State], Context | None],
        mappings: Mapping[str, Mapping[str, str]],
    ) -> None:
        self._graph, self._to_input, self._to_update = graph, to_input, to_update
        self._to_context, self._mappings = to_context, mappings
        self.name = graph.name

    def invoke(self, input: State, config: RunnableConfig | None = None, **kwargs: Any) -> Update:
        """The keys of the outer state that the search changes."""
        self._check_keys(input, config)
        given, context = self._to_input(input), self._to_context(input)
        found = run_search(self._graph, given, _without_recursion_limit(config), context)
        return self._to_update(found)

    async def ainvoke(
        self, input: State, config: RunnableConfig | None = None, **kwargs: Any
    ) -> Update:
        """`invoke` without blocking the event loop."""
        self._check_keys(input, config)
        given, context = self._to_input(input), self._to_context(input)
        found = await arun_search(self._graph, given, _without_recursion_limit(config), context)
        return self._to_update(found)

    def _check_keys(self, state: State, config: RunnableConfig | None) -> None:
        """Raise `ValueError` if a mapping names a key that the schema of the outer graph lacks.

        LangGraph drops updates of such a key, and nothing can set what is read from it. A chain
        may read keys from its earlier steps.
        """
        channels = _channels(config)
        if not channels:
            return
        for argument, mapping in self._mappings.items():
            known = set(channels) if argument == "output" else {*channels, *state}
            for own, key in mapping.items():
                if key not in known:
                    shown = (name for name in channels if ":" not in name and name[:2] != "__")
                    raise ValueError(
                        f"{argument}: got {key!r} for {own!r}, which the outer graph's state does"
                        f" not have; expected one of its keys: {', '.join(shown)}"
                    )


def _channels(config: RunnableConfig | None) -> Mapping[str, object]:
    """The channels of the outer graph: its schema's keys and LangGraph's own. Empty outside one."""
    reader = (config or {}).get("configurable", {}).get(READER)
    for given in getattr(reader, "args", ()):
        if isinstance(given, Mapping) and any(
            isinstance(each, BaseChannel) for each in given.values()
        ):
            return given
    return {}


def _without_recursion_limit(config: RunnableConfig | None) -> RunnableConfig:
    return RunnableConfig(**{**(config or RunnableConfig()), "recursion_limit": NO_LIMIT})


def as_discovery_node(
    graph: Search,
    *,
    output: Callable[[SearchOutput], Update] | Mapping[str, str],
    input: Callable[[State], SearchInput] | Mapping[str, str] | None = None,
    context: Callable[[State], Context] | Mapping[str, str] | None = None,
    thread: Callable[[State], str] | None = None,
) -> DiscoveryNode[State]:
    """Turn a search into a node for a graph with another state.

    `parent.add_node("discover", as_discovery_node(graph, output={"best_program": "code"}))`. Works
    with `invoke` and `ainvoke`, and in a chain. The parent's custom stream has the search's trace
    rows as the node's own. Under a saver of the parent a stopped run is resumed, provided that the
    graph's `store` still exists; a search with `checkpointer=True` keeps its state across visits of
    the node, one with `False` saves nothing and starts again. Interrupts of the search
    (`on_exhausted="interrupt"`) are interrupts of the parent.

    A search with its own saver runs on the `thread` that the state names: it is resumed even if the
    parent saves nothing, and a thread whose run has ended returns its result.

    Args:
        graph: The search, from `create_discovery_graph`.
        output: Maps the search's result (a `SearchOutput`) to the keys of the state that change: a
            function, or the state's key for each key of the result. Before a later step of a chain,
            and where a function calls the node with its own `config`, keys may be renamed
            afterwards: there it is a function.
        input: Maps the state to the search's input (a `SearchInput`): a function, or the state's
            key for each key of the input; by default the input is empty.
        context: Maps the state to what is chosen for the search, within the graph's `choices`: a
            function, or the state's key for each key of the context. The parent's own context is
            not read.
        thread: Maps the state to a thread id of the graph's own saver.

    Raises:
        ValueError: There is a `context` but the graph has no choices, a `thread` but the graph has
            no saver of its own, or the other way round, or a mapping names a key that a search does
            not have. The node raises it before its search starts if a mapping names a key that the
            state of its graph does not have.
    """
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
    if not callable(input):
        _check_keys("input", input or {}, SearchInput.__annotations__)
    _check_context(graph, context)
    if not callable(output):
        _check_keys("output", output, SearchOutput.__annotations__)

    def to_input(state: State) -> SearchInput:
        given = _input_of(state, input)
        if thread is None:
            return given
        own = ThreadInput(thread=thread(state))
        if "seed" in given:
            own["seed"] = given["seed"]
        if chosen := _context_of(state, context):
            own["context"] = chosen
        return own

    def to_update(found: SearchOutput) -> Update:
        if callable(output):
            return output(found)
        return {output[name]: value for name, value in found.items() if name in output}

    given = {"input": input, "context": context, "output": output}
    mappings = {name: each for name, each in given.items() if each and not callable(each)}
    if thread:
        return DiscoveryNode(
            on_own_thread(graph), to_input, to_update, lambda state: None, mappings
        )
    to_context = partial(_context_of, context=context)
    return DiscoveryNode(graph, to_input, to_update, to_context, mappings)


def _check_context(graph: Search, context: object) -> None:
    if context is not None and getattr(graph, "overrides", None) is None:
        raise ValueError(
            "context: got one for a graph without choices, expected"
            " create_discovery_graph(..., choices=Choices(...))"
        )


def _check_keys(argument: str, keys: Mapping[str, str], known: Mapping[str, object]) -> None:
    unknown = [key for key in keys if key not in known]
    if unknown:
        raise ValueError(f"{argument}: got key {unknown[0]!r}, expected one of {', '.join(known)}")
