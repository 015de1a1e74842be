"""Upgrades a file of an earlier format, in one transaction and with a backup beside it."""

import os
import sqlite3
from collections.abc import Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from costada.store.address import damage_error
from costada.store.earlier_formats import migrate_tables, migrated_checkpoint
from costada.store.rows import MAX_CELL
from costada.store.schema import FILE_INDEXES, FORMAT, INDEXES, TABLES, format_of, has_table
from costada.store.state_serializer import StateSerializer

OWNER_ONLY = 0o600


def backup_of(path: Path, found: int) -> Path:
    """The file that keeps what another one was before its upgrade, beside it."""
    return path.with_name(f"{path.name}.format-{found}")


def upgrade_connected(connection: sqlite3.Connection, path: Path) -> int | None:
    """Upgrade an open file, and return the earlier format that it had; `None`: it had none.

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
        _back_up(path, backup_of(path, found))
        _migrate(connection, path, found)
        connection.execute("COMMIT")
    except BaseException:  # raised again: the file stays as it was
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    return found


def upgrade_notice(path: Path, found: int) -> str:
    """What a user is told of a file that was upgraded."""
    backup = backup_of(path, found).name
    return f"{path}: upgraded from format {found} to {FORMAT}; {backup} is what it was before"


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


def _back_up(path: Path, target: Path) -> None:
    """Copy what is committed of a file to one that is whole or not there; its writers wait."""
    unfinished = target.with_name(f"{target.name}.tmp")
    with suppress(FileNotFoundError):
        unfinished.unlink()
    os.close(os.open(unfinished, os.O_RDWR | os.O_CREAT | os.O_EXCL, OWNER_ONLY))
    with closing(sqlite3.connect(path)) as source, closing(sqlite3.connect(unfinished)) as copy:
        source.backup(copy)
    with unfinished.open("rb+") as file:
        os.fsync(file.fileno())
    unfinished.replace(target)


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
    except (AttributeError, KeyError, TypeError, IndexError, ValueError) as error:
        raise damage_error(path, f"cannot be upgraded from format {found} ({error!r})") from error


def _migrate_checkpoints(connection: sqlite3.Connection, found: int) -> None:
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
