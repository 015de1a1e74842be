from dataclasses import FrozenInstanceError, replace

import pytest

from costada.evaluators.fingerprint import problem_facts
from costada.evaluators.problem import Problem, check_problem
from costada.evaluators.sandbox.limits import Limits
from costada.values.evaluation import (
    EVALUATOR_FAULT,
    NO_VERDICT,
    SANDBOX_FAULT,
    Direction,
    Evaluation,
    failed,
)


def always_half(code: str) -> Evaluation:
    return Evaluation(score=0.5, objective=0.5, is_valid=True)


def make_problem(**fields: object) -> Problem:
    given = {"name": "p", "task": "Do it.", "initial_program": "x = 1", "evaluate": always_half}
    return Problem(**(given | fields))


def test_a_problem_needs_only_name_task_program_and_evaluator():
    problem = make_problem()
    assert problem.direction is Direction.MAXIMIZE
    assert (problem.entry_point, problem.reference, problem.limits.wall_seconds) == (
        None,
        None,
        360.0,
    )


def test_the_evaluator_source_is_read_from_the_function():
    assert make_problem().evaluator_source.startswith("def always_half(code: str)")


def test_a_given_evaluator_source_is_kept():
    assert make_problem(evaluator_source="score = 1").evaluator_source == "score = 1"


def test_the_evaluator_source_of_an_object_without_text_is_empty():
    class Judge:
        def __call__(self, code: str) -> Evaluation:
            return always_half(code)

    assert make_problem(evaluate=Judge()).evaluator_source == ""


def test_a_direction_may_be_given_as_text():
    assert make_problem(direction="minimize").direction is Direction.MINIMIZE


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        ("name", " ", "name is ' '; expected a non-empty text"),
        ("task", "", "task is ''; expected a non-empty text"),
        ("initial_program", None, "initial_program is None; expected a non-empty text"),
        ("evaluate", 3, "evaluate is 3 and score is None; expected one of them, a function"),
        ("entry_point", "run packing", "entry_point is 'run packing'; expected a function name"),
        ("entry_point", "class", "entry_point is 'class'; expected a function name"),
        ("direction", "up", "direction is 'up'; expected one of 'maximize', 'minimize'"),
        ("sandbox", "jail", "sandbox is 'jail'; expected one of 'auto', 'process', 'landlock', "),
        ("preload", "numpy", "preload is 'numpy'; expected a list of module names"),
        ("preload", ["a b"], "preload is 'a b'; expected names of modules, such as 'numpy'"),
        ("preload", ["numpi"], r"preload is \['numpi'\]; expected modules, found no numpi"),
        ("task", "to \ud800", r"task is 'to \\ud800'; expected no half of a surrogate pair"),
        ("source", 1930, "source is 1930; expected a text"),
        ("seed_objective", "low", "seed_objective is 'low'; expected a finite number"),
        ("reference", 0.0, "reference is 0.0; expected a positive number"),
        ("limits", 60, r"limits is 60; expected Limits\(...\)"),
        ("human", float("nan"), "human is nan; expected a finite number"),
    ],
)
def test_a_bad_field_is_refused_by_name(field, value, expected):
    with pytest.raises(ValueError, match=expected):
        make_problem(**{field: value})


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
    assert len({make_problem().fingerprint, *(p.fingerprint for p in changed)}) == 9


def test_a_failed_evaluation_scores_zero_and_has_no_objective():
    evaluation = failed("overlap", seconds=2.0)
    assert (evaluation.score, evaluation.objective, evaluation.is_valid) == (0.0, None, False)
    assert (evaluation.error, evaluation.seconds) == ("overlap", 2.0)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"score": float("nan"), "is_valid": True}, "score is nan; expected a finite number"),
        ({"score": 1.0, "is_valid": True, "error": "no"}, "expected None for a valid candidate"),
        ({"score": 0.0, "is_valid": False}, "expected a reason for a failed candidate"),
        ({"score": 1.0, "is_valid": False, "error": "no"}, "expected 0 for a failed candidate"),
    ],
)
def test_a_contradictory_evaluation_is_refused(fields, expected):
    with pytest.raises(ValueError, match=expected):
        Evaluation(objective=None, **fields)


def test_texts_of_an_evaluation_can_be_stored_and_sent():
    told = failed("no \ud800", artifacts={"log\udfff": "out \ud83d"})
    assert (told.error, told.artifacts) == ("no ?", {"log?": "out ?"})


def test_a_program_that_no_file_can_hold_is_not_valid():
    judged = []
    problem = make_problem(evaluate=lambda code: judged.append(code))
    verdict = problem.judge("x = '\ud800'", "key")
    assert (verdict.is_valid, judged) == (False, [])
    assert "half of a surrogate pair" in str(verdict.error)


def test_an_evaluation_cannot_be_changed():
    with pytest.raises(FrozenInstanceError):
        failed("no").score = 1.0


def test_checking_a_problem_returns_the_evaluation_of_its_initial_program():
    assert check_problem(make_problem()).score == 0.5


def test_a_rejected_initial_program_is_refused_unless_the_start_may_be_invalid():
    rejecting = {"evaluate": lambda code: failed("not yet")}
    with pytest.raises(ValueError) as refused:
        check_problem(make_problem(**rejecting))
    told = str(refused.value)
    assert told.startswith("problem 'p': the evaluator rejects the initial program: not yet;")
    for way in ("--allow-invalid-start", "Problem(allow_invalid_start=True)", "problem.toml"):
        assert way in told
    allowed = make_problem(**rejecting, allow_invalid_start=True)
    assert check_problem(allowed).error == "not yet"


def test_allowing_an_invalid_start_keeps_the_verdicts_known_so_far():
    evaluate = {"evaluate": lambda code: failed("not yet")}
    allowed = make_problem(**evaluate, allow_invalid_start=True)
    assert replace(allowed, allow_invalid_start=False).fingerprint == allowed.fingerprint
    assert problem_facts(allowed) == problem_facts(make_problem(**evaluate))


def test_a_valid_initial_program_that_scores_0_is_no_rejected_one():
    worthless = Evaluation(score=0, objective=0, is_valid=True)
    assert check_problem(make_problem(evaluate=lambda code: worthless)) is worthless


def test_a_known_verdict_on_the_initial_program_is_checked_as_a_new_one():
    with pytest.raises(ValueError, match="rejects the initial program: not yet"):
        check_problem(make_problem(seed_evaluation=failed("not yet")))


@pytest.mark.parametrize("mark", [EVALUATOR_FAULT, NO_VERDICT, SANDBOX_FAULT])
def test_an_initial_program_without_a_verdict_is_refused(mark):
    verdict = failed("it broke", artifacts={mark: "it broke"})
    with pytest.raises(ValueError, match="problem 'p', initial program: it broke"):
        check_problem(make_problem(evaluate=lambda code: verdict))


def test_an_evaluator_that_returns_something_else_is_refused():
    with pytest.raises(ValueError, match=r"problem 'p': evaluate returned float; expected an Eval"):
        check_problem(make_problem(evaluate=lambda code: 0.5))
