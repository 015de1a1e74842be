"""Cancellation token for running evaluations."""

import os
from contextlib import suppress
from contextvars import ContextVar
from select import POLLIN, poll
from weakref import finalize

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
