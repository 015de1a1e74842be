"""The wish to stop evaluations, heard at once by those under way."""

import os
from contextvars import ContextVar
from weakref import finalize


class Interruption:
    """Makes the evaluations that run under it raise `InterruptedError`, now and from now on."""

    def __init__(self) -> None:
        """Begin without the wish."""
        self._open()

    def request(self) -> None:
        """Express the wish; may be called from a signal handler and from any thread."""
        os.write(self._write_fd, b"\0")

    def withdraw(self) -> None:
        """Let evaluations run again."""
        os.set_blocking(self._read_fd, False)
        try:
            while os.read(self._read_fd, 4096):
                pass
        except BlockingIOError:
            return

    def fileno(self) -> int:
        """Return the descriptor that is readable while the wish stands."""
        return self._read_fd

    def renew(self) -> None:
        """Begin anew, without the wish of the process this one was forked from."""
        self._close()
        self._open()

    def _open(self) -> None:
        self._read_fd, self._write_fd = os.pipe()
        self._close = finalize(self, _close_all, self._read_fd, self._write_fd)


def _close_all(*descriptors: int) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


EVERY_EVALUATION = Interruption()
"""What the evaluations of this process run under unless a caller has set another."""
os.register_at_fork(after_in_child=EVERY_EVALUATION.renew)

current_interruption: ContextVar[Interruption] = ContextVar(
    "current_interruption", default=EVERY_EVALUATION
)


def interrupt_evaluations() -> None:
    """Stop the evaluations of this process; fit for a signal handler."""
    EVERY_EVALUATION.request()


def allow_evaluations() -> None:
    """Let evaluations run again after an interruption."""
    EVERY_EVALUATION.withdraw()
