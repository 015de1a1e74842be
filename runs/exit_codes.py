"""What the command line answers to its caller."""

from enum import IntEnum


class ExitCode(IntEnum):
    """Exit codes of every command."""

    FINISHED = 0
    FAILED = 1
    BAD_INPUT = 2
    INTERRUPTED = 130


MEANINGS = {
    ExitCode.FINISHED: "done",
    ExitCode.FAILED: "the run failed on the way; finished iterations are saved",
    ExitCode.BAD_INPUT: "refused before any money was spent",
    ExitCode.INTERRUPTED: "interrupted and saved",
}
EPILOG = "Exit codes: " + "; ".join(f"{code:d} {text}" for code, text in MEANINGS.items()) + "."
