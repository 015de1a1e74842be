"""A LangGraph saver whose file stays small: superseded checkpoints of a run go as it goes on."""

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
)
from langgraph.checkpoint.sqlite import SqliteSaver

from costada.store.database import connect
from costada.store.file_faults import explaining

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

    What a finished node returned is saved once, in the checkpoint after it. A process that dies in
    between executes that node again, which the run's store makes free of charge; so only
    interruptions, the answers to them and failures are saved between checkpoints.
    """

    def __init__(self, path: Path, *, keep_history: bool = False) -> None:
        """Open a run file, creating it if it is not there; raises as `connect` does.

        With `keep_history` all checkpoints of a thread are kept, otherwise at least the latest 16;
        fewer than 64 older ones wait for the next pruning.
        """
        super().__init__(connect(path))
        self._path = path
        self._keeps_history = keep_history
        self._num_saved = 0

    def close(self) -> None:
        """Close the file; the object is of no use afterwards."""
        self.conn.close()

    @contextmanager
    def cursor(self, transaction: bool = True) -> Iterator[sqlite3.Cursor]:
        """Yield a cursor, as `SqliteSaver` asks for it; errors name the file and what to do."""
        with explaining(self._path), super().cursor(transaction) as cursor:
            yield cursor

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Save a checkpoint and return its config."""
        saved = super().put(config, checkpoint, metadata, new_versions)
        if self._num_saved % PRUNING_INTERVAL == 0:
            self.prune_thread(saved)
        self._num_saved += 1
        return saved

    def put_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        """Save what a node left behind, if a resume needs it before the next checkpoint."""
        if any(channel in WRITES_IDX_MAP for channel, _ in writes):
            super().put_writes(config, writes, task_id, task_path)

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
