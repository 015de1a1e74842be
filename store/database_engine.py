"""What a `Database` needs of the server or library below it."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from threading import RLock
from typing import Any, Protocol

from costada.store.lease import Lease

Place = Path | str | None
"""What messages call a database: its file, its address without the password, `None` in memory."""


class Engine(Protocol):
    """Executes SQL that SQLite and Postgres both understand, with `?` or `?1` for values.

    Every use raises `ValueError` for a database that cannot be used as it is, and `OSError` for
    what hinders the program from using it. Both name the place and what to do.

    Attributes:
        lock: Held by the thread that has a transaction open.
        texts_need_commit: Whether a text that a transaction stores is lost when that is undone.
        is_shared: Whether processes of several machines can have it open.
    """

    texts_need_commit: bool
    is_shared: bool
    lock: RLock

    @property
    def place(self) -> Place:
        """What messages call the database."""

    @property
    def in_transaction(self) -> bool:
        """Whether the thread, which has the lock, has a transaction open."""

    @property
    def num_losses(self) -> int:
        """How often the connection was lost; commits that were not durable may be lost as well."""

    def transaction(self, *, is_durable: bool = False) -> AbstractContextManager[None]:
        """Make the writes inside atomic; an exception undoes them.

        Transactions of one engine follow one another, whatever thread they are in.
        """

    def hold(self, name: str) -> Lease | None:
        """Hold a run for this process if processes on other machines could work on it.

        Raises:
            ValueError: Another process holds the run, naming it.
        """

    def holders(self, name: str | None = None) -> dict[str, str]:
        """The process that holds each run, or the one of a name; none in a file."""

    def begin_snapshot(self) -> None:
        """Let all later queries see what is committed now; for a reader, until it is closed."""

    def rows(
        self, statement: str, values: Sequence[object] = (), *, locks: bool = False
    ) -> list[tuple[Any, ...]]:
        """All rows that a statement returns.

        With `locks`, no other client changes them until the transaction ends.
        """

    def put_row(self, table: str, row: Sequence[object]) -> None:
        """Write all columns of a row in place of the one with its key; it then is the newest."""

    def draw(self, entry: Sequence[object], *, begins: bool) -> bool:
        """Write an entry of a purse and book it, durably and in one request to the server.

        Returns whether it did; an engine without a server never does, and none does where a call
        that `begins` may not.

        Args:
            entry: The columns of the row.
            begins: Whether the call has to be a new one that fits what is left.
        """

    def put_blob(self, name: str, data: bytes) -> bool:
        """Store bytes under their hash, unless they are there; whether they were not."""

    def close(self) -> None:
        """Close all connections."""
