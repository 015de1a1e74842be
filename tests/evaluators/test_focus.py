"""Which functions of a repository prompts show in full: named ones, or the slowest ones."""

import json

import pytest
from made_repositories import git, make_repository, problem_of

from costada.evaluators.focus import with_focus
from costada.evaluators.named_functions import resolve_focus
from costada.evaluators.sandbox.layer_choice import chosen_layer
from costada.evaluators.sandbox.layers import UNCONFINED, Layer
from costada.nodes.attempts import first_prompt
from costada.prompts.changes import read_change

LICENCE = "# Licence: do what you like.\n" * 5
SLOW = '''
import sys

LIMIT = 300_000


class Adder:
    """Adds."""

    def add(self, count):
        """Add numbers, slowly."""
        total = 0
        for number in range(count):
            total += abs(number)
        return total

    def other(self):
        """Not called."""
        secret_of_other = 1
        return secret_of_other


def quick():
    """Returns at once."""
    return 1


def caller():
    return Adder().add(LIMIT)
'''
BENCH = "from slow import caller, quick\n\nquick()\ncaller()\nprint(0.5)\n"
TESTS = "from slow import Adder\n\n\ndef test_add():\n    assert Adder().add(3) == 3\n"
FILES = {
    "bench.py": BENCH,
    "src/slow.py": LICENCE + SLOW,
    "src/a.py": LICENCE + "def unused(a, b):\n    '''Not used.'''\n    return 'body of unused'\n",
    "tests/test_slow.py": TESTS,
    "tests/test_a.py": "def test_nothing():\n    pass\n",
}


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    return make_repository((tmp_path_factory.mktemp("focus") / "repository").resolve(), FILES)


@pytest.mark.process
def test_the_slowest_function_is_measured_once_and_shown_with_its_callers_and_tests(
    repository, tmp_path
):
    folder = tmp_path / "problem"
    problem = with_focus(problem_of(repository, folder))
    assert problem.shown.functions[0] == "src/slow.py::Adder.add"
    assert dict(problem.shown.tests) == {
        "bench.py": BENCH,
        "tests/test_slow.py::test_add": (TESTS[TESTS.index("def") :].rstrip()),
    }
    assert "Adder.add in full (measured)" in problem.notes[-1]
    prompt = first_prompt(problem).user
    for text in ("total += abs(number)", "return Adder().add(LIMIT)", "def quick(): ..."):
        assert text in prompt
    for text in ("Licence", "secret_of_other", "body of unused", "test_nothing"):
        assert text not in prompt
    assert "FILE: src/slow.py::Adder.add\n" in prompt
    (kept,) = (folder / ".costada" / "profiles").glob("*.json")
    known = json.loads(kept.read_text())
    kept.write_text(json.dumps({**known, "seconds": {"src/slow.py:1": 1.0, "bench.py:1": "x"}}))
    again = with_focus(problem_of(repository, folder))
    assert again.shown.functions == ()  # what is kept is read, and nothing is measured again
    assert "no function is in focus" in again.notes[-1]
    kept.write_text("[1")
    assert "it was not measured" in with_focus(problem_of(repository, folder)).notes[-1]


@pytest.mark.process
def test_a_test_command_that_fails_rejects_a_candidate(repository, tmp_path):
    command = "python -c 'from slow import Adder; assert Adder().add(3) == 3'"
    problem = problem_of(repository, tmp_path / "problem", settings=f'test = """{command}"""')
    assert problem.evaluate(problem.start).score == 0.5
    answer = "FILE: src/slow.py::Adder.add\n```python\ndef add(self, count):\n    return 0\n```\n"
    changed = read_change(answer, problem.start, problem.form)
    evaluation = problem.evaluate(changed.program)
    assert not evaluation.is_valid
    assert "test failed (exit status 1)" in evaluation.error


def test_named_functions_are_found_by_path_and_by_module(repository, tmp_path):
    names = 'focus = ["slow.Adder.add", "src/a.py::unused", "quick"]'
    problem = problem_of(repository, tmp_path / "problem", settings=names)
    expected = ("src/slow.py::Adder.add", "src/a.py::unused", "src/slow.py::quick")
    assert problem.focus == expected
    assert "body of unused" in first_prompt(problem).user
    files = {"a/x.py": "def f():\n    pass\n", "a/__init__.py": "def g():\n    pass\n"}
    assert resolve_focus(["a.g", "a.x.f"], files) == ("a/__init__.py::g", "a/x.py::f")
    with pytest.raises(ValueError, match=r"'a/x.py::h'; no function has this name.*'a/x.py::f'"):
        resolve_focus(["a/x.py::h"], files)
    with pytest.raises(ValueError, match="; 2 functions have this name"):
        resolve_focus(["f"], {**files, "b.py": "def f(): pass\n"})


def test_a_prompt_keeps_to_its_tokens(repository, tmp_path):
    settings = 'focus = ["slow.quick"]\nprompt_tokens = 40'
    prompt = first_prompt(problem_of(repository, tmp_path / "problem", settings=settings)).user
    assert "    return 1\n" in prompt
    assert "total += abs(number)" not in prompt
    assert "Further files: `src/a.py`." in prompt


@pytest.mark.process
def test_no_code_of_a_repository_runs_outside_of_the_sandbox(tmp_path):
    if chosen_layer(Layer.AUTO) in UNCONFINED:
        pytest.skip("no layer of this machine confines programs")
    marker = tmp_path / "marker"
    writing = (
        f"import contextlib\nwith contextlib.suppress(OSError):\n    open({str(marker)!r}, 'w')\n"
    )
    files = {"conftest.py": writing, "sitecustomize.py": writing, "src/solver.py": writing}
    bench = "import conftest, solver\nprint(0.5)\n"
    root = make_repository((tmp_path / "repository").resolve(), {**files, "bench.py": bench})
    hooks = root / ".git" / "hooks"
    hooks.mkdir(exist_ok=True)
    for name in ("post-checkout", "post-index-change", "pre-commit", "reference-transaction"):
        (hooks / name).write_text(f"#!/bin/sh\ntouch '{marker}'\n")
        (hooks / name).chmod(0o755)
    git(root, "config", "core.fsmonitor", str(hooks / "pre-commit"))
    problem = with_focus(problem_of(root, tmp_path / "problem"))
    assert problem.evaluate(problem.start).score == 0.5
    assert not marker.exists()
