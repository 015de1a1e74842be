"""An interpreter that another process has started for one candidate."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

from costada.evaluators.sandbox.inside import census


class Spare:
    """Runs what `Single` says; it is in a process group of its own.

    Attributes:
        control: The socket it says over that it is ready, and that ends when it is gone.
        number: Its process, and the group of all that it starts.
    """

    def __init__(self, settings: Mapping[str, Any]) -> None:
        """Start it the way this process was started, with the same settings."""
        self.control, theirs = socket.socketpair()
        own = {"role": "single", "control_fd": theirs.fileno(), "parent": os.getpid()}
        command = [*sys.orig_argv[:-1], json.dumps({**settings, **own})]
        with theirs:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        self.number = self._process.pid

    def order(self, order: Mapping[str, int], descriptors: list[int]) -> None:
        """Have it run a candidate.

        Raises:
            BrokenPipeError: If it is gone.
        """
        socket.send_fds(self.control, [json.dumps(order).encode()], descriptors)

    @property
    def status(self) -> int | None:
        """Its exit status, negative for a signal; None while it runs."""
        return self._process.poll()

    def end(self) -> int:
        """Kill it and all that came from it; return its exit status."""
        self.control.close()
        _kill(census.family(self.number))
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.number, signal.SIGKILL)
        status = self._process.wait()
        with suppress(ChildProcessError):
            # Orphans become children of this process (Linux), which has no others by now.
            while os.waitpid(-1, os.WNOHANG):
                _kill(number for number in census.family(os.getpid()) if number != os.getpid())
        return status


def _kill(numbers: Iterable[int]) -> None:
    for number in numbers:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(number, signal.SIGKILL)
