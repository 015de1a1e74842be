"""Where a graph keeps programs and calls when the caller does not say."""

from typing import Any

from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver

from costada.store.run_store import RunStore


def store_beside(checkpointer: BaseCheckpointSaver[Any] | bool | None) -> RunStore:
    """Return a store that lives as long as the checkpoints do.

    An SQLite saver shares its file; without a saver, with one in memory or with a parent graph's
    the store is in memory.

    Raises:
        ValueError: The saver keeps its checkpoints somewhere this function does not know.
    """
    if isinstance(checkpointer, SqliteSaver):
        ((_, _, path), *_) = checkpointer.conn.execute("PRAGMA database_list").fetchall()
        return RunStore(path or None)
    if isinstance(checkpointer, InMemorySaver | bool | None):
        return RunStore()
    raise ValueError(
        f"store: got None with a {type(checkpointer).__name__}, whose checkpoints outlive this"
        " process; expected RunStore(path), so that a resumed run finds its programs again"
    )
