"""The compiled discovery graph: it checks its input, and has its own limit of supersteps."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Self

from langchain_core.runnables import RunnableConfig, ensure_config
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.errors import GraphBubbleUp
from langgraph.graph.state import CompiledStateGraph
from langgraph.types import Command, StateUpdate

from costada.controller.constants import Constants
from costada.graph.user_input import accept_input, has_input
from costada.nodes.context import RunContext
from costada.nodes.parallel.active_runs import ACTIVE_RUNS, abort_runs
from costada.nodes.settings import Settings
from costada.nodes.state import SearchInput, SearchOutput, SearchState
from costada.store.run_store import RunStore

NO_THREAD = (
    "Checkpointer requires one or more of the following 'configurable' keys: thread_id,"
    " checkpoint_ns, checkpoint_id"
)
"""What LangGraph says of a saver without a thread, where nothing at all is configurable."""

NODE_NAME = "langgraph_node"
"""Metadata that LangGraph adds to the configuration of whatever runs as a node."""

INTERNAL = "__pregel"
"""How the configurable keys begin that LangGraph hands down to what runs below a graph."""

SETTING_ARGUMENTS = {
    **{name: f"Settings(constants=Constants({name}=...))" for name in Constants.__annotations__},
    **{name: f"Settings({name}=...)" for name in Settings.model_fields},
    "budget": "create_discovery_graph(..., budget=DOLLARS)",
    "guide_model": "create_discovery_graph(..., guide_model=...)",
}
"""How each setting of a search is given. A configurable `model` is a chat model's own."""


class DiscoveryGraph(CompiledStateGraph[SearchState, None, SearchInput, SearchOutput]):
    """A compiled search.

    A parent graph, a chain and an agent pass their `recursion_limit` with their configuration,
    25 for instance, which would end a search after three iterations. A search ends by its budget
    and its iterations, so only the limit in its own `config` counts: `with_config` changes it.

    Nothing that a caller gives is ignored: unknown keys of the input and of an update of the state
    are refused, and so is a key named like a setting of the search anywhere in a configuration,
    where other keys are a parent's or a server's own. Below a parent graph the input is the
    parent's state, whose other keys pass too.

    A run that pauses, by `interrupt_before` for instance, may be resumed with an idea or a program
    of the caller's: `Command(resume={"tactic": TEXT})` or `Command(resume={"program": TEXT})`.

    A run that raises, is cancelled or whose stream is left cancels its evaluations in flight, and
    returns to its purse what it did not spend; both happen again when it is resumed. One that asks
    its caller keeps them.
    """

    def __init__(self, *, run_store: RunStore, **attributes: Any) -> None:
        """Keep the store of its runs; the rest is LangGraph's."""
        super().__init__(**attributes)
        self.run_store = run_store

    @classmethod
    def of(
        cls,
        compiled: CompiledStateGraph[SearchState, None, SearchInput, SearchOutput],
        store: RunStore,
    ) -> Self:
        """Turn a compiled graph into one whose limit is its own."""
        parts = {name: part for name, part in vars(compiled).items() if name != "__orig_class__"}
        return cls(run_store=store, **parts)

    if not TYPE_CHECKING:  # the overloads of the base class stay as they are

        def stream(self, input: object, config: RunnableConfig | None = None, **options: Any):
            """Yield what a run streams, as every graph does; raises as `check_input` does too."""
            self._check_run(input, config, options)
            if has_input(input):
                input = accept_input(input, self.get_state(config), self.run_store)
            with _active_runs() as runs:
                yield from super().stream(input, self._own(config, runs), **options)

        async def astream(
            self, input: object, config: RunnableConfig | None = None, **options: Any
        ):
            """Yield what a run streams, without blocking the event loop."""
            self._check_run(input, config, options)
            if has_input(input):
                input = accept_input(input, await self.aget_state(config), self.run_store)
            with _active_runs() as runs:
                async for part in super().astream(input, self._own(config, runs), **options):
                    yield part

    def bulk_update_state(
        self, config: RunnableConfig, supersteps: Sequence[Sequence[StateUpdate]]
    ) -> RunnableConfig:
        """Update the state, as `update_state` does; an unknown key raises `ValueError`."""
        _check_updates(supersteps)
        return super().bulk_update_state(config, supersteps)

    async def abulk_update_state(
        self, config: RunnableConfig, supersteps: Sequence[Sequence[StateUpdate]]
    ) -> RunnableConfig:
        """Do what `bulk_update_state` does, without blocking the event loop."""
        _check_updates(supersteps)
        return await super().abulk_update_state(config, supersteps)

    def _check_run(
        self, given: object, config: RunnableConfig | None, options: dict[str, Any]
    ) -> None:
        """Refuse what a run would ignore; raises `ValueError`."""
        is_node = NODE_NAME in (config or {}).get("metadata", {})
        check_input(given, is_parents_state=is_node)
        _check_keys("context", options.get("context"))
        _check_keys("invoke or stream", options)
        configs = [each or RunnableConfig() for each in (ensure_config(), self.config, config)]
        for each in configs:
            _check_keys("config", each)
            _check_keys("configurable", each.get("configurable"))
        configurable = [key for each in configs for key in each.get("configurable", {})]
        is_nested = any(key.startswith(INTERNAL) for key in configurable)
        has_saver = isinstance(self.checkpointer, BaseCheckpointSaver)
        if has_saver and not is_nested and "thread_id" not in configurable:
            raise ValueError(NO_THREAD)

    def _own(self, config: RunnableConfig | None, runs: dict[str, RunContext]) -> RunnableConfig:
        given = config or RunnableConfig()
        configurable = {**given.get("configurable", {}), ACTIVE_RUNS: runs}
        own = RunnableConfig(**{**given, "configurable": configurable})
        if limit := (self.config or {}).get("recursion_limit"):
            own["recursion_limit"] = limit
        return own


@contextmanager
def _active_runs() -> Iterator[dict[str, RunContext]]:
    """Abort the runs of an execution that raises or is left, but not those that ask."""
    runs: dict[str, RunContext] = {}
    is_aborted = True
    try:
        yield runs
        is_aborted = False
    except GraphBubbleUp:
        is_aborted = False
        raise
    finally:
        if is_aborted:
            abort_runs(runs)


def check_input(given: object, *, is_parents_state: bool = False) -> None:
    """Refuse keys of a run's input that the run would ignore.

    Args:
        given: The input of a run: a mapping, a command, or `None` to resume.
        is_parents_state: Whether it is the whole state of a parent graph, whose own keys pass.

    Raises:
        ValueError: Naming the key, and where it is given if it is named like a setting.
    """
    if isinstance(given, Command):
        check_update(given.update)
        return
    if not isinstance(given, Mapping):
        return
    unknown = [key for key in given if key not in SearchInput.__annotations__]
    refused = [key for key in unknown if key in SETTING_ARGUMENTS or not is_parents_state]
    if not refused:
        return
    advice = _advice(refused[0])
    if is_parents_state:
        advice += ", or hide the parent's key: as_discovery_node(graph, input={...}, output={...})"
    expected = ", ".join(SearchInput.__annotations__)
    raise ValueError(f"input: got key {refused[0]!r}, expected {expected}{advice}")


def check_update(values: object) -> None:
    """Refuse keys of an update of the state that the state does not have.

    Raises:
        ValueError: Naming the key, and where it is given if it is named like a setting.
    """
    if isinstance(values, Command):
        values = values.update
    if isinstance(values, list | tuple):
        values = dict(values)
    for key in values if isinstance(values, Mapping) else ():
        if key not in SearchState.__annotations__:
            known = ", ".join(SearchState.__annotations__)
            raise ValueError(f"state: got key {key!r}, expected one of {known}{_advice(key)}")


def _check_updates(supersteps: Sequence[Sequence[StateUpdate]]) -> None:
    for superstep in supersteps:
        for update in superstep:
            check_update(update.values)


def _check_keys(where: str, given: object) -> None:
    """Refuse keys named like a setting in a place where no setting is read; all others pass."""
    for key in given if isinstance(given, Mapping) else ():
        if key in SETTING_ARGUMENTS:
            raise ValueError(f"{where}: got key {key!r}, which is not read there{_advice(key)}")


def _advice(key: str) -> str:
    """Where a setting is given, nothing for another key."""
    if key in SearchInput.__annotations__:
        return f'; it is part of the input: {{"{key}": ...}}'
    return f"; it is set in {SETTING_ARGUMENTS[key]}" if key in SETTING_ARGUMENTS else ""
