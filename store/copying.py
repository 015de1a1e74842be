"""The copy of a run as it was earlier: its own rows up to then, under an id of its own.

Every table of ours is treated by its columns: `run_id` marks rows of a run, `iteration` and `seq`
say when they came to be. Texts are shared by all and copied as they are, as other tables are.
"""

import json
import sqlite3
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path

from costada.store.database import connect, connect_to_read
from costada.store.file_errors import damaged, explaining
from costada.store.rows import Origin
from costada.store.schema import OWN_TABLES, prepare


@dataclass(frozen=True, slots=True)
class Cut:
    """Which rows a copy keeps: those of one run up to a point.

    Attributes:
        run_id: The run's id in the file that was copied.
        iteration: The last iteration that is kept.
        archive_seq: The last change of the archives that is kept.
        folder: Where the run that was copied lives; the copy remembers it.
    """

    run_id: str
    iteration: int
    archive_seq: int
    folder: str = ""


def copy_file(source: Path, target: Path) -> None:
    """Copy a run file as it is at this moment, also while its run goes on.

    Raises:
        ValueError: If the file is damaged, no run file, or was written by another version.
        OSError: If a file cannot be read or written.
    """
    with closing(connect_to_read(source)) as original, closing(connect(target)) as copy:
        with explaining(target):
            original.backup(copy)
        with explaining(source):
            ((verdict,),) = copy.execute("PRAGMA quick_check(1)").fetchall()
    if verdict != "ok":
        raise damaged(source, f"is damaged ({verdict})")


def cut_back(database: Path, cut: Cut, new_id: str) -> None:
    """Delete the rows that a copy does not keep and give the others a new run id, all at once.

    The run says from then on where it comes from.

    Raises:
        OSError: If the file cannot be written.
    """
    origin = Origin(cut.folder, cut.run_id, cut.iteration)
    with closing(connect(database)) as connection, explaining(database), connection:
        prepare(connection)
        for table, columns in _tables_of_runs(connection):
            _delete(connection, table, "run_id != ?", cut.run_id)
            if "iteration" in columns:
                _delete(connection, table, "iteration > ?", cut.iteration)
            if "seq" in columns:
                _delete(connection, table, "seq > ?", cut.archive_seq)
            connection.execute(f"UPDATE {table} SET run_id = ?", (new_id,))  # noqa: S608
        connection.execute("UPDATE costada_run SET origin = ?", (json.dumps(asdict(origin)),))


def _tables_of_runs(connection: sqlite3.Connection) -> list[tuple[str, set[str]]]:
    """Our tables that hold rows of runs, each with its columns."""
    columns = {
        name: {row[1] for row in connection.execute(f"PRAGMA table_info({name})")}
        for name in OWN_TABLES
    }
    return [(name, known) for name, known in columns.items() if "run_id" in known]


def _delete(connection: sqlite3.Connection, table: str, condition: str, value: object) -> None:
    connection.execute(f"DELETE FROM {table} WHERE {condition}", (value,))  # noqa: S608
