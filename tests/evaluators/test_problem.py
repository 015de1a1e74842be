from collections import UserList
from dataclasses import replace

import numpy as np
import pytest

from costada.evaluators.fingerprint import problem_facts
from costada.evaluators.problem import Problem, check_problem
from costada.evaluators.sandbox.limits import Limits
from costada.values.candidate import Program
from costada.values.evaluation import (
    EVALUATOR_FAULT,
    NOT_SCORED,
    SANDBOX_FAULT,
    Direction,
    Evaluation,
    failed,
)


def always_half(code: str) -> Evaluation:
    return Evaluation(score=0.5, objective=0.5, is_valid=True)


async def asynchronous(output: object) -> Evaluation:
    return always_half("")


def make_problem(**fields: object) -> Problem:
    given = {"name": "p", "task": "Do it.", "initial_program": "x = 1", "evaluate": always_half}
    return Problem(**(given | fields))


def make_scored(**fields: object) -> Problem:
    scored = {"evaluate": None, "score": always_half, "entry_point": "f", "arguments": {"x": 3}}
    return make_problem(**(scored | fields))


def test_a_problem_needs_only_name_task_program_and_evaluator():
    problem = make_problem()
    assert (problem.direction, problem.limits) == (Direction.MAXIMIZE, Limits())
    assert (problem.entry_point, problem.reference) == (None, None)
    assert problem.evaluator_source.startswith("def always_half(code: str)")
    assert check_problem(problem).score == 0.5


def test_an_evaluator_source_may_be_given_or_unknown():
    class Judge:
        def __call__(self, code: str) -> Evaluation:
            return always_half(code)

    assert make_problem(evaluator_source="score = 1").evaluator_source == "score = 1"
    assert make_problem(evaluate=Judge()).evaluator_source == ""


def test_a_direction_may_be_given_as_text():
    assert make_problem(direction="minimize").direction is Direction.MINIMIZE


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        ("name", " ", "name is ' '; expected a non-empty string"),
        ("task", "", "task is ''; expected a non-empty string"),
        ("initial_program", None, "initial_program is None; expected a non-empty string"),
        ("initial_program", {}, "initial_program has 0 files, expected 1 to 200"),
        ("initial_program", {"../a": ""}, "has a file '../a', expected a relative path"),
        ("initial_program", {"a": "", "a/b": ""}, "expected the latter a folder"),
        (
            "initial_program",
            {"a.py": None},
            r"initial_program\['a.py'\] is None; expected a string",
        ),
        ("editable", ["*.py"], "but initial_program is one text; expected none"),
        ("evaluate", 3, "evaluate is 3 and score is None; expected one of them, a function"),
        ("entry_point", "run packing", "entry_point is 'run packing'; expected a function name"),
        ("entry_point", "class", "entry_point is 'class'; expected a function name"),
        ("direction", "up", "direction is 'up'; expected one of 'maximize', 'minimize'"),
        ("sandbox", "jail", "sandbox is 'jail'; expected one of 'auto', 'process', 'landlock', "),
        ("preload", "numpy", "preload is 'numpy'; expected a list of module names"),
        ("preload", ["a b"], "preload is 'a b'; expected names of modules, such as 'numpy'"),
        ("preload", ["numpi"], r"preload is \['numpi'\]; expected modules, found no numpi"),
        ("task", "to \ud800", r"task is 'to \\ud800'; expected no half of a surrogate pair"),
        ("source", "\ud800", r"source is '\\ud800'; expected no half of a surrogate pair"),
        ("source", 1930, "source is 1930; expected a string"),
        ("seed_objective", "low", "seed_objective is 'low'; expected a finite number"),
        ("reference", 0.0, "reference is 0.0; expected a positive number"),
        ("limits", 60, r"limits is 60; expected Limits\(...\)"),
        ("human", float("nan"), "human is nan; expected a finite number"),
        ("timing_metrics", "lap", "timing_metrics is 'lap'; expected a list of metric names"),
        ("allow_invalid_start", 1, "allow_invalid_start is 1; expected True or False"),
        ("calls", [{}], "arguments or calls are given without score"),
    ],
)
def test_a_bad_field_is_refused_by_name(field, value, expected):
    with pytest.raises(ValueError, match=expected):
        make_problem(**{field: value})


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"arguments": {"x": {1, 2}}}, r"arguments\['x'\] is {1, 2}; expected a number, text, arr"),
        ({"arguments": {"x": 2**70}}, r"arguments\['x'\] is 1180591620717411303424; expected a"),
        ({"arguments": {"x": [len]}}, r"arguments\['x'\] is \[<built-in function len>\]; expected"),
        ({"arguments": {"x": {1: 2}}}, r"arguments\['x'\] is {1: 2}; expected"),
        ({"arguments": {"x": np.array("t")}}, r"arguments\['x'\] is array.*; expected"),
        ({"arguments": {"a b": 1}}, "an argument in arguments is 'a b'; expected the name of a k"),
        ({"arguments": {3: 1}}, "an argument in arguments is 3; expected the name of a keyword"),
        ({"arguments": [1]}, r"arguments is \[1\]; expected a dict of keyword arguments"),
        ({"calls": [{"x": 1}]}, r"arguments is {'x': 3} and calls is \[{'x': 1}\]; expected one"),
        ({"arguments": {}, "calls": []}, r"calls is \[\]; expected a list of at least one dict"),
        ({"arguments": {}, "calls": {"x": 1}}, "calls is {'x': 1}; expected a list of at least"),
        ({"arguments": {}, "calls": [3]}, r"calls\[0\] is 3; expected a dict of keyword arguments"),
        ({"arguments": {}, "calls": [{}, {"x": len}]}, r"calls\[1\]\['x'\] is <built-in function"),
        ({"entry_point": None}, "entry_point is None; expected the function whose result score"),
        ({"evaluate": failed}, "expected one of them, a function"),
        ({"score": "worth"}, "score is 'worth'; expected one of them, a function"),
        (
            {"score": asynchronous},
            "score is an async function; expected one that is called without",
        ),
        ({"score": None, "evaluate": failed}, "arguments or calls are given without score"),
    ],
)
def test_calls_that_cannot_work_are_refused_by_name(fields, expected):
    with pytest.raises(ValueError, match=expected):
        make_scored(**fields)


def test_names_are_taken_from_any_sequence_but_a_string():
    assert make_problem(preload=UserList(["json"])).fingerprint
    with pytest.raises(ValueError, match="preload is 'json'; expected a list of module names"):
        make_problem(preload="json")


def test_problems_that_judge_alike_share_a_fingerprint_and_others_do_not():
    same = make_problem(task="Do it well.", initial_program="x = 2", human=3.0)
    assert same.fingerprint == make_problem().fingerprint
    changes = {
        "name": "q",
        "entry_point": "f",
        "evaluator_source": "other",
        "limits": Limits(wall_seconds=5),
        "sandbox": "none",
        "preload": [],
        "direction": "minimize",
        "reference": 2.0,
    }
    changed = [make_problem(**{field: value}) for field, value in changes.items()]
    array = {"arguments": {"x": np.arange(3.0)}}
    changed += [make_scored(), make_scored(**array), make_scored(arguments={}, calls=[{"x": 3}])]
    assert len({make_problem().fingerprint, *(p.fingerprint for p in changed)}) == 12
    assert make_scored(**array).fingerprint == make_scored(**array).fingerprint


def test_a_program_that_no_file_can_hold_is_not_valid():
    judged = []
    problem = make_problem(evaluate=lambda code: judged.append(code))
    verdict = problem.evaluate_program(Program.of("x = '\ud800'"), "key")
    assert (verdict.is_valid, judged) == (False, [])
    assert "half of a surrogate pair" in str(verdict.error)


@pytest.mark.parametrize(
    "given", [{"evaluate": lambda code: failed("not yet")}, {"seed_evaluation": failed("not yet")}]
)
def test_a_rejected_initial_program_is_refused_unless_the_start_may_be_invalid(given):
    with pytest.raises(ValueError) as refused:
        check_problem(make_problem(**given))
    told = str(refused.value)
    assert told.startswith("problem 'p': the evaluator rejects the initial program: not yet;")
    for way in ("--allow-invalid-start", "Problem(allow_invalid_start=True)", "problem.toml"):
        assert way in told
    allowed = make_problem(**given, allow_invalid_start=True)
    assert check_problem(allowed).error == "not yet"
    assert replace(allowed, allow_invalid_start=False).fingerprint == allowed.fingerprint
    assert problem_facts(allowed) == problem_facts(make_problem(**given))


def test_a_valid_initial_program_that_scores_0_is_no_rejected_one():
    worthless = Evaluation(score=0, objective=0, is_valid=True)
    assert check_problem(make_problem(evaluate=lambda code: worthless)) is worthless


@pytest.mark.parametrize("mark", [EVALUATOR_FAULT, NOT_SCORED, SANDBOX_FAULT])
def test_an_initial_program_without_a_verdict_is_refused(mark):
    verdict = failed("it broke", artifacts={mark: "it broke"})
    with pytest.raises(ValueError, match="problem 'p', initial program: it broke"):
        check_problem(make_problem(evaluate=lambda code: verdict))


def test_an_evaluator_that_returns_something_else_is_refused():
    with pytest.raises(ValueError, match=r"problem 'p': evaluate returned float; expected an Eval"):
        check_problem(make_problem(evaluate=lambda code: 0.5))


@pytest.mark.parametrize(
    ("editable", "expected"),
    [
        ("*.py", "editable is '\\*.py'; expected a list of patterns"),
        (["/*.py"], "expected patterns of relative paths"),
        (["*.md"], "expected patterns that match 'a.py', a file of the initial program, too"),
    ],
)
def test_patterns_that_do_not_fit_the_initial_program_are_refused(editable, expected):
    with pytest.raises(ValueError, match=expected):
        make_problem(initial_program={"a.py": "x = 1"}, editable=editable)


def test_an_evaluator_of_several_files_is_given_them_by_path():
    judged = []

    def evaluate(files):
        judged.append(dict(files))
        return always_half(files)

    problem = make_problem(initial_program={"b.py": "2", "a.py": "1"}, evaluate=evaluate)
    assert check_problem(problem).score == 0.5
    assert problem.evaluate_program(Program.of({"c.py": "3"}), "key").score == 0.5
    assert problem.evaluate_program(Program.of({"c.py": "\ud800"}), "key").error is not None
    assert judged == [{"a.py": "1", "b.py": "2"}, {"c.py": "3"}]
