"""The calls of a store with a request in flight, shared by all who have the store open."""

import os
from collections import Counter
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Condition, Lock
from weakref import WeakValueDictionary

from costada.store.address import Place


class InFlightCalls:
    """The logical calls of one store with a request that was sent and has not ended."""

    def __init__(self) -> None:
        self.renew()

    def renew(self) -> None:
        """Forget all requests, and replace the lock."""
        self._changed = Condition()
        self._requests: Counter[Hashable] = Counter()

    @property
    def keys(self) -> list[Hashable]:
        """The calls with a request in flight.

        Takes no lock: `none_of` holds it and waits for the database, which the caller may hold.
        """
        return [*self._requests]

    def begin(self, key: Hashable) -> None:
        """Note that a request of a call is about to be sent."""
        with self._changed:
            self._requests[key] += 1

    def end(self, key: Hashable) -> None:
        """Note that a request of a call has ended."""
        with self._changed:
            self._requests[key] -= 1
            self._requests += Counter()  # drops what has no request left
            self._changed.notify_all()

    @contextmanager
    def none_of(self, key: Hashable) -> Iterator[None]:
        """Wait until no request of a call is in flight; none begins during the block."""
        with self._changed:
            self._changed.wait_for(lambda: not self._requests[key])
            yield


_IN_PLACES: WeakValueDictionary[Path | str, InFlightCalls] = WeakValueDictionary()
_LOOKING_UP = Lock()


def _forget_inherited() -> None:
    """Let a forked process wait neither for threads of its parent nor for their requests."""
    global _LOOKING_UP
    _LOOKING_UP = Lock()
    for each in [*_IN_PLACES.values()]:
        each.renew()


os.register_at_fork(after_in_child=_forget_inherited)


def in_flight_calls(place: Place) -> InFlightCalls:
    """The in-flight calls of a database, shared by all who have it open; own ones in memory."""
    if place is None:
        return InFlightCalls()
    with _LOOKING_UP:
        return _IN_PLACES.setdefault(_known(place), InFlightCalls())


def share_no_more(place: Place) -> None:
    """Let who opens a database from now on share nothing with who has it open.

    What these know of their calls may no longer be in it.
    """
    if place is not None:
        with _LOOKING_UP:
            _IN_PLACES.pop(_known(place), None)


def _known(place: Path | str) -> Path | str:
    # Two names of one file share them, or `none_of` would miss requests in flight.
    return place.resolve() if isinstance(place, Path) else place
