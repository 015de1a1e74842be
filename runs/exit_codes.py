"""What the command line answers to its caller."""

from collections.abc import Mapping
from enum import IntEnum


class ExitCode(IntEnum):
    """Exit codes of every command."""

    FINISHED = 0
    FAILED = 1
    BAD_INPUT = 2
    INTERRUPTED = 130


def _epilog(meanings: Mapping[ExitCode, str]) -> str:
    return "Exit codes: " + "; ".join(f"{code:d} {text}" for code, text in meanings.items()) + "."


EPILOG_OF_RUNS = _epilog(
    {
        ExitCode.FINISHED: "done",
        ExitCode.FAILED: "the run failed on the way; finished iterations are saved",
        ExitCode.BAD_INPUT: "refused before any money was spent",
        ExitCode.INTERRUPTED: "interrupted and saved",
    }
)
EPILOG_OF_EVALUATE = _epilog(
    {
        ExitCode.FINISHED: "done, also if the program failed",
        ExitCode.FAILED: "the evaluator or the sandbox broke down",
        ExitCode.BAD_INPUT: "refused",
        ExitCode.INTERRUPTED: "stopped",
    }
)
EPILOG_OF_CALCULATIONS = _epilog(
    {
        ExitCode.FINISHED: "done",
        ExitCode.FAILED: "failed on the way",
        ExitCode.BAD_INPUT: "refused",
        ExitCode.INTERRUPTED: "stopped",
    }
)
EPILOG_OF_OTHERS = _epilog(
    {
        ExitCode.FINISHED: "done",
        ExitCode.BAD_INPUT: "refused",
        ExitCode.INTERRUPTED: "stopped",
    }
)
