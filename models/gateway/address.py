"""The file by which a gateway is found: where it listens, and the token that opens it."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from time import monotonic, sleep

from costada.models.gateway.journal import opened_for_owner
from costada.models.gateway.protocol import PREFIX

TO_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
"""A pipe in the place of a door file keeps no reader waiting."""

LOCK_SECONDS = 1.0
_TICK_SECONDS = 0.01


@dataclass(frozen=True, slots=True)
class Door:
    """A gateway that is at work.

    Attributes:
        port: Where it listens, on 127.0.0.1.
        pid: Its process.
        token: What clients must show.
        upstream: Address of the provider behind it.
    """

    port: int
    pid: int
    token: str
    upstream: str

    @property
    def base_url(self) -> str:
        """The address that a client takes for the provider's."""
        return f"http://127.0.0.1:{self.port}{PREFIX}"


def door_file(journal: Path) -> Path:
    """Return where the gateway of a journal keeps its door."""
    return journal.with_name(f"{journal.name}.door")


def read_door(path: Path) -> Door | None:
    """Return the gateway that holds a door file, `None` if none does or it is not open yet.

    What a dead gateway left in the file is never returned: the system has taken its lock back.
    """
    try:
        with open(os.open(path, TO_READ), encoding="utf-8") as file:
            text = file.read() if _is_locked(file.fileno()) else ""
    except FileNotFoundError:
        return None
    return Door(**json.loads(text)) if text else None


def is_held(path: Path) -> bool:
    """Return whether a gateway holds a door file, open or not."""
    try:
        with open(os.open(path, TO_READ), "rb") as file:
            return _is_locked(file.fileno())
    except FileNotFoundError:
        return False


class DoorFile:
    """The door file, held by one gateway."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        os.ftruncate(descriptor, 0)

    def open(self, door: Door) -> None:
        """Let clients find the gateway."""
        os.write(self._descriptor, json.dumps(asdict(door)).encode())

    def close(self) -> None:
        """Let nobody find it any more."""
        os.ftruncate(self._descriptor, 0)


@contextmanager
def hold_door(path: Path) -> Iterator[DoorFile]:
    """Hold the door file for this process; the file stays and only its owner can read it.

    Raises:
        ValueError: Another gateway is at work on the same journal, or the file is a link.
        OSError: The file cannot be created.
    """
    descriptor = opened_for_owner(path, os.O_RDWR)
    try:
        _lock(descriptor, path)
        file = DoorFile(descriptor)
        try:
            yield file
        finally:
            file.close()
    finally:
        os.close(descriptor)


def _is_locked(descriptor: int) -> bool:
    """Return whether another process locks a file; a lock of our own ends when it is closed."""
    import fcntl

    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False


def _lock(descriptor: int, path: Path) -> None:
    """Lock a door file; those who look for a gateway lock it as well, for a moment."""
    import fcntl

    deadline = monotonic() + LOCK_SECONDS
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if monotonic() > deadline:
                raise ValueError(f"{path}: another gateway is at work on this journal") from None
            sleep(_TICK_SECONDS)
        else:
            return
