"""`costada init` writes a problem that works as it is."""

import json
import shlex
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from costada.evaluators.registry import problem

Invoke = Callable[..., Any]
FILES = {"problem.md", "problem.toml", "initial_program.py", "evaluator.py", "test_problem.py"}


@pytest.fixture
def folder(invoke, tmp_path):
    target = tmp_path / "deep" / "my problem"
    result = invoke("init", target)
    assert result.exit_code == 0, result.output
    return target


def test_it_writes_a_complete_folder_and_says_what_to_do_next(invoke, tmp_path):
    target = tmp_path / "my problem"
    lines = [line.strip() for line in invoke("init", target).stdout.splitlines()]
    assert {path.name for path in target.iterdir()} == FILES <= set(lines)
    place = shlex.quote(str(target))
    steps = (
        f"costada evaluate {place} {shlex.quote(str(target / 'initial_program.py'))}",
        f"costada run {place} --budget 0.05",
        f"pytest {place}",
    )
    assert set(steps) <= set(lines)


def test_its_own_tests_pass(folder):
    command = [sys.executable, "-m", "pytest", "-q", "-W", "error", "-p", "no:cacheprovider", "."]
    ended = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout
    assert "4 passed" in ended.stdout


def test_its_initial_program_can_be_evaluated(invoke, folder):
    result = invoke("evaluate", folder, folder / "initial_program.py", "--json")
    verdict = json.loads(result.stdout)
    assert verdict["is_valid"]
    assert verdict["score"] == pytest.approx(49.16525305762881 / verdict["objective"])
    assert "The nearest are charges" in verdict["artifacts"]["feedback"]


def test_the_offline_model_gets_on_with_it(invoke, folder, tmp_path):
    out = tmp_path / "run"
    result = invoke("run", folder, "--budget", "0.05", "--out", out, "--json", "--quiet")
    found = json.loads(result.stdout)
    mine = problem(folder)
    seed = mine.evaluate(mine.initial_program).score
    assert found["best_score"] > seed
    assert found["best_score"] == mine.evaluate((out / "best_program.py").read_text()).score


@pytest.mark.parametrize("name", ["circle_packing", "signal_processing"])
def test_a_copied_benchmark_scores_its_seed_alike(invoke, tmp_path, name):
    target = tmp_path / "mine"
    written = invoke("init", target, "--from", name)
    assert written.exit_code == 0, written.output
    assert {path.name for path in target.iterdir()} == FILES - {"test_problem.py"}
    assert "  pytest " not in written.stdout
    copied, original = problem(target), problem(name)
    assert copied.name == "mine"
    seed = original.initial_program
    assert copied.evaluate(seed).score == original.evaluate(seed).score
    assert copied.evaluator_source == original.evaluator_source


def test_an_unknown_benchmark_is_refused_with_the_nearest(invoke, tmp_path):
    result = invoke("init", tmp_path / "mine", "--from", "circle_pack")
    assert result.exit_code == 2
    assert "did you mean 'circle_packing'?" in result.output
    assert not (tmp_path / "mine").exists()


def test_a_folder_that_holds_something_is_refused_by_name(invoke, tmp_path):
    for number in range(7):
        (tmp_path / f"note-{number}.txt").touch()
    result = invoke("init", tmp_path)
    assert result.exit_code == 2
    assert "holds note-0.txt, note-1.txt, note-2.txt, note-3.txt, note-4.txt and 2 more; expec" in (
        result.output
    )
    assert len(list(tmp_path.iterdir())) == 7


def test_a_file_is_refused(invoke, tmp_path):
    (tmp_path / "taken").touch()
    result = invoke("init", tmp_path / "taken")
    assert result.exit_code == 2
    assert "taken: is a file, expected a new or empty folder" in result.output


def test_an_empty_folder_is_used(invoke, tmp_path):
    assert invoke("init", tmp_path).exit_code == 0
    assert {path.name for path in tmp_path.iterdir()} == FILES
