"""The kinds of wall that can stand between a candidate and the rest of the machine."""

from enum import StrEnum


class Layer(StrEnum):
    """What holds a candidate's process, from the strongest this machine offers to nothing.

    AUTO stands for the first of BUBBLEWRAP, LANDLOCK and PROCESS that passes its probe.
    """

    AUTO = "auto"
    PROCESS = "process"
    LANDLOCK = "landlock"
    BUBBLEWRAP = "bubblewrap"
    CONTAINER = "container"
    NONE = "none"


PRELOAD = ("numpy", "scipy.optimize")
"""Modules that most candidates import; importing them in a candidate is free."""

LATE = "scipy"
"""Loaded before the first candidate that names it: a process without it forks in half the time."""


def is_late(module: str) -> bool:
    """Return whether a module is loaded only when a candidate names its package."""
    return module.partition(".")[0] == LATE
