"""A worker that becomes another program: one that builds a candidate, or the candidate itself.

What the program reads is the rest of the request; what it writes follows the worker's frames on the
same pipe, or goes to the log. Nothing of the worker is left beside it: its end is the program's.
"""

import os
import shutil
import signal
from collections.abc import Mapping
from time import monotonic
from typing import Any, NoReturn

from costada.evaluators.sandbox.inside.confinement import NUM_OPEN_FILES

BUILD_FOLDER = ".build"
"""Where a built program is put; no file of a candidate can be there."""

NOT_EXECUTED = 127
RESTORED = (signal.SIGPIPE, signal.SIGXFSZ)
"""Signals that Python ignores, and that programs expect to end them."""


class Command:
    """A request's command."""

    def __init__(self, request: Mapping[str, Any]) -> None:
        """Find its program; a FileNotFoundError says that there is none."""
        os.makedirs(BUILD_FOLDER, exist_ok=True)
        self._words = request["words"]
        self._reads, self._writes = request["reads"], request["writes"]
        self._program = shutil.which(self._words[0]) or ""
        if not self._program:
            raise FileNotFoundError(f"{self._words[0]} is no program that can be executed here")

    def begun(self) -> dict[str, float]:
        """What is answered just before it is executed."""
        return {"begun": monotonic()}

    def execute(self, request_fd: int, result_fd: int) -> NoReturn:
        """Become the program."""
        os.dup2(request_fd if self._reads else os.open(os.devnull, os.O_RDONLY), 0)
        if self._writes:
            os.dup2(result_fd, 1)
        os.closerange(3, NUM_OPEN_FILES)
        for number in RESTORED:
            signal.signal(number, signal.SIG_DFL)
        environment = {**os.environ, "LANG": "C.UTF-8"}
        try:
            os.execve(self._program, self._words, environment)  # noqa: S606
        except OSError as error:
            os.write(2, f"{self._words[0]}: {error.strerror}\n".encode())
        os._exit(NOT_EXECUTED)
