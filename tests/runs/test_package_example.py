"""The example problem whose candidates are a package of three files."""

import shutil
import subprocess
from collections import Counter
from pathlib import Path
from runpy import run_path

import pytest

from costada.evaluators.folders import load_folder
from costada.runs.discovery import discover
from costada.values.candidate import Program

pytestmark = pytest.mark.process

EXAMPLE = Path(__file__).parents[2] / "examples/problems/package"
LONGEST_FIRST = """
def order(seconds):
    return sorted(range(len(seconds)), key=lambda job: -seconds[job])
"""
LEAST_LOADED = """
def assign(seconds, jobs, machines):
    loads, chosen = [0.0] * machines, [0] * len(seconds)
    for job in jobs:
        chosen[job] = min(range(machines), key=loads.__getitem__)
        loads[chosen[job]] += seconds[job]
    return chosen
"""


def score_of(plan):
    """The mean quality of plans by another way than the evaluator's."""
    shares = []
    for call in run_path(str(EXAMPLE / "evaluator.py"))["CALLS"]:
        loads = Counter()
        for machine, seconds in zip(plan(**call), call["seconds"], strict=True):
            loads[machine] += seconds
        bound = max(*call["seconds"], sum(call["seconds"]) / call["machines"])
        shares.append(bound / max(loads.values()))
    return sum(shares) / len(shares)


def longest_to_least_loaded(seconds, machines):
    loads, chosen = [0.0] * machines, {}
    for length, job in sorted(((length, job) for job, length in enumerate(seconds)), reverse=True):
        chosen[job] = loads.index(min(loads))
        loads[chosen[job]] += length
    return [chosen[job] for job in range(len(seconds))]


def test_changes_of_two_files_score_what_their_plans_are_worth():
    problem = load_folder(EXAMPLE)
    changed = {"schedule/order.py": LONGEST_FIRST, "schedule/assign.py": LEAST_LOADED}
    judged = problem.evaluate_program(Program.of({**problem.start, **changed}), "key")
    assert judged.score == pytest.approx(score_of(longest_to_least_loaded))
    assert problem.evaluate_program(problem.start, "key").score < 0.8 * judged.score


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"schedule/order.py": None}, "No module named 'schedule.order'"),
        ({"schedule/assign.py": "def assign(*_):\n    return [9] * 12\n"}, "job 0 is on 9"),
        ({"schedule/plan.py": "plan = 3\n"}, "plan"),
    ],
)
def test_a_package_that_does_not_work_is_rejected_with_the_reason(files, expected):
    problem = load_folder(EXAMPLE)
    whole = {**problem.start, **files}
    judged = problem.evaluate_program(
        Program.of({k: v for k, v in whole.items() if v is not None}), "key"
    )
    assert (judged.is_valid, expected in judged.error) == (False, True), judged.error


def test_a_run_improves_the_package_and_its_patch_carries_that_over(invoke, tmp_path):
    folder, problem = tmp_path / "run", shutil.copytree(EXAMPLE, tmp_path / "package")
    found = discover(str(problem), "offline", budget=1.0, max_iterations=8, seed=1, out=folder)
    assert found.best_score > load_folder(problem).evaluate(load_folder(problem).start).score
    patch = invoke("diff", folder).stdout_bytes
    command = ["git", "apply", "--unsafe-paths", f"--directory={problem}"]
    subprocess.run(command, input=patch, cwd=problem, check=True, timeout=60)
    for place in (problem, folder / "best_program"):
        said = invoke("evaluate", problem, place)
        assert f"score      {found.best_score:.10g}" in said.output
    assert "several files" in invoke("evaluate", problem, problem / "schedule/plan.py").output
