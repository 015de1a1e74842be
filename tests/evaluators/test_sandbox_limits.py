import math

import pytest

from costada.evaluators.sandbox.limits import Limits


def test_the_defaults_are_those_of_an_ordinary_benchmark():
    limits = Limits(wall_seconds=360)
    assert (limits.memory_mb, limits.log_bytes) == (2048, 65536)
    assert (limits.source_bytes, limits.result_bytes) == (2**20, 64 * 2**20)


@pytest.mark.parametrize("seconds", [0.0, -1.0, math.nan, math.inf])
def test_a_wall_limit_must_be_a_positive_number(seconds):
    with pytest.raises(ValueError, match=r"wall_seconds is .*; expected a positive number"):
        Limits(wall_seconds=seconds)


@pytest.mark.parametrize("name", ["memory_mb", "log_bytes", "source_bytes", "result_bytes"])
def test_a_size_must_be_positive(name):
    with pytest.raises(ValueError, match=f"{name} is 0; expected a whole number of at least 1"):
        Limits(wall_seconds=1, **{name: 0})
