"""Programs that remember published answers are found by inputs held out from them."""

from dataclasses import replace

import pytest

from costada.evaluators.problem import Problem
from costada.evaluators.problem_fields import Holdout
from costada.evaluators.sandboxed import holdout_seed, new_key
from costada.values.candidate import Program
from costada.values.evaluation import EVALUATOR_FAULT, Evaluation

pytestmark = pytest.mark.process

SQUARE = "def square(x):\n    return x * x\n"
TABLE = "def square(x):\n    return {2: 4, 3: 9}.get(x, 0)\n"
FAILING = "def square(x):\n    return {2: 4, 3: 9}[x]\n"


def share_right(results, numbers):
    right = [result.output == x * x for result, x in zip(results, numbers, strict=True)]
    return Evaluation(score=sum(right) / len(right), objective=None, is_valid=True)


def drawn(seed):
    return [5 + seed % 100, 7 + seed % 1000]


def squares(**changed):
    holdout = Holdout(
        calls=lambda seed: [{"x": x} for x in drawn(seed)],
        score=lambda results, seed, published: share_right(results, drawn(seed)),
        margin=0.5,
    )
    return Problem(
        name="squares",
        task="Square a number.",
        initial_program=SQUARE,
        entry_point="square",
        score=lambda results: share_right(results, [2, 3]),
        calls=[{"x": 2}, {"x": 3}],
        holdout=replace(holdout, **changed),
    )


def test_the_seed_depends_on_key_and_program_and_on_nothing_else():
    assert holdout_seed("key", SQUARE) == holdout_seed("key", SQUARE)
    seeds = {holdout_seed(key, code) for key in ("key", "kez") for code in (SQUARE, TABLE)}
    assert len(seeds) == 4
    assert len({new_key() for _ in range(9)}) == 9


@pytest.mark.parametrize(("code", "margin"), [(SQUARE, 0.5), (TABLE, 1.0)])
def test_a_method_and_a_fall_of_just_the_margin_keep_their_score(code, margin):
    assert squares(margin=margin).evaluate_program(Program.of(code), "key").score == 1


SQUARE_FILES = {"pkg/main.py": "from pkg.table import square", "pkg/table.py": SQUARE}


def test_the_second_look_of_several_files_depends_on_each_of_them_and_not_on_their_order():
    seen = []
    problem = squares(calls=lambda seed: seen.append(seed) or [{"x": x} for x in drawn(seed)])
    problem = replace(problem, initial_program=SQUARE_FILES, entry_point="pkg.main:square")
    turned = dict(reversed(SQUARE_FILES.items()))
    other = {**SQUARE_FILES, "pkg/table.py": f"{SQUARE}# or not"}
    remembering = {**SQUARE_FILES, "pkg/table.py": TABLE}
    verdicts = [
        problem.evaluate_program(Program.of(each), "key") for each in (SQUARE_FILES, turned, other)
    ]
    assert [verdict.score for verdict in verdicts] == [1, 1, 1]
    assert seen[0] == seen[1] != seen[2]
    assert "and 0 on others" in problem.evaluate_program(Program.of(remembering), "key").error
    assert problem.evaluate_program(Program.of(SQUARE_FILES), "kez").score == 1
    assert len(set(seen)) == 4


def test_remembered_answers_are_rejected_with_both_scores():
    evaluation = squares().evaluate_program(Program.of(TABLE), "key")
    assert (evaluation.score, evaluation.is_valid) == (0, False)
    assert "scores 1 on the published inputs and 0 on others of the same kind" in evaluation.error


def test_a_program_that_fails_on_other_inputs_is_rejected_with_its_error():
    def score(results, seed, published):
        if results[0].error is not None:
            raise ValueError(results[0].error)
        return share_right(results, drawn(seed))

    assert "KeyError" in squares(score=score).evaluate_program(Program.of(FAILING), "key").error


def test_a_fault_of_the_second_score_function_is_the_evaluators():
    def score(results, seed, published):
        raise TypeError("broken")

    evaluation = squares(score=score).evaluate_program(Program.of(SQUARE), "key")
    assert "broken" in evaluation.artifacts[EVALUATOR_FAULT]


def test_the_time_of_both_looks_counts():
    slow = "import time\ndef square(x):\n    time.sleep(0.05)\n    return x * x\n"
    assert squares().evaluate_program(Program.of(slow), "key").seconds >= 0.2


def test_a_second_look_is_part_of_the_fingerprint():
    found = {squares().fingerprint, squares(margin=0.4).fingerprint}
    assert len(found | {squares(calls=lambda seed: [{"x": 1}]).fingerprint}) == 3
    assert squares().fingerprint in found
