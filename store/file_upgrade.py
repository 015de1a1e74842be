"""Upgrades a file of an earlier format, in one transaction and with a backup beside it."""

import os
import sqlite3
from collections.abc import Sequence
from contextlib import closing, suppress
from itertools import chain, count
from pathlib import Path
from typing import Any

from costada.store.address import damage_error
from costada.store.earlier_formats import migrate_tables, migrated_checkpoint
from costada.store.files import sync_folder
from costada.store.rows import MAX_CELL
from costada.store.schema import FILE_INDEXES, FORMAT, INDEXES, TABLES, format_of, has_table

OWNER_ONLY = 0o600


CONTENT_ERRORS = {sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CONSTRAINT}
"""What SQLite raises where tables or rows are not those of their format."""


def backup_of(path: Path, found: int) -> Path:
    """An unused name beside a file for what it was before its upgrade; earlier backups stay."""
    first = f"{path.name}.format-{found}"
    names = chain([first], (f"{first}.{number}" for number in count(2)))
    return next(each for each in map(path.with_name, names) if not os.path.lexists(each))


def upgrade_connected(connection: sqlite3.Connection, path: Path) -> str | None:
    """Upgrade an open file, and return what its user is told; `None`: there was nothing to do.

    The transaction keeps other writers out while the backup is made. A process that is killed
    leaves the file as it was, or upgraded; another call completes what it left.

    Raises:
        ValueError: A row or a checkpoint is damaged.
        sqlite3.Error: The file or its backup cannot be written.
    """
    connection.execute("BEGIN IMMEDIATE")
    try:
        found = format_of(connection)  # again: another process may have upgraded it
        if found is None or found >= FORMAT:
            connection.execute("ROLLBACK")
            return None
        copied = _committed_copy(path, found)
        _migrate(connection, path, found)
        backup = backup_of(path, found)
        copied.replace(backup)
        sync_folder(path.absolute().parent)
        connection.execute("COMMIT")
    except BaseException:  # raised again: the file stays as it was
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    return upgrade_notice(path, found, backup)


def upgrade_notice(path: Path, found: int, backup: Path) -> str:
    """What a user is told of a file that was upgraded."""
    return f"{path}: upgraded from format {found} to {FORMAT}; {backup.name} is what it was before"


def upgraded_copy(connection: sqlite3.Connection, path: Path, found: int) -> sqlite3.Connection:
    """A temporary copy of a file of an earlier format, as this version reads it; the file stays.

    Raises:
        ValueError: A row or a checkpoint is damaged.
    """
    # A database without a name is SQLite's own temporary file, which ends with the connection.
    copy = sqlite3.connect("", check_same_thread=False)
    try:
        copy.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_CELL)
        copy.execute("PRAGMA trusted_schema=OFF")
        connection.backup(copy)
        copy.execute("BEGIN")
        _migrate(copy, path, found)
        copy.execute("COMMIT")
        copy.execute("PRAGMA query_only = ON")
    except BaseException:  # raised again: the copy is closed on the way
        copy.close()
        raise
    return copy


def _committed_copy(path: Path, found: int) -> Path:
    """Copy what is committed of a file to an unfinished backup; its writers wait."""
    # Absolute: SQLite takes a relative `:memory:` for a database in memory.
    path = path.absolute()
    target = path.with_name(f"{path.name}.format-{found}.tmp")
    with suppress(FileNotFoundError):
        target.unlink()
    os.close(os.open(target, os.O_RDWR | os.O_CREAT | os.O_EXCL, OWNER_ONLY))
    with closing(sqlite3.connect(path)) as source, closing(sqlite3.connect(target)) as copy:
        source.backup(copy)
    with target.open("rb+") as file:
        os.fsync(file.fileno())
    return target


def _migrate(connection: sqlite3.Connection, path: Path, found: int) -> None:
    """Change tables and checkpoints, within the transaction of the caller."""

    def execute(statement: str, values: Sequence[object]) -> list[tuple[Any, ...]]:
        return connection.execute(statement, values).fetchall()

    try:
        migrate_tables(found, execute)
        # What the format lacks; `executescript` would commit.
        for statement in f"{TABLES}{INDEXES}{FILE_INDEXES}".split(";"):
            connection.execute(statement)
        if has_table(connection, "checkpoints"):
            _migrate_checkpoints(connection, found)
    except sqlite3.Error as error:
        if error.sqlite_errorcode & 0xFF not in CONTENT_ERRORS:
            raise
        raise damage_error(path, f"cannot be upgraded from format {found} ({error})") from error
    except (AttributeError, LookupError, TypeError, ValueError, OverflowError) as error:
        raise damage_error(path, f"cannot be upgraded from format {found} ({error!r})") from error


def _migrate_checkpoints(connection: sqlite3.Connection, found: int) -> None:
    from costada.store.state_serializer import StateSerializer  # LangGraph loads slowly

    serializer = StateSerializer()
    names = connection.execute("SELECT rowid FROM checkpoints").fetchall()
    for (rowid,) in names:
        ((kind, packed),) = connection.execute(
            "SELECT type, checkpoint FROM checkpoints WHERE rowid = ?", (rowid,)
        ).fetchall()
        try:
            checkpoint = serializer.loads_typed((kind, packed))
        except ValueError:
            continue  # of another graph, whose state is not plain
        changed = migrated_checkpoint(found, checkpoint)
        if changed is None:
            continue
        connection.execute(
            "UPDATE checkpoints SET type = ?, checkpoint = ? WHERE rowid = ?",
            (*serializer.dumps_typed(changed), rowid),
        )
        # Results of nodes that were kept for a crash; the nodes run again. Interrupts stay.
        connection.execute(
            "DELETE FROM writes WHERE idx >= 0 AND (thread_id, checkpoint_ns, checkpoint_id) ="
            " (SELECT thread_id, checkpoint_ns, checkpoint_id FROM checkpoints WHERE rowid = ?)",
            (rowid,),
        )
