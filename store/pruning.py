"""A LangGraph saver whose file stays small: a checkpoint per iteration, and only the latest."""

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
)
from langgraph.checkpoint.sqlite import SqliteSaver

from costada.store.database import connect
from costada.store.file_faults import damaged, explaining

END_OF_ITERATION = "iterations"
"""The key of a run's state that changes when an iteration ends, and at no other time."""

KEPT_CHECKPOINTS = 16
"""Latest checkpoints of a thread that are always there; a resume needs only the last one."""

PRUNING_INTERVAL = 64
"""Checkpoints between two prunings: one deletion of many rows costs less than many of one."""

SUPERSEDED = """
DELETE FROM {table} WHERE thread_id = :thread AND checkpoint_ns = :ns AND checkpoint_id < (
    SELECT checkpoint_id FROM checkpoints WHERE thread_id = :thread AND checkpoint_ns = :ns
    ORDER BY checkpoint_id DESC LIMIT 1 OFFSET {last_kept}
)
"""


class RunSaver(SqliteSaver):
    """Keeps the checkpoints of runs whose nodes follow one another, in their run file.

    A checkpoint is written at the end of each iteration. One from the midst of an iteration is held
    back: it is written when the next is not made, for the run is stopped, interrupted or fails. A
    process that dies executes the nodes of its last iteration again, which the run's store makes
    free of charge and exact.
    """

    def __init__(self, path: Path, *, keep_history: bool = False) -> None:
        """Open a run file, creating it if it is not there; raises as `connect` does.

        With `keep_history` all checkpoints of a thread are written and kept, otherwise at least
        the latest 16; fewer than 64 older ones wait for the next pruning.
        """
        super().__init__(connect(path))
        self._path = path
        self._keeps_history = keep_history
        self._num_saved = 0
        self._held_back: _Held | None = None

    def close(self) -> None:
        """Write what was held back and close the file; the object is of no use afterwards."""
        try:
            self._write_held_back()
        finally:
            self.conn.close()

    @contextmanager
    def cursor(self, transaction: bool = True) -> Iterator[sqlite3.Cursor]:
        """Yield a cursor, as `SqliteSaver` asks for it; errors name the file and what to do."""
        with explaining(self._path), super().cursor(transaction) as cursor:
            try:
                yield cursor
            except ValueError as error:
                if transaction:
                    raise
                raise damaged(self._path, f"a checkpoint in it is damaged ({error})") from error

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Return a checkpoint, the latest when the config names none."""
        self._write_held_back()
        return super().get_tuple(config)

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """Yield checkpoints, the latest first."""
        self._write_held_back()
        yield from super().list(config, filter=filter, before=before, limit=limit)

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Save a checkpoint, or hold it back, and return its config."""
        held = _Held(config, checkpoint, metadata, new_versions)
        if not self._keeps_history and _is_within_iteration(checkpoint):
            self._held_back = held
            place = {**config["configurable"], "checkpoint_id": checkpoint["id"]}
            return RunnableConfig(configurable=place)
        self._held_back = None
        return self._write(held)

    def put_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        """Save what a node left behind, if a resume needs it before the next checkpoint."""
        if any(channel in WRITES_IDX_MAP for channel, _ in writes):
            self._write_held_back()
            super().put_writes(config, writes, task_id, task_path)

    def _write_held_back(self) -> None:
        held, self._held_back = self._held_back, None
        if held is not None:
            self._write(held)

    def _write(self, held: "_Held") -> RunnableConfig:
        saved = super().put(*held)
        if self._num_saved % PRUNING_INTERVAL == 0:
            self.prune_thread(saved)
        self._num_saved += 1
        return saved

    def prune_thread(self, config: RunnableConfig) -> None:
        """Delete all but the latest 16 checkpoints of a thread, unless its history is kept."""
        if self._keeps_history:
            return
        place = config["configurable"]
        values = {"thread": str(place["thread_id"]), "ns": place.get("checkpoint_ns", "")}
        with self.cursor() as cursor:
            for table in ("writes", "checkpoints"):
                statement = SUPERSEDED.format(table=table, last_kept=KEPT_CHECKPOINTS - 1)
                cursor.execute(statement, values)


class _Held(NamedTuple):
    """A checkpoint as `put` takes it."""

    config: RunnableConfig
    checkpoint: Checkpoint
    metadata: CheckpointMetadata
    new_versions: ChannelVersions


def _is_within_iteration(checkpoint: Checkpoint) -> bool:
    """Return whether an iteration has ended earlier, and none right before this checkpoint."""
    has_ended = END_OF_ITERATION in checkpoint["channel_values"]
    return has_ended and END_OF_ITERATION not in (checkpoint["updated_channels"] or ())
