"""How a process in a container is reached: a socket in a folder that both sides see."""

import os
import socket
import subprocess
from contextlib import suppress
from pathlib import Path
from time import monotonic
from types import TracebackType
from typing import Self

DOOR_NAME = "door"
SOCKET_NAME = "control"
INNER_DOOR = "/tmp/costada-door"  # noqa: S108  (in the container)
LOOK_SECONDS = 0.1


class Door:
    """A socket in a folder of a slot; the process in the container comes through it, once."""

    def __init__(self, home: Path) -> None:
        """Open it; users of the container have other numbers than here, so all may use it."""
        folder = home / DOOR_NAME
        folder.mkdir()
        folder.chmod(0o755)
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.settimeout(LOOK_SECONDS)
        # The address of a socket may have about 100 characters; the folder's path may have more.
        here = os.open(folder, os.O_RDONLY)
        address = f"/proc/self/fd/{here}/{SOCKET_NAME}"
        self._listener.bind(address)
        os.chmod(address, 0o666)  # noqa: S103  (the folder above is private)
        os.close(here)
        self._listener.listen(1)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close it; who has come through stays connected."""
        self._listener.close()

    def admitted(self, process: subprocess.Popen[bytes], seconds: float) -> socket.socket | None:
        """Return the connection of the one that comes first; None if nobody comes.

        Args:
            process: What to wait for no longer than it runs.
            seconds: How long to wait.
        """
        end = monotonic() + seconds
        while process.poll() is None and monotonic() < end:
            with suppress(TimeoutError):
                connection, _ = self._listener.accept()
                connection.setblocking(True)
                return connection
        return None
