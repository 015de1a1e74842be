import re
from typing import Any

import pytest
from compared_runs import runs_of

from costada.experiments.comparison.outcomes import append_outcomes

STYLE = re.compile("\x1b\\[[0-9;?]*[A-Za-z]")
ELLIPSIS = "\N{HORIZONTAL ELLIPSIS}"


@pytest.fixture(params=[50, 80])
def width(request, monkeypatch):
    """The columns of a terminal that standard output is taken for."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", str(request.param))
    return request.param


def shown(result: Any, width: int) -> list[str]:
    assert result.exit_code == 0, result.output
    lines = STYLE.sub("", result.stdout).splitlines()
    assert max(len(line) for line in lines if not line.startswith("/")) <= width
    assert ELLIPSIS not in result.stdout
    return lines


def test_the_benchmarks_keep_their_names_and_numbers(invoke, width):
    text = "\n".join(shown(invoke("list"), width))
    assert "third_autocorrelation" in text
    assert "0.03093688903" in text
    assert ("Left out: direction, seed; --json" in text) is (width == 50)


def test_compared_methods_keep_what_tells_them_apart(invoke, width, tmp_path):
    append_outcomes(tmp_path / "x.curves.jsonl", runs_of({"evox": [0.5], "uniform": [0.4]}))
    lines = shown(invoke("compare", tmp_path), width)
    heading = next(line.split() for line in lines if "method" in line)
    assert {"problem", "method", "score"} <= set(heading)
    assert "Left out: " in " ".join(lines)
    assert "budget ($" in " ".join(lines)


def test_simulated_methods_keep_their_intervals_and_the_file_is_named(invoke, width, tmp_path):
    options = ("--methods", "costada,uniform", "--seeds", 3, "--budget", 0.1, "--jobs", 1)
    lines = shown(invoke("simulate", *options, "--out", tmp_path), width)
    interval = re.compile(r"^ uniform +[.\d]+ \[[.\d]+, [.\d]+\]")
    assert len([line for line in lines if interval.search(line)]) == 2
    assert lines[-1] == str(tmp_path / "simulated.curves.jsonl")
