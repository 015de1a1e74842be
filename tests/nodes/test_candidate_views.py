import pytest

from costada.controller.archive import Candidate
from costada.evaluators.contract import EVALUATOR_FAULT, NO_VERDICT, SANDBOX_FAULT, failed
from costada.nodes.candidates import candidate_row, evaluation_of, shown


@pytest.mark.parametrize("mark", [EVALUATOR_FAULT, NO_VERDICT, SANDBOX_FAULT])
def test_marks_stay_out_of_prompts_for_they_repeat_the_error(mark):
    candidate = Candidate(
        id="1.1",
        code="x = 1",
        score=0.0,
        parent_id=None,
        iteration=1,
        generation=1,
        metrics={},
        artifacts={mark: "it broke", "log": "fine"},
        changes="",
        error="it broke",
    )
    assert shown(candidate).artifacts == {"log": "fine"}
    assert shown(candidate).error == "it broke"


@pytest.mark.parametrize(
    ("mark", "evaluator"), [(EVALUATOR_FAULT, ""), (SANDBOX_FAULT, ""), (NO_VERDICT, "print")]
)
def test_only_a_verdict_that_came_of_no_fault_is_kept_for_the_same_program(mark, evaluator):
    verdict = failed("it broke", artifacts={mark: "it broke"})
    assert candidate_row("1.1", 1, "x = 1", verdict, "print").evaluator == evaluator


def test_a_stored_verdict_is_read_back_as_it_was():
    verdict = failed("late", metrics={"n": 2.0}, artifacts={"log": "fine"})
    assert evaluation_of(candidate_row("1.1", 1, "x = 1", verdict, "print")) == verdict


def test_wall_clock_times_stay_out_of_prompts_so_that_prompts_repeat():
    candidate = Candidate(
        id="1.1",
        code="x = 1",
        score=0.5,
        parent_id=None,
        iteration=1,
        generation=1,
        metrics={
            "sum_radii": 1.3,
            "eval_time": 0.2345,
            "execution_time": 0.01,
            "efficiency_score": 0.9,
        },
        artifacts={"log": "fine"},
        changes="",
    )
    assert shown(candidate).metrics == {"sum_radii": 1.3}
    assert shown(candidate).artifacts == {"log": "fine"}
