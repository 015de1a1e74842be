"""The native contract: candidates run apart, a trusted score function judges what they return."""

from dataclasses import replace

import numpy as np
import pytest

from costada.evaluators.problem import Problem, check_problem
from costada.evaluators.sandbox.candidate_results import CandidateResult
from costada.evaluators.sandbox.limits import Limits
from costada.evaluators.sandboxed import SandboxedEvaluator, _marks
from costada.values.evaluation import EVALUATOR_FAULT, NOT_SCORED, SANDBOX_FAULT, Evaluation

pytestmark = pytest.mark.process

DOUBLE = "def double(x):\n    return 2 * x\n"


def worth(output: float) -> Evaluation:
    return Evaluation(score=output / 10, objective=output, is_valid=True)


def make_problem(**fields: object) -> Problem:
    given = {
        "name": "double",
        "task": "Double it.",
        "initial_program": DOUBLE,
        "entry_point": "double",
        "score": worth,
        "arguments": {"x": 3},
        "limits": Limits(wall_seconds=10),
    }
    return Problem(**(given | fields))


def raising(error: Exception) -> object:
    def score(output: object) -> Evaluation:
        raise error

    return score


def test_the_entry_point_gets_the_arguments_and_the_score_what_it_returns():
    evaluation = check_problem(make_problem())
    assert (evaluation.objective, evaluation.score, evaluation.is_valid) == (6, 0.6, True)


def test_what_is_maximised_and_the_time_are_metrics_beside_those_of_the_score():
    def score(output: float) -> Evaluation:
        return replace(worth(output), metrics={"digits": 1, "combined_score": 99})

    evaluation = check_problem(make_problem(score=score))
    assert evaluation.metrics["digits"] == 1
    assert evaluation.metrics["combined_score"] == 0.6
    assert evaluation.metrics["eval_time"] == evaluation.seconds > 0


def test_texts_of_the_score_and_what_the_program_printed_are_artifacts():
    def score(output: float) -> Evaluation:
        return replace(worth(output), artifacts={"feedback": "even"})

    evaluation = make_problem(score=score).evaluate(f"print('hello')\n{DOUBLE}")
    assert evaluation.artifacts == {"feedback": "even", "log": "hello\n"}


def test_several_calls_are_judged_together_failed_ones_among_them():
    def score(results: list[CandidateResult]) -> Evaluation:
        good = [result.output for result in results if result.error is None]
        return replace(worth(sum(good)), metrics={"failures": len(results) - len(good)})

    calls = [{"x": 1}, {"x": 2}, {"x": "no number"}]
    problem = make_problem(score=score, arguments={}, calls=calls)
    evaluation = problem.evaluate("def double(x):\n    return 2 * float(x)\n")
    assert (evaluation.objective, evaluation.metrics["failures"]) == (6, 1)
    assert NOT_SCORED not in evaluation.artifacts


def test_a_program_that_fails_in_every_call_comes_to_no_verdict():
    score = raising(ValueError("no call returned"))
    problem = make_problem(score=score, arguments={}, calls=[{"x": 1}, {"x": 2}])
    evaluation = problem.evaluate("def double(x):\n    raise KeyError(x)\n")
    assert evaluation.error == "no call returned"
    assert "KeyError: 1" in evaluation.artifacts[NOT_SCORED]


def test_a_value_error_of_the_score_rejects_the_candidate_with_its_reason():
    evaluation = make_problem(score=raising(ValueError("too large by 2"))).evaluate(DOUBLE)
    assert (evaluation.error, evaluation.is_valid) == ("too large by 2", False)
    assert EVALUATOR_FAULT not in evaluation.artifacts


class OddError(Exception):
    pass


@pytest.mark.parametrize("error", [KeyError("x"), OddError("x"), MemoryError(), SystemExit(0)])
def test_any_other_error_of_the_score_is_its_fault_and_names_the_line(error):
    evaluation = make_problem(score=raising(error)).evaluate(DOUBLE)
    fault = evaluation.artifacts[EVALUATOR_FAULT]
    assert fault.startswith(f"the score function failed: {type(error).__name__}: ")
    assert "(test_sandboxed.py, line " in fault


def test_an_interruption_passes_through_the_score():
    with pytest.raises(InterruptedError):
        make_problem(score=raising(InterruptedError())).evaluate(DOUBLE)


def test_a_score_that_returns_something_else_is_at_fault():
    with pytest.raises(ValueError, match="the score function returned int; expected an Evaluation"):
        check_problem(make_problem(score=lambda output: 3))


@pytest.mark.parametrize(
    ("program", "expected"),
    [
        ("def double(x):\n    return 1 / 0\n", "initial program: ZeroDivisionError"),
        ("def triple(x):\n    return 3 * x\n", "double"),
        ("def double(x):\n    while True: pass\n", "timeout: the program exceeded 0.3 s"),
        ("def double(x) return x", "SyntaxError"),
        ("def double(x):\n    import os\n    os._exit(0)\n", "ended its process"),
    ],
)
def test_an_initial_program_that_returns_nothing_is_refused(program, expected):
    seconds = 0.3 if "timeout" in expected else 60
    problem = make_problem(initial_program=program, limits=Limits(wall_seconds=seconds))
    with pytest.raises(ValueError, match=expected):
        check_problem(problem)


def test_a_mistake_of_the_score_that_looks_like_a_rejection_is_refused_with_its_last_line():
    def unpacking(output: float) -> Evaluation:
        width, height = np.ones(3)
        return worth(width * height)

    with pytest.raises(ValueError) as refused:
        check_problem(make_problem(score=unpacking))
    told = str(refused.value)
    assert "rejects the initial program: ValueError: too many values to unpack" in told
    assert "(test_sandboxed.py, line " in told
    allowed = make_problem(score=unpacking, allow_invalid_start=True)
    assert str(check_problem(allowed).error).startswith("too many values to unpack")


@pytest.mark.parametrize(
    ("verdict", "reason"),
    [
        ({"score": float("nan"), "objective": 1.0, "is_valid": True}, "score is nan"),
        ({"score": 1.0, "objective": float("inf"), "is_valid": True}, "objective is inf"),
        ({"score": 1.0, "objective": 1.0, "is_valid": False, "error": "no"}, "score is 1.0"),
    ],
)
def test_a_verdict_that_no_evaluator_can_mean_is_its_fault(verdict, reason):
    problem = make_problem(score=lambda output: Evaluation(**verdict), allow_invalid_start=True)
    assert problem.evaluate(DOUBLE).artifacts[EVALUATOR_FAULT].startswith(reason)
    with pytest.raises(ValueError, match=f"initial program: {reason}"):
        check_problem(problem)


def test_a_fault_of_the_sandbox_is_marked_though_the_score_accepts_what_came():
    lost = CandidateResult(None, "the process is gone", "", 0.0, is_sandbox_fault=True)
    results = [CandidateResult(1.0, None, "", 0.0), lost]
    assert _marks(worth(1.0), results) == {SANDBOX_FAULT: "the process is gone"}


def test_limits_and_layer_of_the_problem_hold_when_it_is_changed():
    changed = replace(make_problem(), limits=Limits(wall_seconds=0.3), sandbox="process")
    evaluation = changed.evaluate("def double(x):\n    while True: pass\n")
    assert evaluation.error == "timeout: the program exceeded 0.3 s"
    assert isinstance(changed.evaluate, SandboxedEvaluator)
    assert changed.evaluate.layer == "process"


def test_arrays_texts_and_nested_values_can_be_arguments():
    values = [np.ones((2, 3)), np.int64(3), "text", {"a": [1.5, None, (True, 2)]}]
    problem = make_problem(
        score=lambda output: worth(output), arguments={"x": values}, entry_point="size"
    )
    program = "def size(x):\n    return x[0].sum() + x[1] + len(x[2]) + x[3]['a'][2][1]\n"
    assert problem.evaluate(program).objective == 6 + 3 + 4 + 2
