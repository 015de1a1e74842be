"""Syntax errors are a candidate's failure before it is built, run or judged."""

import pytest

from costada.evaluators.problem import Problem
from costada.values.candidate import Program
from costada.values.evaluation import Evaluation

pytestmark = pytest.mark.process


def accept(output):
    return Evaluation(score=1.0, objective=1.0, is_valid=True)


def problem_of(start, language="Python", **settings) -> Problem:
    return Problem(
        name="syntax",
        task="Try.",
        initial_program=start,
        language=language,
        score=accept,
        **settings,
    )


def error_of(problem: Problem, source) -> str | None:
    return problem.evaluate_program(Program.of(source)).error


@pytest.mark.parametrize(
    ("language", "good", "bad", "error"),
    [
        (
            "JSON",
            '{"a": 1}',
            '{"a": 1,\n "b" 2}',
            "candidate.json, line 2: Expecting ':' delimiter\n    \"b\" 2}",
        ),
        ("TOML", "a = 1\n", "a = 1\nb = = 2\n", "candidate.toml, line 2: Invalid value"),
        ("YAML", "a: 1\n", "a: 1\nb: [1, 2\nc: 3\n", "candidate.yaml, line 3: expected ','"),
        ("JSON", "[]", "[" * 20_000, "candidate.json, line 1: nested too deeply"),
    ],
)
def test_an_error_is_given_with_its_line(language, good, bad, error):
    problem = problem_of(good, language)
    assert error_of(problem, good) is None
    assert str(error_of(problem, bad)).startswith(error)


def test_a_text_without_known_syntax_is_not_checked():
    assert error_of(problem_of("Be brief.", "text"), "Be ((brief") is None


def test_a_file_with_an_unknown_ending_is_not_checked():
    problem = problem_of({"a.json": "{}", "notes.txt": "x", "Makefile": "all:"}, "JSON")
    assert error_of(problem, {"a.json": "[]", "notes.txt": "{", "Makefile": "{"}) is None


def test_each_of_several_files_is_checked_in_its_own_language():
    problem = problem_of({"a.json": "{}", "b.md": "text"})
    assert error_of(problem, {"a.json": "[1]", "b.md": "{"}) is None
    error = str(error_of(problem, {"b.md": "x", "c/d.toml": "x ="}))
    assert error.startswith("c/d.toml, line 1: Invalid value")
    assert error.endswith("\n    x =")


def test_a_language_in_which_the_start_has_errors_is_not_checked():
    problem = problem_of({"a.json": "{", "b.toml": "x = 1"})
    assert error_of(problem, {"a.json": "{{", "b.toml": "x = 2"}) is None
    assert "b.toml, line 1" in str(error_of(problem, {"a.json": "{{", "b.toml": "x"}))


def test_a_script_is_checked_before_it_runs():
    problem = problem_of("print(1)\n", "Python", run="python3 {program}")
    assert error_of(problem, "print(1)\nprint(2\n") == (
        "candidate.py, line 2: SyntaxError: '(' was never closed\n    print(2"
    )


@pytest.mark.parametrize(
    ("language", "package", "good", "bad", "error"),
    [
        (
            "C++",
            "tree_sitter_cpp",
            "int main() { return 0; }\n",
            "int main() {\n  return 0\n}\n",
            "candidate.cpp, line 2: `;` is missing\n    return 0",
        ),
        (
            "JavaScript",
            "tree_sitter_javascript",
            "let a = 1;\n",
            "let b = 1;\nlet a = = 1;\n",
            "candidate.js, line 2: no valid syntax near `= = 1;`\n    let a = = 1;",
        ),
    ],
)
def test_tree_sitter_checks_other_languages(language, package, good, bad, error):
    for name in ("tree_sitter", package):
        pytest.importorskip(name, reason=f"pip install {name.replace('_', '-')}")
    problem = problem_of(good, language)
    assert error_of(problem, good) is None
    assert error_of(problem, bad) == error
