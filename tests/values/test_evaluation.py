from dataclasses import FrozenInstanceError

import pytest

from costada.values.evaluation import Evaluation, failed


def test_a_failed_evaluation_scores_zero_and_cannot_be_changed():
    evaluation = failed("overlap", seconds=2.0)
    assert (evaluation.score, evaluation.objective, evaluation.is_valid) == (0.0, None, False)
    assert (evaluation.error, evaluation.seconds) == ("overlap", 2.0)
    with pytest.raises(FrozenInstanceError):
        evaluation.score = 1.0


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"score": float("nan"), "is_valid": True}, "score is nan; expected a finite number"),
        (
            {"score": 1.0, "objective": float("inf"), "is_valid": True},
            "objective is inf; expected a finite number",
        ),
        ({"score": 1.0, "is_valid": True, "error": "no"}, "expected None for a valid candidate"),
        ({"score": 0.0, "is_valid": False}, "expected a reason for a failed candidate"),
        ({"score": 1.0, "is_valid": False, "error": "no"}, "expected 0 for a failed candidate"),
    ],
)
def test_a_contradictory_evaluation_is_refused(fields, expected):
    with pytest.raises(ValueError, match=expected):
        Evaluation(**({"objective": None} | fields))


def test_numbers_and_texts_of_an_evaluation_can_be_stored_and_sent():
    evaluation = failed("no \ud800", metrics={"n": float("nan")}, artifacts={"log\udfff": "\ud83d"})
    assert (evaluation.error, evaluation.artifacts) == ("no ?", {"log?": "?"})
    assert evaluation.metrics == {"n": 0.0}
