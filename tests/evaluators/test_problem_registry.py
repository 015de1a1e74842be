import subprocess
import sys

import pytest

from costada.evaluators.problem import check_problem
from costada.evaluators.registry import problem, problem_names

OF_SHORT_SEEDS = [name for name in problem_names() if name != "third_autocorrelation"]
"""The other one's seed is a whole optimisation: test_third_autocorrelation.py runs it."""


def test_circle_packing_is_a_known_problem():
    assert "circle_packing" in problem_names()
    assert problem("circle_packing").name == "circle_packing"


@pytest.mark.parametrize("name", problem_names())
def test_every_known_problem_carries_its_own_name(name):
    assert problem(name).name == name


@pytest.mark.parametrize("name", OF_SHORT_SEEDS)
def test_the_recorded_objective_of_a_seed_is_the_one_it_has(name):
    found = problem(name)
    evaluation = check_problem(found)
    assert found.seed_objective == pytest.approx(evaluation.objective, rel=1e-6)


@pytest.mark.parametrize("name", problem_names())
def test_every_known_problem_says_where_it_is_from_and_how_it_is_scored(name):
    found = problem(name)
    assert found.source
    assert found.entry_point in found.initial_program
    assert found.score is not None
    assert found.evaluator_source


def test_names_come_in_alphabetical_order():
    assert list(problem_names()) == sorted(problem_names())


def test_a_misspelt_name_gets_a_suggestion():
    with pytest.raises(ValueError, match=r"'circle-packing'; did you mean 'circle_packing'\? exp"):
        problem("circle-packing")


def test_an_unknown_name_gets_the_known_ones():
    with pytest.raises(ValueError, match=r"problem is 'zzz'; expected .* one of: .*circle_packing"):
        problem("zzz")


def test_a_path_loads_the_folder(tmp_path):
    for name in ("problem.md", "initial_program.py", "evaluator.py"):
        (tmp_path / name).write_text("x = 1")
    assert problem(tmp_path).name == problem(str(tmp_path)).name == tmp_path.name


def test_a_path_to_nothing_is_refused(tmp_path):
    with pytest.raises(ValueError, match="nowhere is not a folder"):
        problem(tmp_path / "nowhere")


def test_listing_the_names_imports_no_numerical_library():
    script = (
        "import sys\nfrom costada.evaluators.registry import problem_names\nproblem_names()\n"
        "print(sorted({'numpy', 'scipy'} & set(sys.modules)))"
    )
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (ended.stdout, ended.stderr) == ("[]\n", "")
