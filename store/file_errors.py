"""What is wrong with a run file, in one line that says what to do."""

import errno
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

from costada.store.address import RunAddress
from costada.store.database_engine import Place

CAN_RESUME = "what was saved is still there, so the run can be resumed afterwards"

DAMAGES = {
    sqlite3.SQLITE_CORRUPT: "is damaged",
    sqlite3.SQLITE_NOTADB: "is not a run file, or is damaged",
    sqlite3.SQLITE_TOOBIG: "has a value larger than any that a run needs",
}
OBSTACLES = {
    sqlite3.SQLITE_FULL: (errno.ENOSPC, f"no room left to write to; free some, {CAN_RESUME}"),
    sqlite3.SQLITE_READONLY: (
        errno.EACCES,
        "may not be written, nor its folder; make both writable, or work on a copy of the folder",
    ),
    sqlite3.SQLITE_CANTOPEN: (
        errno.EACCES,
        "cannot be opened; expected a file in a folder that exists and may be written",
    ),
    sqlite3.SQLITE_IOERR: (errno.EIO, f"cannot be read or written; check the disk, {CAN_RESUME}"),
    sqlite3.SQLITE_BUSY: (
        errno.EBUSY,
        "another program keeps it locked; end that one, then resume",
    ),
}
"""What hinders a program, by SQLite's primary code: the system's number and what to do."""


SQLITE_ERRORS = (sqlite3.Error, UnicodeDecodeError)
"""What a query raises: of a damaged file, even SQLite's own message may be no text."""

NO_TEXT = "Could not decode to UTF-8"
"""How the message begins when a column that should hold text does not; it has no code."""


@contextmanager
def explaining(path: Path | None) -> Iterator[None]:
    """Raise what `explained` says in place of any error of the block that SQLite raises."""
    try:
        yield
    except SQLITE_ERRORS as error:
        explain(error, path)


def explain(error: Exception, path: Path | None) -> NoReturn:
    """Raise what `explained` says of an error."""
    explanation = explained(error, path)
    if explanation is error:
        raise error
    raise explanation from error


def explained(error: Exception, path: Path | None) -> Exception:
    """The error for the user: `ValueError` for a file that cannot be used as it is.

    An `OSError` that names the file stands for what hinders the program from using it: a full disk,
    a read-only folder, a lock. An error that is not a fault of the file comes back unchanged.
    """
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if path is None:
        return error
    if isinstance(error, UnicodeDecodeError) or str(error).startswith(NO_TEXT):
        return damaged(path, "is damaged (a text in it is not UTF-8)")
    if code in DAMAGES:
        return damaged(path, f"{DAMAGES[code]} ({error})")
    if code in OBSTACLES:
        number, advice = OBSTACLES[code]
        return OSError(number, advice, str(path))
    return error


@contextmanager
def checking_rows(place: Place | RunAddress) -> Iterator[None]:
    """Raise the error of a damaged file where rows in the block are not what they should be."""
    try:
        yield
    except (AttributeError, KeyError, TypeError) as error:
        raise damaged(place, f"a row in it is damaged ({error!r})") from error


def damaged(place: Place | RunAddress, what: str) -> ValueError:
    """The error for a file or database whose contents cannot be relied on."""
    rest = (
        ""
        if isinstance(place, str | RunAddress)
        else " (what is left can be read with: sqlite3 FILE .recover)"
    )
    return ValueError(
        f"{place or 'run in memory'}: {' '.join(what.split())}; restore it from a backup, or"
        f" begin another run{rest}"
    )


def other_format(place: Place | RunAddress, found: object, known: int) -> ValueError:
    """The error for a file or database that another version of CostAda wrote."""
    other = "database" if isinstance(place, str | RunAddress) else "folder"
    written = "no format" if found is None else f"format {found}"
    return ValueError(
        f"{place or 'run in memory'}: written by another version of CostAda ({written}, expected"
        f" {known}); use that version for this run, or start a new run in another {other}"
    )


def foreign(place: Place | RunAddress, what: str) -> ValueError:
    """The error for a file or database whose tables are not those of CostAda."""
    kind = "schema" if isinstance(place, str | RunAddress) else "run file"
    return ValueError(f"{place or 'run in memory'}: no {kind} of CostAda: {what}")
