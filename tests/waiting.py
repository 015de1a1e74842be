"""Waiting for conditions, and checks of what depends on seconds, on machines that stall."""

from collections.abc import Callable
from contextlib import suppress
from time import monotonic, sleep
from typing import TypeVar

Found = TypeVar("Found")


def within(seconds: float, found: Callable[[], Found]) -> Found:
    """What a function returns once that is true."""
    end = monotonic() + seconds
    while not (value := found()):
        assert monotonic() < end, "nothing found in time"
        sleep(0.05)
    return value


def check_in_time(check: Callable[[float], None], *seconds: float) -> None:
    """Check what a program does within a limit of seconds, and with the next one if it was late.

    What has to come before the limit may come late on a machine that stalls. Whatever the limit,
    the program passes it in the end.
    """
    for each in seconds[:-1]:
        with suppress(AssertionError):
            return check(each)
    return check(seconds[-1])
