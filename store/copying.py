"""The copy of a run as it was earlier: its own rows up to then, under an id of its own.

Every table is treated by its columns: `run_id` marks rows of a run, `iteration` and `seq` say when
they came to be. Texts are shared by all and copied as they are.
"""

import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from costada.store.database import connect, connect_to_read


@dataclass(frozen=True, slots=True)
class Cut:
    """Which rows a copy keeps: those of one run up to a point.

    Attributes:
        run_id: The run's id in the file that was copied.
        iteration: The last iteration that is kept.
        archive_seq: The last change of the archives that is kept.
    """

    run_id: str
    iteration: int
    archive_seq: int


def copy_file(source: Path, target: Path) -> None:
    """Copy a run file as it is at this moment, also while its run goes on.

    Raises:
        sqlite3.Error: If a file cannot be read or written.
    """
    with closing(connect_to_read(source)) as original, closing(connect(target)) as copy:
        original.backup(copy)


def cut_back(database: Path, cut: Cut, new_id: str) -> None:
    """Delete the rows that a copy does not keep and give the others a new run id, all at once.

    Raises:
        sqlite3.Error: If the file cannot be written.
    """
    with closing(connect(database)) as connection, connection:
        for table, columns in _tables_of_runs(connection):
            _delete(connection, table, "run_id != ?", cut.run_id)
            if "iteration" in columns:
                _delete(connection, table, "iteration > ?", cut.iteration)
            if "seq" in columns:
                _delete(connection, table, "seq > ?", cut.archive_seq)
            connection.execute(f"UPDATE {table} SET run_id = ?", (new_id,))  # noqa: S608


def _tables_of_runs(connection: sqlite3.Connection) -> list[tuple[str, set[str]]]:
    names = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
    columns = {
        name: {row[1] for row in connection.execute(f"PRAGMA table_info({name})")}
        for (name,) in names
    }
    return [(name, known) for name, known in columns.items() if "run_id" in known]


def _delete(connection: sqlite3.Connection, table: str, condition: str, value: object) -> None:
    connection.execute(f"DELETE FROM {table} WHERE {condition}", (value,))  # noqa: S608
