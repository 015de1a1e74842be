"""Exit codes of the commands."""

from enum import IntEnum


class ExitCode(IntEnum):
    """Exit codes of every command."""

    FINISHED = 0
    FAILED = 1
    BAD_INPUT = 2
    INTERRUPTED = 130
