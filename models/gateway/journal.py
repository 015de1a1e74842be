"""The file in which a gateway writes down what it sent and what came back."""

import json
import os
import sqlite3
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from time import time
from typing import NamedTuple

from costada.models.gateway.protocol import Headers, open_for_owner, refuse_link

VERSION = 1
BUSY_SECONDS = 30.0
_SCHEMA = f"""
CREATE TABLE costada_journal (version INTEGER NOT NULL);
INSERT INTO costada_journal VALUES ({VERSION});
CREATE TABLE costada_request (
    number INTEGER PRIMARY KEY,
    call TEXT NOT NULL,
    request_hash TEXT NOT NULL,
    fate TEXT NOT NULL,
    status INTEGER,
    headers TEXT,
    body BLOB,
    sent_at REAL NOT NULL,
    ended_at REAL
);
CREATE INDEX costada_request_of_call ON costada_request (call);
"""  # noqa: S608


class Outcome(StrEnum):
    """What became of a request.

    `SENT`: under way. `ANSWERED`: a complete response with a status of success. `REFUSED`: a
    response with any other status. `UNSENT`: the provider could not be reached. `LOST`: sent, and
    nobody knows what came of it.
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


class Entry(NamedTuple):
    """A request of a call, as the journal has it."""

    number: int
    request_hash: str
    fate: Outcome

    @property
    def may_be_billed(self) -> bool:
        """Whether it was billed or may have been."""
        return self.fate in (Outcome.SENT, Outcome.ANSWERED, Outcome.LOST)


@dataclass(frozen=True, slots=True)
class Response:
    """A response as it is kept; without an answer, status and body are empty."""

    fate: Outcome
    status: int = 0
    headers: Headers = ()
    body: bytes = b""


class Journal:
    """The journal, open for one process. It holds answers, never requests, keys or their headers.

    Attributes:
        num_lost: Requests that were under way when the gateway before this one died.
    """

    def __init__(self, path: Path) -> None:
        """Open or create the file, readable by its owner only; what is under way in it is lost.

        Raises:
            ValueError: It is the journal of another version, or a link.
            OSError: It cannot be created.
            sqlite3.Error: It is no database or cannot be written.
        """
        for end in ("-wal", "-shm", "-journal"):
            refuse_link(path.with_name(f"{path.name}{end}"))
        os.close(open_for_owner(path, os.O_RDWR))
        self._db = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None)
        try:
            self._prepare(path)
            lost = "UPDATE costada_request SET fate = ?, ended_at = ? WHERE fate = ?"
            self.num_lost = self._db.execute(lost, (Outcome.LOST, time(), Outcome.SENT)).rowcount
        except BaseException:  # raised again: the file is closed on the way
            self._db.close()
            raise

    def begin(self, key: RequestKey) -> int:
        """Write a request down that is about to leave, and return its number."""
        cursor = self._db.execute(
            "INSERT INTO costada_request (call, request_hash, fate, sent_at) VALUES (?, ?, ?, ?)",
            (*key, Outcome.SENT, time()),
        )
        return int(cursor.lastrowid or 0)

    def finish(self, number: int, response: Response) -> None:
        """Write down what came of a request."""
        self._db.execute(
            "UPDATE costada_request SET fate = ?, status = ?, headers = ?, body = ?, ended_at = ?"
            " WHERE number = ?",
            (
                response.fate,
                response.status,
                json.dumps(response.headers),
                response.body,
                time(),
                number,
            ),
        )

    def history(self, call: str) -> list[Entry]:
        """Return the requests of a call, in the order in which they were sent."""
        found = self._db.execute(
            "SELECT number, request_hash, fate FROM costada_request WHERE call = ? ORDER BY number",
            (call,),
        )
        return [Entry(number, request_hash, Outcome(fate)) for number, request_hash, fate in found]

    def response(self, number: int) -> Response:
        """Return what came of a request."""
        fate, status, headers, body = self._db.execute(
            "SELECT fate, status, headers, body FROM costada_request WHERE number = ?", (number,)
        ).fetchone()
        pairs = tuple((name, value) for name, value in json.loads(headers or "[]"))
        return Response(Outcome(fate), status or 0, pairs, body or b"")

    def fates(self) -> list[tuple[str, Outcome]]:
        """Return call and fate of each request, in the order in which they were sent."""
        found = self._db.execute("SELECT call, fate FROM costada_request ORDER BY number")
        return [(call, Outcome(fate)) for call, fate in found]

    def close(self) -> None:
        """Close the file; the object is of no use afterwards."""
        self._db.close()

    def _prepare(self, path: Path) -> None:
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("PRAGMA synchronous=FULL")
        if not self._db.execute(
            "SELECT 1 FROM sqlite_master WHERE name = 'costada_journal'"
        ).fetchall():
            self._db.executescript(f"BEGIN;{_SCHEMA}COMMIT;")
        ((version,),) = self._db.execute("SELECT version FROM costada_journal").fetchall()
        if version != VERSION:
            raise ValueError(f"{path}: journal of version {version}, expected {VERSION}")
