"""Copies of a run file: whole, or cut back to an earlier point of the run."""

import json
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path

from costada.store.address import damage_error
from costada.store.database import any_of
from costada.store.rows import CallStatus, Origin
from costada.store.schema import OWN_TABLES, prepare
from costada.store.sqlite_engine import connect, connect_to_read, explaining
from costada.values.numbering import Iteration, TicketNumber
from costada.values.roles import GUIDE


@dataclass(frozen=True, slots=True)
class Cut:
    """Which rows a copy keeps: those of one run up to a point.

    Attributes:
        run_id: The run's id in the file that was copied.
        iteration: The last iteration that is kept.
        archive_seq: The last change of the archives that is kept.
        landings: The last place in the order of landing that is kept.
        last_ticket: The last ticket that is kept.
        in_flight: The attempt that each ticket in flight makes; 0 for a guide.
        waiting: Numbers of the inputs that wait for a ticket then.
        folder: Where the run that was copied lives; the copy remembers it.
    """

    run_id: str
    iteration: Iteration
    archive_seq: int
    landings: int
    last_ticket: TicketNumber
    in_flight: Mapping[TicketNumber, int]
    waiting: tuple[int, ...] = ()
    folder: str = ""


def copy_file(source: Path, target: Path) -> None:
    """Copy a run file as it is now, also while its run is active.

    Raises:
        ValueError: If the file is damaged, not a run file, or written by another version.
        OSError: If a file cannot be read or written.
    """
    with closing(connect_to_read(source)) as original, closing(connect(target)) as copy:
        with explaining(target):
            original.backup(copy)
        with explaining(source):
            # Of the copy, which no run changes meanwhile; its damage is that of the source.
            ((verdict,),) = copy.execute("PRAGMA quick_check(1)").fetchall()
    if verdict != "ok":
        raise damage_error(source, f"is damaged ({verdict})")


def cut_back(database: Path, cut: Cut, new_id: str) -> None:
    """Delete the rows that a copy does not keep and give the others a new run id, atomically.

    Tables are cut by their columns: `run_id` marks the rows of a run, `ticket`, `iteration`, `seq`
    and `landing` when they were written. Of the tickets in flight, what they have bought up to
    their present attempt stays. Of the inputs, those stay that a kept ticket has taken, or that
    `waiting` names.
    Texts and other tables are kept whole. The run then records its origin. Raises `OSError` if the
    file cannot be written.
    """
    origin = Origin(cut.folder, cut.run_id, cut.iteration)
    dropped = {
        "run_id !=": cut.run_id,
        "ticket >": cut.last_ticket,
        "iteration >": cut.iteration,
        "seq >": cut.archive_seq,
        "landing >": cut.landings,
    }
    with closing(connect(database)) as connection, explaining(database), connection:
        prepare(connection)  # an older file may lack tables that are cut below
        kept = any_of(cut.waiting)
        connection.execute(
            f"UPDATE costada_input SET ticket = NULL WHERE number IN {kept}",  # noqa: S608
            cut.waiting,
        )
        for table in OWN_TABLES:
            columns = {row[1] for row in connection.execute(f"PRAGMA table_info({table})")}
            if "run_id" not in columns:
                continue
            for condition, value in dropped.items():
                if condition.split()[0] in columns:
                    connection.execute(f"DELETE FROM {table} WHERE {condition} ?", (value,))  # noqa: S608
            connection.execute(f"UPDATE {table} SET run_id = ?", (new_id,))  # noqa: S608
        connection.execute(
            f"DELETE FROM costada_input WHERE ticket IS NULL AND number NOT IN {kept}",  # noqa: S608
            cut.waiting,
        )
        for ticket, attempt in cut.in_flight.items():
            _cut_ticket(connection, ticket, attempt)
        connection.execute("UPDATE costada_run SET origin = ?", (json.dumps(asdict(origin)),))


def _cut_ticket(connection: sqlite3.Connection, ticket: TicketNumber, attempt: int) -> None:
    """Delete what a ticket did after an attempt, and requests that have no end yet."""
    later = f"ticket = ? AND role != '{GUIDE}' AND attempt > ?"
    for table in ("costada_call", "costada_outcome"):
        connection.execute(f"DELETE FROM {table} WHERE {later}", (ticket, attempt))  # noqa: S608
    connection.execute(
        "DELETE FROM costada_call WHERE ticket = ? AND status = ?", (ticket, CallStatus.STARTED)
    )
    connection.execute(
        # SQLite casts the digits up to the next dot: the attempt of `ticket.attempt.trial`.
        "DELETE FROM costada_candidate WHERE ticket = ? AND iteration IS NULL"
        " AND CAST(substr(id, instr(id, '.') + 1) AS INTEGER) > ?",
        (ticket, attempt),
    )
