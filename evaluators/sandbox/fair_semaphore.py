"""A semaphore that serves threads in the order of asking, and where waiting can be cancelled."""

import os
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Lock
from weakref import WeakSet

from costada.evaluators.sandbox.cancellation import CANCELLED, is_cancelled

TICK_SECONDS = 0.2
"""Longest time until a waiting thread notices a cancellation; it takes no descriptor for that."""


def available_cores() -> int:
    """The cores that this process may use, at least 1."""
    if hasattr(os, "sched_getaffinity"):  # Linux
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class FairSemaphore:
    """Lets at most `limit` threads hold a permit at once, first come, first served."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._start()
        _SEMAPHORES.add(self)

    def __reduce__(self) -> tuple[type["FairSemaphore"], tuple[int]]:
        """A copy, in another process too, has the same limit and no holders."""
        return FairSemaphore, (self.limit,)

    def _start(self) -> None:
        self._lock = Lock()
        self._num_held = 0
        self._waiting: deque[Event] = deque()

    @contextmanager
    def permit(self) -> Iterator[None]:
        """Hold a permit, after waiting for one if all are held.

        Raises:
            InterruptedError: If the evaluation was cancelled while it waited.
        """
        self._acquire()
        try:
            yield
        finally:
            self._release()

    def raise_limit(self, limit: int) -> None:
        """Allow at least so many permits at once."""
        with self._lock:
            self.limit = max(self.limit, limit)
            self._serve()

    def _acquire(self) -> None:
        with self._lock:
            if self._num_held < self.limit and not self._waiting:
                self._num_held += 1
                return
            served = Event()
            self._waiting.append(served)
        try:
            while not served.wait(TICK_SECONDS):
                if is_cancelled():
                    raise InterruptedError(CANCELLED)
        except BaseException:  # raised again
            with self._lock:
                if served.is_set():
                    self._num_held -= 1
                    self._serve()
                else:
                    self._waiting.remove(served)
            raise

    def _release(self) -> None:
        with self._lock:
            self._num_held -= 1
            self._serve()

    def _serve(self) -> None:
        """Give free permits to those who wait longest; the caller holds the lock."""
        while self._waiting and self._num_held < self.limit:
            self._num_held += 1
            self._waiting.popleft().set()

    def forget_holders(self) -> None:
        """Free all permits: in a forked process, none of the threads that held them exists."""
        self._start()


_SEMAPHORES: WeakSet[FairSemaphore] = WeakSet()


def _forget_all_holders() -> None:
    for semaphore in _SEMAPHORES:
        semaphore.forget_holders()


os.register_at_fork(after_in_child=_forget_all_holders)
