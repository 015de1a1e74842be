"""What an iteration asks of LangGraph, SQLite and the system stays within stated bounds."""

import json
import subprocess
import sys

import pytest

pytestmark = pytest.mark.process

BOUNDS = {
    "supersteps": 7.75,
    "hand-offs": 18.0,
    "statements": 60.0,
    "commits": 9.0,
    "fsyncs": 8.0,
    "threads": 0.25,
    "switches": 400.0,
    "requests": 1.4,
}
"""Per iteration, with one call in flight and with eight; `bench/counts.py` prints the counts.

A run of 20 iterations with few guides has up to 5 % more than a long one. Calls in flight together
share syncs, and fewer of them on a busy machine.
"""


@pytest.mark.parametrize("parallel", [1, 8])
def test_an_iteration_stays_within_its_bounds(parallel):
    command = [sys.executable, "bench/counts.py", "--iterations", "15", "--json"]
    done = subprocess.run([*command, "--parallel", str(parallel)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    counts = json.loads(done.stdout)[str(parallel)]
    assert counts.keys() | {"fsyncs"} == BOUNDS.keys()
    assert {name: n for name, n in counts.items() if n > BOUNDS[name]} == {}
    assert counts["requests"] >= 1
    assert counts["statements"] > counts["commits"] > 1
