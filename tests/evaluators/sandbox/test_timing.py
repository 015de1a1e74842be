"""`costada.values.timing`, outside and inside of the sandbox."""

import gc
from itertools import count

import pytest
from sandbox_runs import run

from costada.values.timing import best_of

pytestmark = pytest.mark.process


def ticking(*seconds: float):
    """A clock whose pairs of readings lie so many seconds apart."""
    readings, now = [], 0.0
    for each in seconds:
        readings += [now, now + each]
        now += each + 1.0
    return iter(readings).__next__


def test_the_fastest_call_counts_with_what_it_returned():
    numbers = count(1)
    found = best_of(lambda: next(numbers), times=3, clock=ticking(0.5, 0.25, 0.75))
    assert found == (0.25, 2)


def test_every_call_gets_arguments_of_its_own_and_runs_without_garbage_collection():
    given, seen = [3, 1, 2], []

    def sort(values: list[int]) -> bool:
        seen.append(list(values))
        values.sort()
        return gc.isenabled()

    assert best_of(sort, given, times=2)[1] is False
    assert (seen, given, gc.isenabled()) == ([[3, 1, 2], [3, 1, 2]], [3, 1, 2], True)


def test_an_error_of_the_function_passes_and_garbage_is_collected_again():
    with pytest.raises(ZeroDivisionError):
        best_of(lambda: 1 / 0)
    assert gc.isenabled()


@pytest.mark.parametrize("times", [0, -1, 1.5, True])
def test_a_wrong_number_of_calls_is_refused(times):
    with pytest.raises(ValueError, match=rf"times is {times}; expected an integer of at least"):
        best_of(list, times=times)


IMPORTING = """
import time
time.perf_counter = lambda: 0.0
from costada.values.timing import best_of
def f():
    seconds, total = best_of(sum, list(range(100_000)), times=2)
    return [seconds > 0, total]
"""


def test_a_program_in_the_sandbox_measures_with_a_clock_that_it_cannot_replace(layer):
    result = run(IMPORTING, layer)
    assert (result.error, result.output) == (None, [True, 4_999_950_000])


def test_nothing_else_of_the_package_can_be_imported(confined):
    source = "import costada\ndef f(): import costada.evaluators.problem"
    assert "costada" in run(source, confined).error
