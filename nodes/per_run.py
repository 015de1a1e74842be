"""What a run has once in a process, whichever graph object or store executes it."""

from collections.abc import Callable
from threading import Lock
from typing import Generic, TypeVar
from weakref import WeakKeyDictionary

from costada.store.call_log import InFlightCalls
from costada.store.run_store import RunStore

Kept = TypeVar("Kept")


class PerRun(Generic[Kept]):
    """An object for each run, shared by all who have its run file open in this process.

    It is kept as long as one of them has.
    """

    def __init__(self, make: Callable[[], Kept]) -> None:
        self._make = make
        self._kept: WeakKeyDictionary[InFlightCalls, dict[str, Kept]] = WeakKeyDictionary()
        self._lock = Lock()

    def of(self, store: RunStore, run_id: str) -> Kept:
        """The object of a run, made when it is first asked for."""
        with self._lock:
            runs = self._kept.setdefault(store.call_log.in_flight, {})
            if run_id not in runs:
                runs[run_id] = self._make()
            return runs[run_id]
