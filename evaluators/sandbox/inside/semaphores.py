"""Semaphores between processes, for `multiprocessing` where the system's own cannot be made.

The system keeps them in /dev/shm, which no program in the sandbox may write to: memory there would
escape its limit, and others could see it. An event counter in the kernel does the same: it has no
name, so only processes that are forked share it.
"""

import os
import select
from contextlib import suppress
from threading import get_ident
from time import monotonic
from typing import Self

RECURSIVE_MUTEX = 0
ANY_SEMAPHORE = 1
TRIAL_OF_JOBLIB = "/joblib-"


class SemLock:
    """What `_multiprocessing.SemLock` is, on an event counter; `multiprocessing` wraps it."""

    SEM_VALUE_MAX = 2**31 - 1

    def __init__(self, kind: int, value: int, maxvalue: int, name: str, unlink: bool) -> None:
        """Take `value` as the start; without `unlink`, it would need a name.

        So would those of joblib, which looks for semaphores by making one: refused that, it goes on
        without processes.
        """
        if not unlink or name.startswith(TRIAL_OF_JOBLIB):
            raise OSError(
                "the sandbox has no named semaphores: use multiprocessing.get_context('fork')"
            )
        flags = os.EFD_SEMAPHORE | os.EFD_NONBLOCK | os.EFD_CLOEXEC
        self.handle = os.eventfd(value, flags)
        self.kind, self.maxvalue, self.name = kind, maxvalue, None
        self._held, self._owner = 0, 0

    def __del__(self) -> None:
        with suppress(AttributeError, OSError):
            os.close(self.handle)

    def acquire(self, block: bool = True, timeout: float | None = None) -> bool:
        """Take one, waiting for it if need be; whether it was there in time."""
        if self.kind == RECURSIVE_MUTEX and self._is_mine():
            self._held += 1
            return True
        end = None if timeout is None else monotonic() + max(timeout, 0.0)
        while not self._take():
            left = None if end is None else end - monotonic()
            if not block or (left is not None and left <= 0):
                return False
            self._wait(left)
        self._held, self._owner = self._held + 1, get_ident()
        return True

    __enter__ = acquire

    def release(self) -> None:
        """Give one back."""
        if self.kind == RECURSIVE_MUTEX:
            if not self._is_mine():
                raise AssertionError("attempt to release recursive lock not owned by thread")
            if self._held > 1:
                self._held -= 1
                return
        elif self.maxvalue == 1 and not self._is_zero():
            raise ValueError("semaphore or lock released too many times")
        self._held -= 1
        os.eventfd_write(self.handle, 1)

    def __exit__(self, *_: object) -> None:
        self.release()

    def _take(self) -> bool:
        with suppress(BlockingIOError):
            os.eventfd_read(self.handle)
            return True
        return False

    def _wait(self, seconds: float | None) -> bool:
        """Wait until there may be one."""
        poll = select.poll()
        poll.register(self.handle, select.POLLIN)
        return bool(poll.poll(None if seconds is None else seconds * 1000))

    def _count(self) -> int:
        return self._held

    def _is_mine(self) -> bool:
        return self._held > 0 and self._owner == get_ident()

    def _is_zero(self) -> bool:
        return not self._wait(0.0)

    def _get_value(self) -> int:
        raise NotImplementedError("the value of a semaphore is not known in the sandbox")

    def _after_fork(self) -> None:
        self._held = 0

    @classmethod
    def _rebuild(cls, *_: object) -> Self:
        raise OSError("a semaphore of the sandbox can be sent only to forks")


def offer_semaphores() -> bool:
    """Let `multiprocessing` use event counters, unless the system's semaphores can be made.

    Returns whether it does.
    """
    try:
        import _multiprocessing  # type: ignore[import-not-found]

        _multiprocessing.SemLock(ANY_SEMAPHORE, 0, 1, f"/costada-{os.getpid()}", True)
    except ImportError:
        return False
    except OSError:
        _multiprocessing.SemLock = SemLock
        return True
    return False
