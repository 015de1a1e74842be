"""The lock on a run folder, held by one process at a time.

`filelock` does not fit: the lock file names its holder, and readers test it with a shared lock.
"""

import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic, sleep
from typing import IO

from costada.store.files import naming, open_shared, read_bytes

LEASE = "run.lease"
MAX_LEASE = 4096
"""Characters of a lease file."""

PATIENCE_SECONDS = 0.2
"""How long a taken lock is retried: a reader that checks it holds it briefly."""

TICK_SECONDS = 0.005


@contextmanager
def hold_lease(folder: Path) -> Iterator[None]:
    """Lock a run for this process; the system releases the lock even after a crash.

    Two processes in one run would pay for the same steps twice. The lease is a lock on the file
    `run.lease`, which names the holder and exists only while it is held. Only the lock counts: the
    file of a process that died is taken over.

    Raises:
        ValueError: If another process holds the run, naming it; also if the lease's name is taken
            by something else than a file of ours.
        OSError: If the file cannot be written.
    """
    path = folder / LEASE
    file = _locked(path)
    # The last holder may have unlinked the file between our open and our lock. A lock on a file
    # without a name excludes nobody, so the name is checked after the lock and taken again.
    while not _is_at(path, file):
        file.close()
        file = _locked(path)
    with file:
        since = datetime.now(UTC).isoformat(timespec="seconds")
        holder = {"pid": os.getpid(), "host": socket.gethostname(), "since": since}
        with naming(path):
            # In place: the lock is on this file, not on one that would be renamed over it.
            os.ftruncate(file.fileno(), 0)
            os.pwrite(file.fileno(), f"{json.dumps(holder)}\n".encode(), 0)
        try:
            yield
        finally:
            # Before the lock is released: afterwards the name may be that of the next holder.
            path.unlink(missing_ok=True)


def is_held(folder: Path) -> bool:
    """Whether a process holds a run.

    Only the lock decides: a process named in the file may have ended or be on another host, and its
    id may belong to another one. A link with the lease's name is not followed.
    """
    import fcntl

    try:
        # O_NONBLOCK: a FIFO of this name would make the reader wait for a writer.
        descriptor = os.open(folder / LEASE, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        # Shared, so that two readers at once do not take each other for a holder.
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def held_since(folder: Path) -> float | None:
    """When the process that holds a run locked it, in seconds since 1970 UTC.

    `None` if none holds it, 0 if its file does not say.
    """
    if not is_held(folder):
        return None
    try:
        known = json.loads(read_bytes(folder / LEASE, MAX_LEASE))
        return datetime.fromisoformat(known["since"]).timestamp()
    except (OSError, ValueError, LookupError, TypeError):
        return 0.0  # it has just begun, or the file is not ours


def _locked(path: Path) -> IO[str]:
    import fcntl

    file = open_shared(path)
    deadline = monotonic() + PATIENCE_SECONDS
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return file
        except BlockingIOError:
            if monotonic() < deadline:
                sleep(TICK_SECONDS)
                continue
            with file:
                text = file.read(MAX_LEASE)
            holder = ""  # the holder may not have written it yet
            if text:
                known = json.loads(text)
                holder = f": process {known['pid']} on {known['host']} since {known['since']}"
            raise ValueError(
                f"{path.parent}: another process is at work in this run{holder}"
            ) from None


def _is_at(path: Path, file: IO[str]) -> bool:
    """Whether a file still has its path; its last holder may have removed it."""
    try:
        return os.path.samestat(path.stat(), os.fstat(file.fileno()))
    except FileNotFoundError:
        return False
