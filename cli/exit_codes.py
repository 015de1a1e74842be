"""What the exit codes of a command mean: the end of its help text."""

from collections.abc import Callable
from dataclasses import dataclass


def _epilog(
    finished: str,
    *,
    failed: str = "",
    refused: str = "refused",
    unpaid: str = "",
    stopped: str = "",
) -> str:
    meanings = {0: finished, 1: failed, 2: refused, 3: unpaid, 130: stopped}
    lines = [f"{code} {meaning}" for code, meaning in meanings.items() if meaning]
    return f"Exit codes: {'; '.join(lines)}."


SPENDING = {
    "failed": "the run failed; finished iterations are saved",
    "refused": "refused before any money was spent",
    "stopped": "interrupted and saved",
}
RUNS = _epilog("done", **SPENDING, unpaid="too little is left in the purse")
SWEEPS = _epilog("done", **SPENDING)
CALCULATIONS = _epilog("done", failed="failed", stopped="stopped")
EVALUATION = _epilog(
    "done, also if the program failed",
    failed="the evaluator or the sandbox failed",
    stopped="stopped",
)
WATCHING = _epilog("stopped with Ctrl-C")
OTHERS = _epilog("done", stopped="stopped")


@dataclass(frozen=True, slots=True)
class PluginCommand:
    """A command of a plug-in, registered under its name as an entry point of `costada.commands`.

    Attributes:
        function: The command; its parameters and docstring are read by Typer.
        exit_codes: The end of its help text.
    """

    function: Callable[..., None]
    exit_codes: str
