import dataclasses
import math
from collections import UserList
from dataclasses import replace
from math import inf, nan

import numpy as np
import pytest
from declared_limits import untested_limits

from costada.evaluators.fingerprint import problem_facts
from costada.evaluators.problem import Problem, check_problem
from costada.evaluators.problem_fields import Holdout, ProblemFields
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


def make_commanded(**fields: object) -> Problem:
    scored = {"evaluate": None, "score": always_half, "run": "python3 {program}"}
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


A_FILE = {"a.py": "x = 1"}
FILES = {"pkg/a.py": "def f(): return 7", "pkg/b.txt": ""}
HOLDOUT = Holdout(calls=lambda seed: [], score=always_half, margin=0.1)
TWO = ["speed:max", "memory:min"]

REFUSALS = {
    make_problem: [
        ({"name": " "}, "name is ' '; expected a non-empty string"),
        ({"task": ""}, "task is ''; expected a non-empty string"),
        ({"task": "to \ud800"}, r"task is 'to \\ud800'; expected no half of a surrogate pair"),
        ({"initial_program": 1}, "initial_program is 1; expected a non-empty string, or None"),
        ({"initial_program": {}}, "initial_program has 0 files, expected 1 to 200"),
        ({"initial_program": {"../a": ""}}, "has a file '../a', expected a relative path"),
        ({"initial_program": {"a": "", "a/b": ""}}, "expected the latter a folder"),
        (
            {"initial_program": {"a.py": None}},
            r"initial_program\['a.py'\] is None; expected a string",
        ),
        ({"editable": ["*.py"]}, "but initial_program is one text; expected none"),
        (
            {"initial_program": A_FILE, "editable": "*.py"},
            "editable is '\\*.py'; expected a list of patterns",
        ),
        ({"initial_program": A_FILE, "editable": ["/*.py"]}, "expected patterns of relative paths"),
        (
            {"initial_program": A_FILE, "editable": ["*.md"]},
            "expected patterns that match 'a.py', a file of the initial program, too",
        ),
        ({"entry_point": "run packing"}, "entry_point is 'run packing'; expected a function name"),
        ({"entry_point": "class"}, "entry_point is 'class'; expected a function name"),
        ({"build": " "}, "build is ' '; expected a command, or None"),
        ({"run": " "}, "run is ' '; expected a command"),
        ({"direction": "up"}, "direction is 'up'; expected one of 'maximize', 'minimize'"),
        ({"reference": 0.0}, "reference is 0.0; expected a positive number"),
        ({"reference": nan}, "reference is nan; expected a positive number"),
        ({"cpus": 0}, "cpus is 0; expected an integer of at least 1"),
        ({"gpus": -5e-324}, "gpus is -5e-324; expected an integer, or a fraction of one GPU"),
        ({"gpus": 1.5}, "gpus is 1.5; expected an integer, or a fraction of one GPU"),
        ({"gpus": inf}, "gpus is inf; expected an integer, or a fraction of one GPU"),
        ({"preload": "numpy"}, "preload is 'numpy'; expected a list of module names"),
        ({"preload": ["a b"]}, "preload is 'a b'; expected names of modules, such as 'numpy'"),
        ({"preload": ["numpi"]}, r"preload is \['numpi'\]; expected modules, found no numpi"),
        ({"sandbox": "jail"}, "sandbox is 'jail'; expected one of 'auto', 'process', 'landlock', "),
        ({"allow_invalid_start": 1}, "allow_invalid_start is 1; expected True or False"),
        ({"timing_metrics": "lap"}, "timing_metrics is 'lap'; expected a list of metric names"),
        ({"focus": "a.py::f"}, "focus is 'a.py::f'; expected a list of functions"),
        ({"prompt_tokens": 0}, "prompt_tokens is 0; expected an integer of at least 1"),
        ({"repeats": 0}, "repeats is 0; expected an integer of at least 1"),
        (
            {"repeats": 1_001},
            "repeats is 1001; expected an integer of at least 1 and at most 1,000",
        ),
        ({"repeats": True}, "repeats is True; expected an integer"),
        ({"batch": 0}, "batch is 0; expected an integer of at least 1"),
        *(
            ({"racing_error": error}, f"racing_error is {error}; expected a number of at least 0")
            for error in (-5e-324, 1.0, math.nan)
        ),
        ({"repeats": 2.0}, "repeats is 2.0; expected an integer"),
        ({"aggregate": "best"}, "aggregate is 'best'; expected one of 'median', 'mean', 'min', 'm"),
        ({"objectives": "speed:max"}, "objectives is 'speed:max'; expected a list of strings"),
        (
            {"objectives": ["speed:max", "memory"]},
            r"objectives\[1\] is 'memory'; expected a string",
        ),
        ({"objectives": ["a:max"]}, r"objectives is \['a:max'\]; expected none, or at least two"),
        ({"objectives": ["a:max", "a:min"]}, "expected none, or at least two different metrics"),
        ({"weights": {"a": 1.0}}, r"weights has 'a'; expected metrics of the objectives \(none,"),
        ({"weights": [1.0]}, r"weights is \[1.0\]; expected a number for each"),
        ({"models": {"a,b": "openai:x"}}, r"models is .*; expected a model for each name"),
        ({"candidate_models": {"": "openai:x"}}, r"candidate_models is .*; expected a model for"),
        ({"evaluation_dollars": 0.0}, "evaluation_dollars is 0.0; expected a positive number"),
        ({"evaluation_dollars": nan}, "evaluation_dollars is nan; expected a positive number"),
        ({"objectives": TWO, "weights": {"sped": 1}}, r"weights has 'sped'; .* \(speed, memory\)"),
        (
            {"objectives": TWO, "weights": {"speed": -1}},
            r"weights\['speed'\] is -1; expected a pos",
        ),
        ({"objectives": TWO, "weights": {"speed": nan}}, r"weights\['speed'\] is nan; expected"),
        ({"objectives": TWO, "weights": {"speed": "1"}}, r"weights\['speed'\] is '1'; expected"),
        (
            {"objectives": TWO, "weights": {"speed": 1}, "direction": "minimize"},
            "direction is 'minimize', but weights is given; expected 'maximize'",
        ),
        ({"human": nan}, "human is nan; expected a finite number"),
        ({"seed_objective": "low"}, "seed_objective is 'low'; expected a finite number"),
        ({"seed_objective": inf}, "seed_objective is inf; expected a finite number"),
        ({"source": "\ud800"}, r"source is '\\ud800'; expected no half of a surrogate pair"),
        ({"source": 1930}, "source is 1930; expected a string"),
        ({"language": "Esperanto"}, "language is 'Esperanto'; expected one of 'Python', "),
        ({"interpreter": 3}, "interpreter is 3; expected the path of a Python, or None"),
        (
            {"interpreter": "/no/such/python"},
            "interpreter is '/no/such/python'; .*there is none",
        ),
        (
            {"evaluate": 3},
            "evaluate is 3; expected an evaluate, score or score_example, a",
        ),
        ({"calls": [{}]}, "arguments or calls are given without score"),
        ({"holdout": HOLDOUT}, "holdout is given without score and calls"),
        ({"limits": 60}, r"limits is 60; expected Limits\(...\)"),
        *(
            (
                {"evaluations_at_once": count},
                f"evaluations_at_once is {count!r}; expected an integer",
            )
            for count in (0, -1, 1.5, True, "2")
        ),
        ({"evaluator_source": "\ud800"}, r"evaluator_source is '\\ud800'; expected no half"),
    ],
    make_scored: [
        *(
            (
                {"initial_program": FILES, "entry_point": name},
                "expected a module and a function of it",
            )
            for name in ("f", "pkg.a", "pkg.a:", "pkg.a:f()", ":f")
        ),
        (
            {"initial_program": FILES, "entry_point": "pkg.b:f"},
            r"expected pkg/b\.py among the initial program",
        ),
        ({"entry_point": None}, "entry_point is None; expected the function whose result score"),
        ({"evaluate": failed}, "evaluate is .* and score is .*; expected one of them, a function"),
        ({"score": "worth"}, "score is 'worth'; expected an evaluate, score or score_"),
        (
            {"score": asynchronous},
            "score is an async function; expected one that is called without",
        ),
        ({"score": None, "evaluate": failed}, "arguments or calls are given without score"),
        ({"arguments": {"x": {1, 2}}}, r"arguments\['x'\] is {1, 2}; expected a number, text, arr"),
        ({"arguments": {"x": 2**70}}, r"arguments\['x'\] is 1180591620717411303424; expected a"),
        ({"arguments": {"x": [len]}}, r"arguments\['x'\] is \[<built-in function len>\]; expected"),
        ({"arguments": {"x": {1: 2}}}, r"arguments\['x'\] is {1: 2}; expected"),
        ({"arguments": {"x": np.array("t")}}, r"arguments\['x'\] is array.*; expected"),
        ({"arguments": {"a b": 1}}, "an argument in arguments is 'a b'; expected the name of a k"),
        ({"arguments": {3: 1}}, "an argument in arguments is 3; expected the name of a keyword"),
        ({"arguments": [1]}, r"arguments is \[1\]; expected a dict of keyword arguments"),
        ({"arguments": {}, "calls": []}, r"calls is \[\]; expected a list of at least one dict"),
        ({"arguments": {}, "calls": {"x": 1}}, "calls is {'x': 1}; expected a list of at least"),
        ({"arguments": {}, "calls": [3]}, r"calls\[0\] is 3; expected a dict of keyword arguments"),
        ({"arguments": {}, "calls": [{}, {"x": len}]}, r"calls\[1\]\['x'\] is <built-in function"),
        ({"calls": [{"x": 1}]}, r"arguments is {'x': 3} and calls is \[{'x': 1}\]; expected one"),
        ({"holdout": HOLDOUT}, "holdout is given without score and calls"),
    ],
    make_commanded: [
        ({"initial_program": {"a.py": ""}}, "expected a command with {binary} and {folder}"),
        ({"entry_point": "f"}, "entry_point is 'f'; expected one: a command runs programs"),
        ({"run": " "}, "run is ' '; expected a command"),
        ({"run": "sh 'a"}, 'run is "sh \'a"; expected a command with {binary} and'),
        ({"run": None, "build": "make", "entry_point": None}, "build is 'make' and run is None"),
        ({"run": None}, "entry_point is None; expected the function whose result score evaluates"),
        (
            {"run": None, "language": "SQL", "calls": [{}]},
            "arguments or calls are given without entry_point and run",
        ),
        ({"readable": "/usr"}, "readable is '/usr'; expected a list of paths"),
        ({"readable": ["a"]}, "readable has 'a'; expected the absolute path"),
        ({"file_name": "../a"}, "file_name is '../a'; expected the name of a file"),
        ({"evaluate": len, "score": None}, "expected none beside evaluate"),
        ({"arguments": {"stdin": 3}}, r"arguments\['stdin'\] is 3; expected a string"),
        (
            {"calls": [{"input": "a"}]},
            r"calls\[0\]\['input'\] is 'a'; expected a string as 'stdin'",
        ),
        ({"calls": [{"arguments": [1]}]}, "expected a string as 'stdin' or a list of"),
    ],
}


@pytest.mark.parametrize(
    ("make", "fields", "expected"),
    [(make, *row) for make, rows in REFUSALS.items() for row in rows],
)
def test_a_wrong_field_is_refused_with_its_value_and_what_was_expected(make, fields, expected):
    with pytest.raises(ValueError, match=expected):
        make(**fields)


def test_each_limit_of_a_field_has_a_row_just_outside():
    names = [each.name for each in dataclasses.fields(ProblemFields)]
    given = [fields for rows in REFUSALS.values() for fields, _ in rows]
    assert untested_limits(ProblemFields, names, given) == []


def test_names_are_taken_from_any_sequence():
    assert make_problem(preload=UserList(["json"])).fingerprint


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
    found = check_problem(make_problem(evaluate=lambda code: worthless))
    assert replace(found, worker_seconds=0.0) == worthless


@pytest.mark.parametrize("mark", [EVALUATOR_FAULT, NOT_SCORED, SANDBOX_FAULT])
def test_an_initial_program_without_a_verdict_is_refused(mark):
    verdict = failed("it broke", artifacts={mark: "it broke"})
    with pytest.raises(ValueError, match="problem 'p', initial program: it broke"):
        check_problem(make_problem(evaluate=lambda code: verdict))


def test_an_evaluator_that_returns_something_else_is_refused():
    with pytest.raises(ValueError, match=r"problem 'p': evaluate returned float; expected an Eval"):
        check_problem(make_problem(evaluate=lambda code: 0.5))


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
