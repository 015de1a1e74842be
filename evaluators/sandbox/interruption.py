"""The wish to stop evaluations, heard at once by those under way."""

import os
from contextvars import ContextVar
from weakref import finalize


class Interruption:
    """Makes the evaluations that run under it raise `InterruptedError`, now and from now on."""

    def __init__(self) -> None:
        """Begin without the wish."""
        self._read_fd, self._write_fd = os.pipe()
        finalize(self, _close, self._read_fd, self._write_fd)

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


def _close(*descriptors: int) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


EVERY_EVALUATION = Interruption()
"""What the evaluations of this process run under unless a caller has set another."""

current_interruption: ContextVar[Interruption] = ContextVar(
    "current_interruption", default=EVERY_EVALUATION
)


def interrupt_evaluations() -> None:
    """Stop the evaluations of this process; fit for a signal handler."""
    EVERY_EVALUATION.request()


def allow_evaluations() -> None:
    """Let evaluations run again after an interruption."""
    EVERY_EVALUATION.withdraw()
