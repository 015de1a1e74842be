"""What a command's output or its file says of the score."""

import json
from math import inf

import pytest

from costada.evaluators.sandbox.inside.scored_commands import MAX_METRICS, read_json, read_output

pytestmark = pytest.mark.process

HYPERFINE = {
    "results": [
        {
            "command": "python bench.py",
            "mean": 0.032369,
            "stddev": 0.0033,
            "median": 0.03295,
            "user": 0.0247,
            "system": 0.0076,
            "min": 0.0289,
            "max": 0.0354,
            "times": [0.0289, 0.03295, 0.0354],
            "exit_codes": [0, 0, 0],
        }
    ]
}
"""What hyperfine 1.15 wrote."""

PYTEST_BENCHMARK = {
    "machine_info": {"node": "vm"},
    "commit_info": {"id": "unversioned"},
    "benchmarks": [
        {
            "group": None,
            "name": "test_total",
            "fullname": "test_speed.py::test_total",
            "stats": {"min": 1.9, "max": 2.4, "mean": 2.1, "median": 2.0, "rounds": 5},
        },
        {
            "group": None,
            "name": "test_more",
            "fullname": "test_speed.py::test_more",
            "stats": {"min": 7.9, "max": 8.4, "mean": 8.1, "median": 8.0, "rounds": 5},
        },
    ],
    "version": "5.3.1",
}
"""What pytest-benchmark 5.3 wrote, without most of it."""


@pytest.mark.parametrize(
    ("output", "metrics", "texts"),
    [
        ("0.5\n", {"combined_score": 0.5}, {}),
        ("warming up\n\n 2e3 \n\n", {"combined_score": 2000.0}, {}),
        ("score: -1.5", {"combined_score": -1.5}, {}),
        ("final score = 7", {"combined_score": 7.0}, {}),
        ('x\n{"combined_score": 1, "bins": 3}', {"combined_score": 1.0, "bins": 3.0}, {}),
        (
            json.dumps({"combined_score": 2, "ok": True, "why": "so", "list": [1]}, indent=2),
            {"combined_score": 2.0, "ok": 1.0},
            {"why": "so", "list": "[1]"},
        ),
        ('{"combined_score": 1, "huge": 1' + "0" * 400 + "}", {"combined_score": 1.0}, ...),
        ('{"bins": 3}', {"bins": 3.0}, {}),
    ],
)
def test_a_score_is_the_last_line_or_json(output, metrics, texts):
    found = read_output(output)
    assert found["metrics"] == metrics
    assert texts is ... or found["texts"] == texts
    assert not found["are_times"]


@pytest.mark.parametrize(
    ("output", "reason"),
    [
        ("", "the command printed nothing; expected a number"),
        ("\n \n", "the command printed nothing"),
        ("done", "the command's last line is 'done'; expected a number"),
        ("0.5\ndone in 3 s", "last line is 'done in 3 s'"),
        ("nan", "combined_score is nan; expected a finite number"),
        ("score: inf", "combined_score is inf; expected a finite number"),
        ('{"combined_score": "high"}', "combined_score is 'high'; expected a finite number"),
        ("error: 1000", "last line is 'error: 1000'; expected a number"),
        ("3 of 4\nFailed = 3", "last line is 'Failed = 3'"),
        ("[1, 2]", "last line is '[1, 2]'"),
        ("[" * 100_000, "last line is '[[["),
        (json.dumps({str(n): n for n in range(MAX_METRICS + 1)}), "201 values; expected at most"),
    ],
)
def test_an_output_without_a_score_is_refused_with_the_reason(output, reason):
    assert reason in read_output(output)["fault"]


def test_times_are_medians_and_their_geometric_mean():
    found = read_json(json.dumps(PYTEST_BENCHMARK))
    assert found["are_times"]
    assert found["metrics"] == {
        "seconds": pytest.approx(4.0),
        "seconds of test_speed.py::test_total": 2.0,
        "seconds of test_speed.py::test_more": 8.0,
    }
    assert read_json(json.dumps(HYPERFINE))["metrics"] == {"seconds": pytest.approx(0.03295)}


@pytest.mark.parametrize("median", [0, -1, None, "2", inf])
def test_times_that_are_none_are_refused(median):
    rows = [{"command": "a", "median": median}]
    fault = read_json(json.dumps({"results": rows}))["fault"]
    assert fault.startswith("the median time of 'a' is")
