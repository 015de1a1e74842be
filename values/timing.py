"""Run times, measured in the process that runs the code: `costada.values.timing` on either side.

It is loaded before any candidate, so a candidate that replaces the clock of `time` changes nothing
here. Code that runs in the same process can deceive it all the same; where a candidate may be
hostile, the seconds that the sandbox measures from outside are the ones to trust.
"""

import gc
from collections.abc import Callable
from copy import deepcopy
from time import perf_counter
from typing import TypeVar

Result = TypeVar("Result")


def best_of(
    function: Callable[..., Result],
    *arguments: object,
    times: int = 5,
    clock: Callable[[], float] = perf_counter,
) -> tuple[float, Result]:
    """Call a function several times; the seconds of its fastest call, and what that returned.

    Every call gets copies of the arguments, made before the clock starts, and runs without garbage
    collection. The fastest call says most about the code: other processes only ever add to it. A
    function that keeps its results is fast from the second call on; measure that one with
    `times=1`, and let `repeats` of the problem run it again in a fresh process.

    Args:
        function: What is measured.
        *arguments: What it is called with.
        times: Calls, at least 1.
        clock: Seconds since any moment.

    Raises:
        ValueError: `times` is not an integer of at least 1.
    """
    if not isinstance(times, int) or isinstance(times, bool) or times < 1:
        raise ValueError(f"times is {times!r}; expected an integer of at least 1")
    timed = [_time_call(function, deepcopy(arguments), clock) for _ in range(times)]
    return min(timed, key=lambda each: each[0])


def _time_call(
    function: Callable[..., Result], arguments: tuple[object, ...], clock: Callable[[], float]
) -> tuple[float, Result]:
    was_collecting = gc.isenabled()
    gc.disable()
    try:
        start = clock()
        result = function(*arguments)
        return clock() - start, result
    finally:
        if was_collecting:
            gc.enable()
