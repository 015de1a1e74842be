"""The right to write to a run folder, held by one process at a time."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def hold_lease(settings: Path) -> Iterator[None]:
    """Hold a run for this process; the system gives it back even after a crash.

    Two processes in one run would pay for the same steps twice.

    Args:
        settings: The run's settings file, which carries the lock.

    Raises:
        ValueError: If another process is at work in this run.
    """
    import fcntl

    with settings.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ValueError(f"{settings.parent}: another process is at work in this run") from None
        yield
