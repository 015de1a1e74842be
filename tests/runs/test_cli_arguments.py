"""What the command line refuses before anything happens, and what it says of itself."""

import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from compared_runs import runs_of

from costada.experiments.comparison.outcomes import append_outcomes
from costada.reports.formats import count, counted, percent

Invoke = Callable[..., Any]
REFUSED = 2
SWEEP = ["sweep", "--problems", "all", "--methods", "all"]
COMMAND = [sys.executable, "-c", "from costada.cli.main import main; main()"]


@pytest.mark.parametrize(
    "words",
    [
        ["run", "circle_packing", "--out", ""],
        ["resume", ""],
        ["fork", "", "--at", "1", "--out", "new"],
        ["fork", "run", "--at", "1", "--out", ""],
        [*SWEEP, "--out", ""],
        ["compare", ""],
        ["compare", "runs", "--out", ""],
        ["simulate", "--out", ""],
        ["theory", "--out", ""],
        ["trace", ""],
        ["report", ""],
        ["report", "run", "--out", ""],
        ["watch", ""],
        ["evaluate", "circle_packing", ""],
        ["init", ""],
        ["graph", "--out", ""],
        ["graph", "--run", ""],
        ["gateway", "--upstream", "http://localhost", "--journal", ""],
        ["mcp", "--max-budget", "1", "--out", ""],
        ["mcp", "--max-budget", "1", "--purse", ""],
    ],
    ids=lambda words: " ".join(words),
)
def test_an_empty_path_is_refused_by_the_name_of_its_option(invoke, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = invoke(*words)
    assert result.exit_code == REFUSED
    option = words[words.index("") - 1]
    assert (option if option.startswith("--") else "Invalid value for '") in result.output
    assert "got '', expected a path" in result.output
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["mcp", "--max-budget", 1, "--port", 9000], "--port: got 9000 without --http"),
        (
            ["run", "circle_packing", "--tool-evaluations", 5],
            "--tool-evaluations: needs --generator agent",
        ),
        (
            [*SWEEP, "--out", "swept", "--tool-evaluations", 5],
            "--tool-evaluations: needs --generator agent",
        ),
        (["graph", "--format", "svg", "--out", "x.png"], "--out: got x.png for --format svg"),
        (["graph", "--out", "x.svg"], "--out: got x.svg for --format mermaid"),
        *(
            (["simulate", "--budget", budget], "expected finite dollars above 0")
            for budget in ("inf", "nan", "0")
        ),
    ],
)
def test_options_that_contradict_one_another_are_refused(
    invoke, words, text, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    result = invoke(*words)
    assert (result.exit_code, list(tmp_path.iterdir())) == (REFUSED, [])
    assert text in result.output


@pytest.mark.parametrize(
    ("command", "codes"),
    [
        ("list", "Exit codes: 0 done; 2 refused; 130 stopped."),
        ("trace", "Exit codes: 0 done; 2 refused; 130 stopped."),
        ("evaluate", "0 done, also if the program failed; 1 the evaluator or the sandbox failed"),
        ("simulate", "Exit codes: 0 done; 1 failed; 2 refused; 130 stopped."),
    ],
)
def test_commands_without_runs_promise_no_saved_run(invoke, command, codes):
    text = " ".join(invoke(command, "--help").output.split())
    assert codes in text
    assert "saved" not in text


def test_what_the_terminal_cannot_show_is_replaced(tmp_path):
    append_outcomes(tmp_path / "x.curves.jsonl", runs_of({"evox": [0.5, 0.6]}))
    plain = {"LC_ALL": "POSIX", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    result = subprocess.run(
        [*COMMAND, "compare", str(tmp_path)], env={**os.environ, **plain}, capture_output=True
    )
    assert result.returncode == 0, result.stderr
    assert b" ? " in result.stdout


def test_numbers_beyond_reason_take_few_characters():
    assert (count(12_345), count(10**300)) == ("12,345", "1e+300")
    assert (percent(0.0472), percent(1e298)) == ("4.72%", "1e+300%")
    assert (counted(1, "run"), counted(2, "run")) == ("1 run", "2 runs")


@pytest.mark.parametrize("budget", ["1e300", "1e308"])
def test_a_dry_run_of_an_absurd_budget_is_told_in_few_characters(invoke, near, budget):
    result = invoke("run", near, "--budget", budget, "--dry-run")
    assert result.exit_code == 0, result.output
    assert max(map(len, result.stdout.splitlines())) < 200


def test_one_iteration_is_one_iteration(invoke, near, tmp_path):
    result = invoke("run", near, "--budget", "1e-300", "--out", tmp_path / "run")
    assert "Finished after 1 iteration: " in result.stdout
    assert max(map(len, result.stdout.splitlines())) < 200
