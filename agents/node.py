"""A search as a node of a graph whose state knows nothing of it."""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar, cast

from langchain_core.runnables import Runnable, RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver

from costada.agents.following import Search, afollow, follow
from costada.agents.thread import ThreadInput, on_own_thread
from costada.graph.arguments import check_input
from costada.graph.state import SearchInput, SearchOutput

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
