"""A problem for sweeps that can be hit in their middle, and a sweep that was not."""

import pytest
from swept_runs import FINISHED, SEEDS, steps, words, write_slow_problem


@pytest.fixture(scope="session")
def slow(near, tmp_path_factory):
    """A problem whose evaluations take a while, so that a run can be hit in its middle."""
    return write_slow_problem(near, tmp_path_factory.mktemp("slow") / "slow")


@pytest.fixture(scope="session")
def undisturbed(slow, tmp_path_factory, invoke):
    """The steps of two runs by a sweep of this machine."""
    out = tmp_path_factory.mktemp("undisturbed")
    result = invoke(*words(slow, out, "--jobs", len(SEEDS)))
    assert result.exit_code == FINISHED, result.output
    return [steps(out, seed).read_bytes() for seed in SEEDS]
