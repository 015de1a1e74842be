"""A LangGraph saver that keeps a run file small: one checkpoint per iteration, only the latest."""

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from langgraph.checkpoint.sqlite import SqliteSaver

from costada.store.checkpoint_rules import RunCheckpoints, StateSerializer
from costada.store.file_errors import damaged, explaining
from costada.store.sqlite_engine import connect


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
                if transaction:
                    raise
                raise damaged(self._path, f"a checkpoint in it is damaged ({error})") from error

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
