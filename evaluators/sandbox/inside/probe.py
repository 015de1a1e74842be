"""A candidate that tries to get out; run once in each layer before the layer is trusted."""

import os
import socket
from collections.abc import Callable


def probe(canary: str) -> dict[str, bool]:
    """Which of its attempts succeed.

    Args:
        canary: A file outside that its user may read, in a folder that its user may write to.
    """

    def succeeds(attempt: Callable[[], object]) -> bool:
        try:
            attempt()
        except OSError:
            return False
        return True

    def fork() -> None:
        number = os.fork()
        if number == 0:
            os._exit(0)
        os.waitpid(number, 0)

    return {
        "read files": succeeds(lambda: open(canary).close()),
        "write files": succeeds(lambda: open(canary + ".new", "w").close()),
        "use the network": succeeds(lambda: socket.socket().close()),
        "start processes": succeeds(fork),
    }
