"""Copy of a run as it was at an earlier iteration, under a new run id.

Tables are cut by their columns: `run_id` marks the rows of a run, `iteration` and `seq` when they
were written. Texts and other tables are copied whole.
"""

import json
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
    """Copy a run file as it is now, also while its run is active.

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
    """Delete the rows that a copy does not keep and give the others a new run id, atomically.

    The run then records its origin. Raises `OSError` if the file cannot be written.
    """
    origin = Origin(cut.folder, cut.run_id, cut.iteration)
    with closing(connect(database)) as connection, explaining(database), connection:
        prepare(connection)
        dropped = {"run_id !=": cut.run_id, "iteration >": cut.iteration, "seq >": cut.archive_seq}
        for table in OWN_TABLES:
            columns = {row[1] for row in connection.execute(f"PRAGMA table_info({table})")}
            if "run_id" not in columns:
                continue
            for condition, value in dropped.items():
                if condition.split()[0] in columns:
                    connection.execute(f"DELETE FROM {table} WHERE {condition} ?", (value,))  # noqa: S608
            connection.execute(f"UPDATE {table} SET run_id = ?", (new_id,))  # noqa: S608
        connection.execute("UPDATE costada_run SET origin = ?", (json.dumps(asdict(origin)),))
