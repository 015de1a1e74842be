"""Commands in their own processes that can be sent signals."""

import os
from time import monotonic, sleep

from warm import PATIENCE_SECONDS, begun_command


class BegunCommand:
    """`costada WORDS` in its own process that writes both its streams to a file."""

    def __init__(self, output, *words):
        output.touch()
        self._output = output
        self._process = begun_command(["costada", *map(str, words)], output.parent, output)

    @property
    def said(self):
        """What it has written so far."""
        return self._output.read_text()

    def wait_for(self, text):
        """Return when it has written a text."""
        deadline = monotonic() + PATIENCE_SECONDS
        while text not in self.said:
            assert self._process.is_alive(), self.said
            assert monotonic() < deadline, self.said
            sleep(0.005)

    def send_signal(self, number):
        assert self._process.pid is not None
        os.kill(self._process.pid, number)

    def exit_code(self, within=PATIENCE_SECONDS):
        """Return how it ended; `None` if it goes on for more than so many seconds."""
        self._process.join(within)
        return self._process.exitcode
