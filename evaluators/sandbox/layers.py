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
