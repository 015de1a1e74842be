"""The least limits under which a program that does nothing runs, measured on this machine."""

from collections.abc import Mapping
from functools import cache

from costada.evaluators.sandbox.candidate_results import CandidateResult
from costada.evaluators.sandbox.candidate_runs import run_calls
from costada.evaluators.sandbox.layers import Layer
from costada.evaluators.sandbox.limits import Limits

EMPTY_PROGRAM = """
def answer(number):
    return [number]
"""
NUM_CALLS = 3
NUM_RUNS = 3
PLENTY_MB, PLENTY_SECONDS = 64, 0.5
"""Limits that are not measured, as an empty program always works within them."""


def check_minimum(limits: Limits, layer: Layer, names: Mapping[str, str]) -> None:
    """Refuse a limit of memory or time under which no program can work in a layer.

    Args:
        limits: The limits of one evaluation.
        layer: What confines the program.
        names: How the message begins, for `memory_mb` and for `timeout`.

    Raises:
        ValueError: Naming the limit, its value and the least one that works here.
    """
    if limits.memory_mb < PLENTY_MB and limits.memory_mb < (least := minimum_memory(layer)):
        raise ValueError(
            f"{names['memory_mb']}: got {limits.memory_mb}, but a program that does nothing needs"
            f" {least} MiB in the sandbox {layer.value}; expected at least {least}"
        )
    if limits.wall_seconds < PLENTY_SECONDS and limits.wall_seconds < (time := minimum_time(layer)):
        raise ValueError(
            f"{names['timeout']}: got {limits.wall_seconds:g}, but a program that does nothing"
            f" takes {time:.3g} seconds in the sandbox {layer.value}; expected more"
        )


@cache
def minimum_memory(layer: Layer) -> int:
    """The least power of two in MiB with which an empty program works each time."""
    memory_mb = 1
    while memory_mb < PLENTY_MB:
        if all(_works(layer, memory_mb) for _ in range(NUM_RUNS)):
            break
        memory_mb *= 2
    return memory_mb


@cache
def minimum_time(layer: Layer) -> float:
    """Seconds of the fastest of some runs of an empty program."""
    return min(sum(result.seconds for result in _run(layer, PLENTY_MB)) for _ in range(NUM_RUNS))


def _works(layer: Layer, memory_mb: int) -> bool:
    """Whether an empty program answers all calls, and its process has reported no error."""
    results = _run(layer, memory_mb)
    answers: list[object] = [result.output for result in results]
    return answers == [[number] for number in range(NUM_CALLS)] and not results[-1].log


def _run(layer: Layer, memory_mb: int) -> list[CandidateResult]:
    calls: list[dict[str, object]] = [{"number": number} for number in range(NUM_CALLS)]
    return run_calls(EMPTY_PROGRAM, "answer", calls, Limits(memory_mb=memory_mb), layer)
