"""The compiled discovery graph: it checks its input, and has its own limit of supersteps."""

import asyncio
import reprlib
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import TYPE_CHECKING, Any, Self, cast

from langchain_core.runnables import RunnableConfig, ensure_config
from langchain_core.runnables.config import merge_configs
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.graph.state import CompiledStateGraph
from langgraph.types import Command, StateSnapshot, StateUpdate

from costada.controller.constants import Constants
from costada.graph.graph_input import (
    BUDGET,
    NO_UPDATE,
    SEED,
    Overrides,
    RunOverrides,
    SearchContext,
    accept_answer,
    check_input,
    check_keys,
    check_no_context,
    has_answer,
)
from costada.graph.node_execution import ACTIVE_RUNS, ActiveRuns
from costada.graph.routes import AFTER_GATE, can_continue
from costada.nodes.calls.health import check_may_wait
from costada.nodes.charge_ledger import settled_account
from costada.nodes.context import RunContext
from costada.nodes.pool import NODE_THREADS
from costada.nodes.saved_state import check_seal, with_seal
from costada.nodes.state import SearchInput, SearchOutput, SearchState
from costada.store.checkpoints import RunCheckpoints
from costada.store.lease import Lease, LostLease, guarded_by
from costada.store.outage import Patience, waiting_for_database
from costada.values.candidate import Candidate

NO_THREAD = (
    "Checkpointer requires one or more of the following 'configurable' keys: thread_id,"
    " checkpoint_ns, checkpoint_id"
)
"""LangGraph's message for a saver without a thread."""

NODE_NAME = "langgraph_node"
"""Metadata that LangGraph adds to the configuration of whatever runs as a node."""

INTERNAL = "__pregel"
"""Prefix of the configurable keys that LangGraph passes to graphs below another one."""

RESUMING, SAVER = f"{INTERNAL}_resuming", f"{INTERNAL}_checkpointer"
"""The keys for whether a parent is resumed, and for its saver or that of a server."""

TASK, SEND = f"{INTERNAL}_task_id", f"{INTERNAL}_send"
"""The keys for the task of a parent that executes a graph, and for how it sends there."""

REOPENED = SearchState(stop_reason="", stopping="")
"""What lets a run that has stopped continue."""

END = object()
"""Returned in place of a part once a stream has ended."""


CONTROL_NODES = 7
"""Nodes a step passes at most: allocate, approve, guide and its landing, charge, update, gate."""

ATTEMPT_NODES = 4
"""Nodes every attempt passes: build context, choose model, generate, evaluate."""


def superstep_limit(constants: Constants, num_models: int = 1, num_inner: int = 0) -> int:
    """The most supersteps a run can take, so that no user has to raise a limit.

    Of several models all but one may refuse an attempt. A step passes each of the method's own
    nodes (`num_inner`) once.
    """
    attempts = constants.max_attempts * num_models
    return constants.max_iterations * (CONTROL_NODES + num_inner + ATTEMPT_NODES * attempts) + 1


def _limit_of(search: RunContext) -> int:
    inner = search.method.inner
    num_inner = len(inner.nodes) if inner else 0
    return superstep_limit(search.settings.constants, len(search.menu), num_inner)


class DiscoveryGraph(CompiledStateGraph[SearchState, SearchContext, SearchInput, SearchOutput]):
    """A compiled search.

    A parent graph, a chain and an agent pass their `recursion_limit` with their configuration,
    25 for instance, which would end a search after three iterations. A search ends by its budget
    and its iterations, so only the limit in its own `config` counts: `with_config` changes it.

    Nothing that a caller gives is ignored: unknown keys of the input are refused, and so is a key
    named like a setting of the search anywhere in a configuration, where other keys are a parent's
    or a server's own. Below a parent graph the input is the parent's state, whose other keys pass
    too.

    The state is the graph's own: updates of it, and commands that are more than an answer, are
    refused. What a run has chosen is checked against the limits again whenever it is resumed.

    A run that pauses, by `interrupt_before` for instance, may be resumed with an idea or a program
    of the caller's: `Command(resume={"tactic": TEXT})` or `Command(resume={"program": TEXT})`.

    A run that raises, is cancelled or whose stream is closed early cancels its evaluations in
    flight and returns unspent money to its purse. When it is resumed, it evaluates again and draws
    from the purse again. A run that asks its caller keeps both.
    """

    def __init__(
        self, *, search: RunContext, limit: int, overrides: RunOverrides | None = None, **parts: Any
    ) -> None:
        """Keep what the runs share, their limit, and what a caller may choose for one."""
        super().__init__(**parts)
        self.search, self.limit, self.overrides = search, limit, overrides
        if overrides is not None:
            self.context_schema = overrides.schema  # type: ignore[assignment]

    @classmethod
    def of(
        cls,
        compiled: CompiledStateGraph[SearchState, SearchContext, SearchInput, SearchOutput],
        search: RunContext,
        overrides: RunOverrides | None = None,
    ) -> Self:
        """Turn a compiled graph into one whose limit of supersteps is its own."""
        limit = _limit_of(search)
        # the attribute that `typing` adds to instances of generic classes is not an argument
        parts = {name: part for name, part in vars(compiled).items() if name != "__orig_class__"}
        graph = cls(search=search, limit=limit, overrides=overrides, **parts)
        return graph.with_config(recursion_limit=limit)

    def candidates(self, config: RunnableConfig | None = None) -> list[Candidate]:
        """The programs of a run with their scores: the initial one and all that were evaluated.

        Args:
            config: Names the thread of the run; `None` only without a saver: the run of the
                graph's store that began last.

        Raises:
            ValueError: The graph has a saver and no thread is named, or its store has no such run.
        """
        store, run_id = self.search.store, ""
        has_saver = isinstance(self.checkpointer, BaseCheckpointSaver)
        if config is not None or has_saver:
            merged = merge_configs(self.config, config)
            if "thread_id" not in merged.get("configurable", {}):
                raise ValueError(
                    f"config: got {config!r}, which names no thread_id, expected"
                    ' {"configurable": {"thread_id": NAME}}'
                )
            run = super().get_state(merged).values.get("run")
            run_id = run.id if run else ""
        elif run_ids := store.run_ids():
            run_id = run_ids[-1]
        if run_id not in store.run_ids():
            raise ValueError(f"config: got {config!r}, which names no run in the graph's store")
        return store.candidates.originals(run_id)

    if not TYPE_CHECKING:  # the overloads of the base class stay as they are

        def stream(
            self,
            input: object,
            config: RunnableConfig | None = None,
            *,
            context: object = None,
            **options: Any,
        ):
            """Yield what a run streams, as every graph does.

            Raises:
                ValueError: A key of the input, the configuration or the context is unknown, or
                    what the context chooses is beyond the limits.
            """
            self._check_run(input, config, context, options)
            with self._executing(config) as own:
                lease = own["configurable"][ACTIVE_RUNS].lease
                patience = self._patience()
                saved = self.get_state(own) if self._has_saved(input, config) else None
                search, given = self._begin(input, own, context, saved)
                if self._has_more(input, saved, own, search):
                    with guarded_by(lease), waiting_for_database(patience):
                        super().bulk_update_state(own, self._reopening_update(saved, search))
                if has_answer(given):
                    newest = self.get_state(_newest(own))
                    given = self._accept(given, self.get_state(own), newest, own)
                limited = self._with_limit(own, search)
                parts = super().stream(given, limited, context=search, **options)
                try:
                    while True:
                        with (
                            guarded_by(lease),
                            waiting_for_database(patience),
                        ):  # not while the caller has the part
                            part = next(parts, END)
                        if part is END:
                            return
                        yield part
                finally:
                    with guarded_by(lease), waiting_for_database(patience):
                        parts.close()

        async def astream(
            self,
            input: object,
            config: RunnableConfig | None = None,
            *,
            context: object = None,
            **options: Any,
        ):
            """Do what `stream` does, without blocking the event loop."""
            self._check_run(input, config, context, options)
            async with self._aexecuting(config) as own:
                lease = own["configurable"][ACTIVE_RUNS].lease
                patience = self._patience()
                saved = await self.aget_state(own) if self._has_saved(input, config) else None
                search, given = await asyncio.to_thread(self._begin, input, own, context, saved)
                if await asyncio.to_thread(self._has_more, input, saved, own, search):
                    reopened = await asyncio.to_thread(self._reopening_update, saved, search)
                    with guarded_by(lease), waiting_for_database(patience):
                        await super().abulk_update_state(own, reopened)
                if has_answer(given):
                    newest, state = await self.aget_state(_newest(own)), await self.aget_state(own)
                    given = await asyncio.to_thread(self._accept, given, state, newest, own)
                limited = self._with_limit(own, search)
                parts = super().astream(given, limited, context=search, **options)
                try:
                    while True:
                        with guarded_by(lease), waiting_for_database(patience):
                            part = await anext(parts, END)
                        if part is END:
                            return
                        yield part
                finally:
                    with guarded_by(lease), waiting_for_database(patience):
                        await parts.aclose()

    def bulk_update_state(
        self, config: RunnableConfig, supersteps: Sequence[Sequence[StateUpdate]]
    ) -> RunnableConfig:
        """Refuse to update the state; raises `ValueError`."""
        raise ValueError(f"state: got an update of {_keys_of(supersteps)}: {NO_UPDATE}")

    async def abulk_update_state(
        self, config: RunnableConfig, supersteps: Sequence[Sequence[StateUpdate]]
    ) -> RunnableConfig:
        """Do what `bulk_update_state` does."""
        return self.bulk_update_state(config, supersteps)

    def _begin(
        self, given: object, own: RunnableConfig, context: object, saved: StateSnapshot | None
    ) -> tuple[RunContext, object]:
        """The context of a run, and its input with the seed that the caller's context chooses.

        A new input on a thread whose run is not over resumes that run: a run that began again would
        leave out the calls of the step in flight when it is charged.

        Raises:
            ValueError: The input has another seed than the run that it resumes, the context is not
                what `RunOverrides` allows, or the search has not left the state so.
        """
        values, place = saved.values if saved else {}, self._place(own)
        is_resumed = _is_resumed(given, place)
        is_open = "run" in values and not values.get("stop_reason")
        if "run" in values and (is_resumed or is_open):
            check_seal(cast(SearchState, values), self.search.store)
        if is_open and not is_resumed:
            _check_same_seed(given, values)
            is_resumed, given = True, None
            if _is_nested(place):
                # a parent that is not resumed says so, and LangGraph would begin a new run
                own["configurable"][RESUMING] = True
        search = self.search
        if self.overrides is not None:
            if is_resumed and "run" in values:
                chosen = _resume_choices(self.overrides, values, context)
            else:
                seed = given.get(SEED) if isinstance(given, Mapping) else None
                chosen = self.overrides.read(context, seed)
                if SEED in chosen and isinstance(given, Mapping):
                    given = {**given, SEED: chosen[SEED]}
            if lasting := {name: value for name, value in chosen.items() if name != SEED}:
                search = self.overrides.search(lasting)
        return search, given

    def _has_more(
        self,
        given: object,
        saved: StateSnapshot | None,
        own: RunnableConfig,
        search: RunContext,
    ) -> bool:
        """Whether a stopped or stopping run is resumed and has something left to do.

        While calls are in flight, the current step comes first. After too many failures only its
        caller can resume it, by giving no input.
        """
        place = self._place(own)
        is_resumed = given is None or bool(place.get(RESUMING))
        is_earlier = place.get("checkpoint_id") is not None
        if saved is None or not is_resumed or is_earlier or isinstance(given, Command):
            return False
        reason = saved.values.get("stop_reason")
        if reason == "failures" and given is not None:
            return False
        is_current = bool(reason) or saved.next == ("evaluate",)
        return is_current and can_continue(cast(SearchState, saved.values), search)

    def _reopening_update(
        self, saved: StateSnapshot, search: RunContext
    ) -> list[list[StateUpdate]]:
        """The update that reopens a run where its last step ended."""
        # As of the gate: an update ends what LangGraph would execute next, which is nothing after a
        # stop, and a landing while the run is stopping. The gate's route chooses again from there.
        values = cast(SearchState, saved.values)
        changed = REOPENED | settled_account(values, search)
        left = values | changed
        update = with_seal(left, changed, self.search.store)
        command: Any = Command(update=update, goto=AFTER_GATE.follow(left, search))
        return [[StateUpdate(command, "gate_intervention")]]

    def _has_saved(self, given: object, config: RunnableConfig | None) -> bool:
        """Whether the thread of an execution may hold a run to continue.

        Below a parent it does if the search keeps its state across visits, or is resumed. Otherwise
        each visit has a place of its own, which only LangGraph knows.
        """
        place = self._place(config)
        has_saver = isinstance(self.checkpointer, BaseCheckpointSaver) or bool(place.get(SAVER))
        if self.checkpointer is False or not has_saver:
            return False
        is_chosen = self.overrides is not None and _is_resumed(given, place)
        return self.checkpointer is True or is_chosen or not _is_nested(place)

    def _check_run(
        self,
        given: object,
        config: RunnableConfig | None,
        context: object,
        options: dict[str, Any],
    ) -> None:
        """Refuse what a run would ignore; raises `ValueError`.

        A server copies the keys of a context into the configuration.
        """
        is_node = NODE_NAME in (config or {}).get("metadata", {})
        check_input(given, is_parents_state=is_node)
        known = context if self.overrides and isinstance(context, Mapping) else {}
        if self.overrides is None:
            check_no_context(context)
        check_keys("invoke or stream", options)
        configs = [each or RunnableConfig() for each in (ensure_config(), self.config, config)]
        for each in configs:
            check_keys("config", each)
            check_keys("configurable", each.get("configurable"), known)
        configurable = [key for each in configs for key in each.get("configurable", {})]
        place = self._place(config)
        for key in (TASK, RESUMING):
            if key in place and not _is_nested(place):
                raise ValueError(f"configurable: got key {key!r}, which only LangGraph sets")
        is_nested = any(key.startswith(INTERNAL) for key in configurable)
        has_saver = isinstance(self.checkpointer, BaseCheckpointSaver)
        if has_saver and not is_nested and "thread_id" not in configurable:
            raise ValueError(NO_THREAD)

    @contextmanager
    def _executing(self, config: RunnableConfig | None) -> Iterator[RunnableConfig]:
        """The configuration of an execution, which holds its thread; raises as `hold` does."""
        thread = self._shared_thread(config)
        with waiting_for_database(self._patience()):
            runs = ActiveRuns(self.search.store.hold(thread) if thread else None)
        try:
            with runs.noting_end():
                yield _own(config, runs)
        finally:
            self._leave(config, runs)

    @asynccontextmanager
    async def _aexecuting(self, config: RunnableConfig | None) -> AsyncIterator[RunnableConfig]:
        """Do what `_executing` does, without blocking the event loop."""
        runs = ActiveRuns()
        if thread := self._shared_thread(config):
            holding = asyncio.ensure_future(asyncio.to_thread(self.search.store.hold, thread))
            try:
                # Shielded, as the thread cannot be cancelled: a lease that it still gets must be
                # released by someone.
                runs.lease = await asyncio.shield(holding)
            except asyncio.CancelledError:
                holding.add_done_callback(_give_up)
                raise
        try:
            with runs.noting_end():
                yield _own(config, runs)
        finally:
            await asyncio.to_thread(self._leave, config, runs)

    def _leave(self, config: RunnableConfig | None, runs: ActiveRuns) -> None:
        """Abort the runs of an execution that has not ended, and free its thread."""
        try:
            if runs.is_aborted:
                runs.abort()
            else:
                runs.settle()
        finally:
            self._free_thread(config, runs)

    def _free_thread(self, config: RunnableConfig | None, runs: ActiveRuns) -> None:
        """Save the last checkpoint of an execution and let other processes have its thread."""
        try:
            place = self._place(config)
            saver = self.checkpointer or place.get(SAVER)
            if runs.lease is not None and isinstance(saver, RunCheckpoints):
                # With the lease lost, the thread and its checkpoints are another process's.
                with suppress(LostLease), guarded_by(runs.lease):
                    saver.write_held_back(RunnableConfig(configurable=place))
        finally:
            runs.release()

    def _patience(self) -> Patience:
        """How long an execution waits for its database."""
        return Patience(self.search.retry_policy.longest_pause, check_may_wait)

    def _place(self, config: RunnableConfig | None) -> dict[str, Any]:
        """The configurable keys of an execution, including those of its parents."""
        return merge_configs(ensure_config(), self.config, config).get("configurable", {})

    def _shared_thread(self, config: RunnableConfig | None) -> str:
        """The name of an execution's thread in the store.

        Empty where no other process can execute it: the store is this process's own, or there is no
        saver.
        """
        if not self.search.store.is_shared or self.checkpointer is False:
            return ""
        place = self._place(config)
        has_saver = isinstance(self.checkpointer, BaseCheckpointSaver) or place.get(SAVER)
        if not has_saver or place.get("thread_id") is None:
            return ""
        namespace = place.get("checkpoint_ns")
        return f"thread {place['thread_id']!r}" + (f", {namespace}" if namespace else "")

    def _with_limit(self, config: RunnableConfig, search: RunContext) -> RunnableConfig:
        """A configuration with the superstep limit of a search, or that of `with_config`."""
        # The limit of the graph is that of a run which chooses nothing: another one may have more
        # iterations. Only a limit that the caller set with `with_config` differs from it.
        limit = (self.config or {}).get("recursion_limit", self.limit)
        if limit == self.limit:
            limit = _limit_of(search)
        return RunnableConfig(**{**config, "recursion_limit": limit})

    def _accept(
        self, given: Any, paused: StateSnapshot, newest: StateSnapshot, own: RunnableConfig
    ) -> Any:
        """What `accept_answer` returns; it writes only while the thread is held."""
        ids = [state.config["configurable"].get("checkpoint_id") for state in (paused, newest)]
        with guarded_by(own["configurable"][ACTIVE_RUNS].lease):
            return accept_answer(given, paused, self.search.store, is_newest=ids[0] == ids[1])


def _own(config: RunnableConfig | None, runs: ActiveRuns) -> RunnableConfig:
    """The configuration of an execution, with its runs."""
    given = config or RunnableConfig()
    configurable = {**given.get("configurable", {}), ACTIVE_RUNS: runs}
    return RunnableConfig(**{**given, "configurable": configurable})


def _is_nested(place: Mapping[str, Any]) -> bool:
    """Whether an execution is part of a parent's; what a client sends is not a function."""
    return callable(place.get(SEND))


def _is_resumed(given: object, place: Mapping[str, Any]) -> bool:
    """Whether a caller or a parent resumes a run."""
    return given is None or isinstance(given, Command) or bool(place.get(RESUMING))


def _newest(config: RunnableConfig) -> RunnableConfig:
    """The configuration of the same thread, with its newest checkpoint."""
    configurable = {**config["configurable"], "checkpoint_id": None}
    return RunnableConfig(**{**config, "configurable": configurable})


def _give_up(holding: "asyncio.Future[Lease | None]") -> None:
    """Release a lease that an execution, cancelled by then, was waiting for."""
    if not holding.cancelled() and not holding.exception() and (lease := holding.result()):
        NODE_THREADS.submit(lease.release)


def _resume_choices(
    overrides: RunOverrides, values: Mapping[str, Any], context: object
) -> Overrides:
    """The choices of a resumed run; raises `ValueError` as `RunOverrides` does."""
    begun = {**overrides.check_saved(values.get("chosen", {})), SEED: values["run"].seed}
    resumed = overrides.resume(begun, context)
    if values["account"].granted is not None and resumed.get(BUDGET) != begun.get(BUDGET):
        raise ValueError(
            f"context: got budget {resumed[BUDGET]!r} for a run that draws from a purse, expected"
            " that which it began with"
        )
    return resumed


def _check_same_seed(given: object, values: Mapping[str, Any]) -> None:
    """Refuse another seed for a run that is not over; raises `ValueError`."""
    began = values["run"].seed
    seed = given.get(SEED, began) if isinstance(given, Mapping) else began
    if seed != began:
        raise ValueError(
            f"seed: got {seed!r} for a thread whose run began with {began} and is not over,"
            " expected the same, or another thread"
        )


def _keys_of(supersteps: Sequence[Sequence[StateUpdate]]) -> str:
    """The keys that updates name, for a message."""
    given = [update.values for superstep in supersteps for update in superstep]
    updates = [each.update if isinstance(each, Command) else each for each in given]
    keys = [key for each in updates if isinstance(each, Mapping) for key in each]
    return reprlib.repr(keys) if keys else "no key"
