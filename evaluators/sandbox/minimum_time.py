"""The least time in which a program that does nothing runs, measured on this machine."""

from functools import cache

from costada.evaluators.sandbox.candidate_runs import run_candidate
from costada.evaluators.sandbox.layers import Layer
from costada.evaluators.sandbox.limits import Limits

EMPTY_PROGRAM = "def answer(): return 0"
NUM_RUNS = 3
PLENTY_SECONDS = 0.5
"""A time that is not measured, as an empty program always works within it."""


def check_minimum_time(seconds: float, layer: Layer, name: str) -> None:
    """Refuse a time limit under which no program can work in a layer.

    Args:
        seconds: The limit of one evaluation.
        layer: What confines the program.
        name: How the message begins.

    Raises:
        ValueError: Naming the limit, its value and the least one that works here.
    """
    if seconds < PLENTY_SECONDS and seconds < (time := minimum_time(layer)):
        raise ValueError(
            f"{name}: got {seconds:g}, but a program that does nothing takes {time:.3g} seconds in"
            f" the sandbox {layer.value}; expected more"
        )


@cache
def minimum_time(layer: Layer) -> float:
    """Seconds of the fastest of some runs of an empty program."""
    runs = (run_candidate(EMPTY_PROGRAM, "answer", Limits(), {}, layer) for _ in range(NUM_RUNS))
    return min(run.seconds for run in runs)
