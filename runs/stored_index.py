"""The runs of a Postgres database as rows of an index, read again when they have changed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING
from urllib.parse import quote

from costada.reports.alerts import AlertLimits
from costada.reports.indexed_run import NO_LIMITS, IndexedRun
from costada.reports.run_index import RunIndex
from costada.reports.run_view import RunView
from costada.runs.folder import DEFAULT_PARENT, RunFolder
from costada.runs.stored_run import StoredRun, lease_name, run_at
from costada.store.accounts import Account
from costada.store.address import RunAddress, check_database, shown_address
from costada.store.lease import Holder
from costada.store.run_store import NamedRun, RunStore

if TYPE_CHECKING:
    from costada.store.job_queue import JobQueue

SCAN_SECONDS = 1.0
"""Time between two looks at the list of all runs."""


class StoredIndex(RunIndex):
    """The runs of a database; two queries say which of them have changed."""

    def __init__(
        self, place: str, sweep: Path | None = None, limits: AlertLimits = NO_LIMITS
    ) -> None:
        """Take the address of a database, of one run in it, or of a sweep as DSN#SWEEP.

        With the folder of a sweep, only its runs are shown; none of them needs to exist yet.

        Raises:
            ValueError: The address is malformed, the tables are not those of CostAda, or there is
                no such run or sweep.
            OSError: The server cannot be reached.
        """
        self._database, _, name = place.partition("#")
        self._parent = sweep.parent if sweep else DEFAULT_PARENT
        self._place = run_at(place) if name else None
        check_database(self._database)
        self._store = RunStore.postgres(self._database, is_read_only=True)
        self._queue: JobQueue | None = None
        self.known: dict[str, NamedRun] = {}
        self.holders: dict[str, Holder] = {}
        self._sweep = sweep.name if sweep else ""
        names = [each.name for each in self._store.named.all()] if name else []
        # A name that only begins those of runs is that of a sweep.
        if name not in names and any(each.startswith(f"{name}/") for each in names):
            self._place, self._sweep = None, name
        super().__init__(self._parent, lambda path: self._place or RunFolder(path), limits)

    @property
    def is_one_run(self) -> bool:
        """Whether the address is that of a run."""
        return self._place is not None

    @property
    def title(self) -> str:
        """The address without its password."""
        if self._place:
            return self._place.place
        return f"{shown_address(self._database)}#{self._sweep}".removesuffix("#")

    def close(self) -> None:
        """Close the connections."""
        if self._queue is not None:
            self._queue.close()
        self._store.close()

    def holder(self, name: str) -> str:
        """Which process is at work in a run; empty if none is."""
        return str(self.holders.get(lease_name(name), ""))

    def purses(self) -> list[Account]:
        """The purses of this database that pay for runs in it."""
        return self._store.paying_purses()

    def jobs(self) -> Mapping[tuple[str, str], int]:
        """How many jobs of the queue in this database each team has in each state."""
        if self._queue is None:
            from costada.store.job_queue import JobQueue

            self._queue = JobQueue(self._database, is_read_only=True)
        return self._queue.counts()

    def _scan(self) -> None:
        """Find new runs and what has changed; the caller holds the lock."""
        if self.is_one_run or monotonic() < self._next_scan:
            return
        found = self._store.named.all()
        begins = f"{self._sweep}/" if self._sweep else ""
        self.known = {each.name: each for each in found if each.name.startswith(begins)}
        self.holders = self._store.holders()
        runs: dict[str, IndexedRun] = {}
        for name in self.known:
            run = StoredRun(self._parent / name, RunAddress(self._database, name))
            known = self._runs.get(quote(name))
            runs[quote(name)] = known or IndexedRun(quote(name), run, self._signature)
        self._runs = runs
        self._next_scan = monotonic() + SCAN_SECONDS

    def _signature(self, run: RunView) -> tuple[object, ...]:
        name = run.database.run if isinstance(run.database, RunAddress) else ""
        return self.known.get(name), self.holder(name)
