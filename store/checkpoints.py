"""Checkpoints of runs: which are written, held back and pruned, and those in a run file."""

import asyncio
import sqlite3
from abc import abstractmethod
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    get_checkpoint_id,
)
from langgraph.checkpoint.sqlite import SqliteSaver

from costada.store.address import damage_error
from costada.store.sqlite_engine import connect, explaining
from costada.store.state_serializer import StateSerializer

END_OF_ITERATION = "iterations"
"""The key of a run's state that changes when an iteration ends, and at no other time."""

KEPT_CHECKPOINTS = 16
"""Latest checkpoints of a thread that are always there; a resume needs only the last one."""

PRUNING_INTERVAL = 64
"""Checkpoints between two prunings: one deletion of many rows costs less than many of one."""

NEWEST_FIRST = """
SELECT checkpoint_id FROM checkpoints NOT INDEXED WHERE thread_id = ? AND checkpoint_ns = ?
ORDER BY rowid DESC
"""
"""Walks the table from its end, as the last row is nearly always the one that is asked for."""

SEARCH_RECORDS = ("step", "controller", "flight", "observed")
"""Keys that the state of a search has, and that of no other graph."""

CHANGING_NODES = {"evaluate", "guide"}
"""Nodes after which a request depends on what has landed since the iteration began."""


class RunCheckpoints(BaseCheckpointSaver[str]):
    """Keeps the checkpoints of runs whose nodes follow one another, by way of the next base class.

    What a checkpoint names is never imported or called; see `StateSerializer`.

    A checkpoint is written at the end of each iteration, and before a request that other tickets
    could change: one beside others in flight, of a further attempt, after a guide, or for a new
    search strategy. A run that continues with another number of steps in flight may land them in
    another order, and still sends that request as it was. Another checkpoint from within an
    iteration is held back and only written if the run stops, is interrupted or fails there. After
    a crash the nodes since the last checkpoint run again; the run's store makes that exact and
    free of charge. That holds for a search alone: of another graph, such as one that has a search
    as a node, each checkpoint is written, and the results of nodes whose neighbours have not ended.

    The latest checkpoint is the one written last. LangGraph's own savers take the one with the
    highest id, which is a time: a clock that was set back would hide all later ones.
    """

    def _begin(self, *, keep_history: bool) -> None:
        self._keeps_history = keep_history
        self._num_saved: Counter[_Thread] = Counter()
        self._within: set[tuple[str, ...]] = set()  # checkpoints from within an iteration
        self._searches: set[_Thread] = set()  # those with a search's checkpoint as their last
        self._held_back: dict[_Thread, DeferredCheckpoint] = {}

    @abstractmethod
    def _found(self, statement: str, values: Sequence[str]) -> list[tuple[Any, ...]]:
        """All rows that a query on the table `checkpoints` finds, with `?` for values."""

    @abstractmethod
    def _delete(self, thread: "_Thread", names: Sequence[str]) -> None:
        """Delete checkpoints of a thread and what belongs to them."""

    @abstractmethod
    def _disconnect(self) -> None:
        """Close the connections."""

    def close(self) -> None:
        """Write what was held back and close the connections."""
        try:
            self._write_held_back()
        finally:
            self._disconnect()

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """A checkpoint, the last written one if the config names none."""
        thread = thread_of(config)
        self._write_held_back(thread)
        if get_checkpoint_id(config):
            return super().get_tuple(config)
        found = self._found(f"{NEWEST_FIRST} LIMIT 1", thread)
        return super().get_tuple(_config(*thread, found[0][0])) if found else None

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """Yield checkpoints, the last written one first."""
        self._write_held_back()
        of_place = super().list
        found = (
            each
            for place in self._places(config, before)
            # All at once: who stops in between would keep a connection of the others.
            for each in [*of_place(place, filter=filter)]
        )
        yield from islice(found, limit)

    def _places(
        self, config: RunnableConfig | None, before: RunnableConfig | None
    ) -> Iterator[RunnableConfig]:
        """Places of the checkpoints that a config selects, the last written one first."""
        wanted = config["configurable"] if config else {}
        columns = ("thread_id", "checkpoint_ns", "checkpoint_id")
        given = {name: str(wanted[name]) for name in columns if wanted.get(name) is not None}
        conditions = [f"{name} = ?" for name in given]
        values = list(given.values())
        if before is not None:
            values.append(get_checkpoint_id(before) or "")
            conditions.append(
                "rowid < (SELECT MAX(rowid) FROM checkpoints WHERE checkpoint_id = ?)"
            )
        where = f"WHERE {' AND '.join(conditions)}" if conditions else ""
        statement = (
            f"SELECT {', '.join(columns)} FROM checkpoints {where}"  # noqa: S608
            " ORDER BY rowid DESC"
        )
        for each in self._found(statement, values):
            yield _config(*each)

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Save a checkpoint, or hold it back, and return its config.

        The values that were new in one that was held back were not written: with the next one all
        values are written that are missing.
        """
        held = DeferredCheckpoint(config, checkpoint, metadata, checkpoint["channel_versions"])
        update = self._searches.add if _is_of_search(checkpoint) else self._searches.discard
        update(thread_of(config))
        is_held = _is_within_iteration(checkpoint) and not _is_before_request(checkpoint)
        if is_held and not self._keeps_history:
            self._held_back[thread_of(config)] = held
            place = {**config["configurable"], "checkpoint_id": checkpoint["id"]}
            return RunnableConfig(configurable=place)
        self._held_back.pop(thread_of(config), None)
        return self._write(held)

    def put_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        """Save a node's pending writes, if a resume needs them before the next checkpoint."""
        # A node of a search that runs again writes the same, so its results are not kept.
        # Interrupts, answers to them and errors are, with the checkpoint that they refer to.
        thread = thread_of(config)
        is_special = any(channel in WRITES_IDX_MAP for channel, _ in writes)
        if is_special or thread not in self._searches:
            self._write_held_back(thread)
            super().put_writes(config, writes, task_id, task_path)

    def delete_thread(self, thread_id: str) -> None:
        """Delete all checkpoints of a thread, also those that are held back."""
        for each in [each for each in self._held_back if each[0] == thread_id]:
            del self._held_back[each]
        super().delete_thread(thread_id)

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """As `get_tuple`, in a thread."""
        return await asyncio.to_thread(self.get_tuple, config)

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """As `list`, in a thread."""
        found = self.list(config, filter=filter, before=before, limit=limit)
        while (each := await asyncio.to_thread(next, found, None)) is not None:
            yield each

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """As `put`, in a thread."""
        return await asyncio.to_thread(self.put, config, checkpoint, metadata, new_versions)

    async def aput_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        """As `put_writes`, in a thread."""
        await asyncio.to_thread(self.put_writes, config, writes, task_id, task_path)

    async def adelete_thread(self, thread_id: str) -> None:
        """As `delete_thread`, in a thread."""
        await asyncio.to_thread(self.delete_thread, thread_id)

    def write_held_back(self, config: RunnableConfig) -> None:
        """Write a thread's checkpoint that was held back, so that any process can resume it."""
        self._write_held_back(thread_of(config))

    def _write_held_back(self, thread: "_Thread | None" = None) -> None:
        for each in [thread] if thread else [*self._held_back]:
            held = self._held_back.pop(each, None)
            if held is not None:
                self._write(held)

    def _write(self, held: "DeferredCheckpoint") -> RunnableConfig:
        saved = super().put(*held)
        thread = thread_of(saved)
        # Also at the first one: a process that was killed may have left up to an interval.
        if self._num_saved[thread] % PRUNING_INTERVAL == 0:
            self.prune_thread(saved)
        self._num_saved[thread] += 1
        if _is_within_iteration(held.checkpoint) and not self._keeps_history:
            self._within.add((*thread, saved["configurable"]["checkpoint_id"]))
        return saved

    def prune_thread(self, config: RunnableConfig) -> None:
        """Delete all but the latest 16 checkpoints of a thread, unless its history is kept.

        Those from within earlier iterations, which nothing can begin from, go first.
        """
        if self._keeps_history:
            return
        thread = thread_of(config)
        names = [name for (name,) in self._found(NEWEST_FIRST, thread)]
        ends = [name for name in names if (*thread, name) not in self._within]
        # A resume begins with the newest, though it may be from within an iteration.
        kept = {*names[:1], *ends[:KEPT_CHECKPOINTS]}
        if len(kept) < len(names):
            self._delete(thread, [name for name in names if name not in kept])
        self._within = {each for each in self._within if each[:2] != thread or each[2] in kept}


_Thread = tuple[str, str]
"""Id of a thread and a namespace in it."""


def thread_of(config: RunnableConfig) -> _Thread:
    """The thread and namespace that a config names."""
    place = config["configurable"]
    return str(place["thread_id"]), place.get("checkpoint_ns", "")


def _config(thread: str, namespace: str, checkpoint: str) -> RunnableConfig:
    place = {"thread_id": thread, "checkpoint_ns": namespace, "checkpoint_id": checkpoint}
    return RunnableConfig(configurable=place)


class DeferredCheckpoint(NamedTuple):
    """A checkpoint as `put` takes it."""

    config: RunnableConfig
    checkpoint: Checkpoint
    metadata: CheckpointMetadata
    versions: ChannelVersions


def _is_of_search(checkpoint: Checkpoint) -> bool:
    return checkpoint["channel_values"].keys() >= set(SEARCH_RECORDS)


def _is_within_iteration(checkpoint: Checkpoint) -> bool:
    """Whether an iteration has ended earlier, and none right before this checkpoint."""
    # Before the first end there is nothing to begin from, so those checkpoints are written.
    has_ended = _is_of_search(checkpoint) and END_OF_ITERATION in checkpoint["channel_values"]
    return has_ended and END_OF_ITERATION not in (checkpoint["updated_channels"] or ())


def _is_before_request(checkpoint: Checkpoint) -> bool:
    """Whether the next node sends a request that other tickets could change."""
    if not _is_of_search(checkpoint):
        return False
    values = checkpoint["channel_values"]
    step, controller, flight, observed = (values[name][1] for name in SEARCH_RECORDS)
    attempt = step["attempt"]
    if not attempt["number"]:
        return False
    is_made = bool(attempt["program"] or attempt["failure"])
    if is_made or step["credit"] is not None:
        return bool(controller.get("pending"))  # a guide, or a call of the method's own
    if step["is_launched"]:
        return False
    return bool(flight["tickets"]) or not CHANGING_NODES.isdisjoint(observed["seconds"])


class RunSaver(RunCheckpoints, SqliteSaver):
    """Keeps the checkpoints of runs in their run file, by the rules of `RunCheckpoints`."""

    def __init__(self, path: Path, *, keep_history: bool = False) -> None:
        """Open or create a run file; raises as `connect` does.

        With `keep_history` all checkpoints of a thread are written and kept, otherwise at least
        the latest 16.
        """
        SqliteSaver.__init__(self, connect(path), serde=StateSerializer())
        self._path = path
        self._begin(keep_history=keep_history)

    def _disconnect(self) -> None:
        self.conn.close()

    @contextmanager
    def cursor(self, transaction: bool = True) -> Iterator[sqlite3.Cursor]:
        """Yield a cursor for `SqliteSaver`; errors name the file and what to do."""
        with explaining(self._path), super().cursor(transaction) as cursor:
            try:
                yield cursor
            except (ValueError, RecursionError) as error:
                # In a write it is the value of a caller that could not be saved, and no damage.
                if transaction:
                    raise
                raise damage_error(
                    self._path, f"a checkpoint in it is damaged ({error})"
                ) from error

    def _found(self, statement: str, values: Sequence[str]) -> list[tuple[Any, ...]]:
        with self.cursor(transaction=False) as cursor:
            return cursor.execute(statement, values).fetchall()

    def _delete(self, thread: tuple[str, str], names: Sequence[str]) -> None:
        condition = "thread_id = ? AND checkpoint_ns = ? AND checkpoint_id = ?"
        with self.cursor() as cursor:
            for table in ("writes", "checkpoints"):
                cursor.executemany(
                    f"DELETE FROM {table} WHERE {condition}",  # noqa: S608
                    [(*thread, name) for name in names],
                )
