"""The file in which a gateway records what it sent and what came back."""

import errno
import json
import os
import sqlite3
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from time import time
from typing import NamedTuple
from uuid import uuid4

from costada.plugins.gateway.gateway_protocol import Headers, open_for_owner, refuse_link

VERSION = 2
BUSY_SECONDS = 30.0
_SCHEMA = f"""
CREATE TABLE costada_journal (version INTEGER NOT NULL);
INSERT INTO costada_journal VALUES ({VERSION});
CREATE TABLE costada_request (
    number INTEGER PRIMARY KEY,
    call TEXT NOT NULL,
    request_hash TEXT NOT NULL,
    state TEXT NOT NULL,
    status INTEGER,
    headers TEXT,
    body BLOB,
    sent_at REAL NOT NULL,
    ended_at REAL
);
CREATE INDEX costada_request_of_call ON costada_request (call);
"""  # noqa: S608
_IDENTITY = "CREATE TABLE IF NOT EXISTS costada_identity (id TEXT NOT NULL, inode TEXT NOT NULL)"


class RequestState(StrEnum):
    """How far a request came.

    `SENT`: no complete response yet. `ANSWERED`: a complete response with a status of success.
    `REFUSED`: a response with any other status. `UNSENT`: the provider could not be reached.
    `LOST`: sent, and its response is unknown.
    """

    SENT = "sent"
    ANSWERED = "answered"
    REFUSED = "refused"
    UNSENT = "unsent"
    LOST = "lost"


class RequestKey(NamedTuple):
    """What a client asks: the logical call, and a hash of the request."""

    call: str
    request_hash: str


class JournalEntry(NamedTuple):
    """A request of a call, as the journal has it."""

    number: int
    request_hash: str
    state: RequestState

    @property
    def may_be_billed(self) -> bool:
        """Whether it was billed or may have been."""
        return self.state in (RequestState.SENT, RequestState.ANSWERED, RequestState.LOST)


@dataclass(frozen=True, slots=True)
class Response:
    """A response as it is kept; without an answer, status and body are empty."""

    state: RequestState
    status: int = 0
    headers: Headers = ()
    body: bytes = b""


class Journal:
    """The journal, open for one process. It holds answers, never requests, keys or their headers.

    Attributes:
        id: Identifies this file. A copy gets another id, as it lacks what is recorded here later.
        num_lost: Requests without a complete response when the gateway before this one died.
    """

    def __init__(self, path: Path) -> None:
        """Open or create the file, readable by its owner only; unfinished requests become `LOST`.

        Raises:
            ValueError: It is no database, the journal of another version, or a link.
            OSError: It cannot be created or written.
        """
        for end in ("-wal", "-shm", "-journal"):
            refuse_link(path.with_name(f"{path.name}{end}"))
        os.close(open_for_owner(path, os.O_RDWR))
        self._db = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None)
        try:
            tables = {name for (name,) in self._db.execute("SELECT name FROM sqlite_master")}
            if tables and "costada_journal" not in tables:
                raise ValueError(f"{path}: is another database, expected a journal of a gateway")
            # Full: an answer that was passed on is paid, and must outlast a loss of power.
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=FULL")
            if not tables:
                self._db.executescript(f"BEGIN;{_SCHEMA}COMMIT;")
            ((version,),) = self._db.execute("SELECT version FROM costada_journal").fetchall()
            if version != VERSION:
                raise ValueError(f"{path}: journal of version {version}, expected {VERSION}")
            lost = "UPDATE costada_request SET state = ?, ended_at = ? WHERE state = ?"
            values = (RequestState.LOST, time(), RequestState.SENT)
            self.num_lost = self._db.execute(lost, values).rowcount
            self.id = self._identity(str(path.stat().st_ino))
        except sqlite3.Error as error:
            self._db.close()
            if isinstance(error, sqlite3.OperationalError):  # such as a full disk
                raise OSError(errno.EIO, str(error), str(path)) from error
            raise ValueError(f"{path}: {error}, expected a journal of a gateway") from error
        except BaseException:  # raised again: the file is closed on the way
            self._db.close()
            raise

    def _identity(self, inode: str) -> str:
        self._db.execute(_IDENTITY)
        known = "SELECT id FROM costada_identity WHERE inode = ?"
        if not (found := self._db.execute(known, (inode,)).fetchall()):
            found = [(uuid4().hex,)]
            self._db.execute("BEGIN IMMEDIATE")
            self._db.execute("DELETE FROM costada_identity")
            self._db.execute("INSERT INTO costada_identity VALUES (?, ?)", (*found[0], inode))
            self._db.execute("COMMIT")
        return str(found[0][0])

    def begin(self, key: RequestKey) -> int:
        """Record a request that is about to leave, and return its number."""
        cursor = self._db.execute(
            "INSERT INTO costada_request (call, request_hash, state, sent_at) VALUES (?, ?, ?, ?)",
            (*key, RequestState.SENT, time()),
        )
        return int(cursor.lastrowid or 0)

    def finish(self, number: int, response: Response) -> None:
        """Record how a request ended."""
        headers = json.dumps(response.headers)
        self._db.execute(
            "UPDATE costada_request SET state = ?, status = ?, headers = ?, body = ?, ended_at = ?"
            " WHERE number = ?",
            (response.state, response.status, headers, response.body, time(), number),
        )

    def history(self, call: str) -> list[JournalEntry]:
        """The requests of a call, in the order in which they were sent."""
        found = self._db.execute(
            "SELECT number, request_hash, state FROM costada_request WHERE call = ?"
            " ORDER BY number",
            (call,),
        )
        return [
            JournalEntry(number, hashed, RequestState(state)) for number, hashed, state in found
        ]

    def response(self, number: int) -> Response:
        """How a request ended."""
        state, status, headers, body = self._db.execute(
            "SELECT state, status, headers, body FROM costada_request WHERE number = ?", (number,)
        ).fetchone()
        pairs = tuple((name, value) for name, value in json.loads(headers or "[]"))
        return Response(RequestState(state), status or 0, pairs, body or b"")

    def states(self) -> list[tuple[str, RequestState]]:
        """Call and state of each request, in the order in which they were sent."""
        found = self._db.execute("SELECT call, state FROM costada_request ORDER BY number")
        return [(call, RequestState(state)) for call, state in found]

    def close(self) -> None:
        """Close the file; the object cannot be used afterwards."""
        self._db.close()
