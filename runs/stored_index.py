"""The runs of a Postgres database as rows of an index, read again when they have changed."""

from __future__ import annotations

from time import monotonic
from urllib.parse import quote

from costada.reports.index_page.run_index import IndexedRun, RunIndex
from costada.reports.run_view import RunView
from costada.runs.folder import DEFAULT_PARENT, RunFolder
from costada.runs.stored_run import StoredRun, lease_name, run_at
from costada.store.address import RunAddress, check_database, shown
from costada.store.named_runs import NamedRun
from costada.store.run_store import RunStore

SCAN_SECONDS = 1.0
"""Time between two looks at the list of all runs."""


class StoredIndex(RunIndex):
    """The runs of a database; two queries say which of them have changed."""

    def __init__(self, place: str) -> None:
        """Take the address of a database, or of one run in it.

        Raises:
            ValueError: The address is malformed, the tables are not those of CostAda, or there is
                no such run.
            OSError: The server cannot be reached.
        """
        self._place = run_at(place) if "#" in place else None
        self._database = place.partition("#")[0]
        check_database(self._database)
        self._store = RunStore.postgres(self._database, is_read_only=True)
        self.known: dict[str, NamedRun] = {}
        self.holders: dict[str, str] = {}
        super().__init__(DEFAULT_PARENT, lambda path: self._place or RunFolder(path))

    @property
    def is_one_run(self) -> bool:
        """Whether the address is that of a run."""
        return self._place is not None

    @property
    def title(self) -> str:
        """The address without its password."""
        return self._place.place if self._place else shown(self._database)

    def close(self) -> None:
        """Close the connection."""
        self._store.close()

    def holder(self, name: str) -> str:
        """Which process is at work in a run; empty if none is."""
        return self.holders.get(lease_name(name), "")

    def _scan(self) -> None:
        """Find new runs and what has changed; the caller holds the lock."""
        if self.is_one_run or monotonic() < self._next_scan:
            return
        self.known = {each.name: each for each in self._store.named.all()}
        self.holders = self._store.holders()
        self._runs = {
            quote(name): self._runs.get(quote(name))
            or IndexedRun(quote(name), self._run(name), self._signature)
            for name in self.known
        }
        self._next_scan = monotonic() + SCAN_SECONDS

    def _run(self, name: str) -> StoredRun:
        return StoredRun(DEFAULT_PARENT / name, RunAddress(self._database, name))

    def _signature(self, run: RunView) -> tuple[object, ...]:
        name = run.database.run if isinstance(run.database, RunAddress) else ""
        return self.known.get(name), self.holder(name)
