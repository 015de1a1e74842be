"""Which calls this process has under way, so that nobody takes one of them for lost."""

from collections import Counter
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Condition, Lock
from weakref import WeakValueDictionary


class CallsUnderWay:
    """The logical calls of one store with a request that has left and has no end yet."""

    def __init__(self) -> None:
        self._changed = Condition()
        self._requests: Counter[Hashable] = Counter()

    def begin(self, key: Hashable) -> None:
        """Note that a request of a call is about to leave."""
        with self._changed:
            self._requests[key] += 1

    def end(self, key: Hashable) -> None:
        """Note that a request of a call has ended, however it did."""
        with self._changed:
            self._requests[key] -= 1
            self._requests += Counter()
            self._changed.notify_all()

    @contextmanager
    def none_of(self, key: Hashable) -> Iterator[None]:
        """Wait until no request of a call is under way; none begins during the block."""
        with self._changed:
            self._changed.wait_for(lambda: not self._requests[key])
            yield


_IN_FILES: WeakValueDictionary[Path, CallsUnderWay] = WeakValueDictionary()
_LOOKING_UP = Lock()


def calls_under_way(path: Path | None) -> CallsUnderWay:
    """Return the calls of a run file, the same object for all who have it open.

    A store in memory, without a path, has calls of its own.
    """
    if path is None:
        return CallsUnderWay()
    with _LOOKING_UP:
        return _IN_FILES.setdefault(path.resolve(), CallsUnderWay())
