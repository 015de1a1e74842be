"""The right to write to a run folder, held by one process at a time."""

import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic, sleep
from typing import IO

from costada.store.files import opened_to_share

LARGEST_CLAIM = 4096
"""Characters of a lease."""

LEASE = "run.lease"
PATIENCE_SECONDS = 0.2
"""How long a taken lock is retried: a reader that checks it holds it for a moment."""

TICK_SECONDS = 0.005


@contextmanager
def hold_lease(folder: Path) -> Iterator[None]:
    """Hold a run for this process; the system gives it back even after a crash.

    Two processes in one run would pay for the same steps twice. The lease is a lock on the file
    `run.lease`, which says who holds it and is there only meanwhile. The lock decides: what a dead
    process left behind is taken over.

    Args:
        folder: The run's folder.

    Raises:
        ValueError: If another process is at work in this run, naming it; also if something else
            than a file of ours has the lease's name.
        OSError: If the file cannot be written.
    """
    path = folder / LEASE
    file = _locked(path)
    while not _is_at(path, file):
        file.close()
        file = _locked(path)
    with file:
        _write(file, _claim())
        try:
            yield
        finally:
            path.unlink(missing_ok=True)


def is_held(folder: Path) -> bool:
    """Return whether a process holds a run. What the lease says of one that is gone does not count.

    Only the lock tells: the process may have had another host, or its number another process by
    now. A link in the lease's place is not followed.
    """
    import fcntl

    try:
        descriptor = os.open(folder / LEASE, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def _locked(path: Path) -> IO[str]:
    import fcntl

    file = opened_to_share(path)
    deadline = monotonic() + PATIENCE_SECONDS
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if monotonic() < deadline:
                sleep(TICK_SECONDS)
                continue
            with file:
                holder = _holder(file)
            raise ValueError(
                f"{path.parent}: another process is at work in this run{holder}"
            ) from None
        return file


def _is_at(path: Path, file: IO[str]) -> bool:
    """Return whether a file is still the one in its place; its last holder may have removed it."""
    try:
        return os.path.samestat(path.stat(), os.fstat(file.fileno()))
    except FileNotFoundError:
        return False


def _claim() -> str:
    since = datetime.now(UTC).isoformat(timespec="seconds")
    return json.dumps({"pid": os.getpid(), "host": socket.gethostname(), "since": since}) + "\n"


def _write(file: IO[str], text: str) -> None:
    file.seek(0)
    file.truncate()
    file.write(text)
    file.flush()


def _holder(file: IO[str]) -> str:
    """Return who holds the lease, nothing in the moment before that is written."""
    file.seek(0)
    text = file.read(LARGEST_CLAIM)
    if not text:
        return ""
    known = json.loads(text)
    return f": process {known['pid']} on {known['host']} since {known['since']}"
