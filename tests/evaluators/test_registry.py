import subprocess
import sys

import pytest

from costada.evaluators.registry import benchmark_settings, is_built_in, problem, problem_names


def test_names_come_in_alphabetical_order_and_each_is_that_of_its_problem():
    assert list(problem_names()) == sorted(problem_names())
    for name in problem_names():
        found, settings = problem(name), benchmark_settings(name)
        assert is_built_in(name)
        assert found.name == name
        assert (found.source, found.seed_objective) == (settings.source, settings.seed_objective)
        assert found.source
        assert found.score is not None
    assert not is_built_in("zzz")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("circle-packing", r"'circle-packing'; did you mean 'circle_packing'\? expected"),
        ("zzz", r"problem is 'zzz'; expected .* one of: .*circle_packing"),
        ("./nowhere", r"nowhere: is not a folder"),
    ],
)
def test_an_unknown_problem_is_refused_with_what_is_known(name, expected):
    with pytest.raises(ValueError, match=expected):
        problem(name)


def test_a_path_loads_the_folder(tmp_path):
    for name in ("problem.md", "initial_program.py", "evaluator.py"):
        (tmp_path / name).write_text("x = 1")
    assert problem(tmp_path).name == problem(str(tmp_path)).name == tmp_path.name


REGISTERED = """
from costada import Evaluation, Problem
def right():
    judge = lambda code: Evaluation(score=0, objective=0, is_valid=True)
    return Problem(name="right", task="Do it.", initial_program="x = 1", evaluate=judge)
def wrong(): return "x"
"""


def test_an_installed_package_may_register_a_problem_and_nothing_else(tmp_path, monkeypatch):
    (tmp_path / "tens.py").write_text(REGISTERED)
    (tmp_path / "tens-1.dist-info").mkdir()
    entries = "[costada.problems]\nright = tens:right\nwrong = tens:wrong\n"
    (tmp_path / "tens-1.dist-info" / "entry_points.txt").write_text(entries)
    (tmp_path / "tens-1.dist-info" / "METADATA").write_text("Name: tens\nVersion: 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert is_built_in("right")
    assert problem("right").task == "Do it."
    with pytest.raises(
        ValueError, match=r"'tens:wrong' of tens returned a str, expected a callable"
    ):
        problem("wrong")


@pytest.mark.process
def test_listing_the_settings_imports_no_numerical_library():
    script = (
        "import sys\nfrom costada.evaluators.registry import benchmark_settings, problem_names\n"
        "for name in problem_names(): benchmark_settings(name)\n"
        "print(sorted({'numpy', 'scipy'} & set(sys.modules)))"
    )
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (ended.stdout, ended.stderr) == ("[]\n", "")
