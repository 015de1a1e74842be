"""How many evaluations run at once, in which order they begin, and how they are cancelled."""

import os
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from select import POLLIN, poll
from threading import Event, Lock
from weakref import WeakSet, finalize

CANCELLED = "the evaluation was interrupted"


class CancellationToken:
    """Makes the evaluations that run under it raise `InterruptedError`, now and until a reset."""

    def __init__(self) -> None:
        self._open()

    def cancel(self) -> None:
        """Cancel the evaluations; safe in a signal handler, from any thread and an event loop."""
        with suppress(BlockingIOError):  # a full pipe has been cancelled often enough
            os.write(self._write_fd, b"\0")

    def reset(self) -> None:
        """Let evaluations run again."""
        with suppress(BlockingIOError):
            while os.read(self._read_fd, 4096):
                pass

    def fileno(self) -> int:
        """Descriptor that is readable while the token is cancelled."""
        return self._read_fd

    def renew(self) -> None:
        """Replace the pipe that a forked process shares with its parent."""
        self._close()
        self._open()

    def _open(self) -> None:
        # A pipe and not an event of `threading`: an execution waits for it together with the pipes
        # of its candidate, and a signal handler may write to it, but must not take a lock.
        self._read_fd, self._write_fd = pipe = os.pipe()
        for descriptor in pipe:
            os.set_blocking(descriptor, False)
        self._close = finalize(self, _close_all, *pipe)


def _close_all(*descriptors: int) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


PROCESS_TOKEN = CancellationToken()
"""Cancels all evaluations of this process, also those whose caller has set another token."""
os.register_at_fork(after_in_child=PROCESS_TOKEN.renew)

current_token: ContextVar[CancellationToken] = ContextVar("current_token", default=PROCESS_TOKEN)
"""Cancels the evaluations of this context; threads that run in a copy of it have the same one."""


def active_tokens() -> set[CancellationToken]:
    """The tokens that cancel an evaluation begun here: that of the context and the process's."""
    return {current_token.get(), PROCESS_TOKEN}


def is_cancelled(patience: float = 0.0) -> bool:
    """Whether an evaluation started here would be cancelled, now or within `patience` seconds."""
    polled = poll()
    for token in active_tokens():
        polled.register(token, POLLIN)
    return bool(polled.poll(1000 * patience))


def cancel_evaluations() -> None:
    """Cancel the evaluations of this process; safe in a signal handler."""
    PROCESS_TOKEN.cancel()


def allow_evaluations() -> None:
    """Let evaluations run again after a cancellation."""
    PROCESS_TOKEN.reset()


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
            # Not ahead of those who wait, even if a permit is free at this moment.
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
                # The permit may have been given between the last look and the cancellation. Nobody
                # would release it: it goes to the next one who waits.
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
