"""Data sets: what is read and refused, and how candidates are judged on examples."""

import json
import threading
from math import inf
from pathlib import Path
from typing import Any

import pytest

from costada.evaluators.data_set import DataSet
from costada.evaluators.folders import load_folder
from costada.evaluators.problem import Problem, check_problem
from costada.values.candidate import Program
from costada.values.evaluation import COMBINED_SCORE, EVALUATOR_FAULT, NOT_SCORED
from costada.values.example_score import scores_by_place

WORDS = [{"word": f"w{number:02}."} for number in range(40)]
EVERY = " ".join(each["word"] for each in WORDS)


def score_example(text, example):
    """Whether the text has the word of an example."""
    is_there = example["word"] in text
    return {COMBINED_SCORE: is_there, "words": len(text.split()), "feedback": example["word"]}


def words(**changes: Any) -> Problem:
    fields: dict[str, Any] = {
        "name": "words",
        "task": "Say all words.",
        "initial_program": "w00.",
        "language": "Markdown",
        "score_example": score_example,
        "examples": WORDS,
    }
    return Problem(**(fields | changes))


def judged(text: str, problem: Problem | None = None, **known: Any) -> Any:
    return (problem or words()).evaluate_program(Program.of(text), "key", **known)


def test_a_candidate_is_judged_on_every_example_and_each_score_is_kept():
    found = judged("w03. w07.")
    assert found.score == found.objective == 2 / 40
    assert sorted(each.place for each in found.examples) == list(range(40))
    assert {each.place for each in found.examples if each.score} == {3, 7}
    assert {each.feedback for each in found.examples} == {each["word"] for each in WORDS}
    assert found.metrics["words"] == 2
    assert found.metrics[COMBINED_SCORE] == found.score
    assert found.validation == ()


def test_the_order_is_random_but_the_same_for_a_program_and_the_secret_of_a_run():
    problem = words()
    orders = [
        [each.place for each in problem.evaluate_program(Program.of(text), key).examples]
        for text, key in [("w01.", "key"), ("w01.", "key"), ("w02.", "key"), ("w01.", "other")]
    ]
    assert orders[0] == orders[1] != orders[2] != list(range(40))
    assert orders[0] != orders[3]


def test_a_failure_on_some_examples_scores_0_there_with_its_reason():
    def score(text, example):
        if example["word"] == "w05.":
            raise ValueError("no answer")
        return 1

    found = judged("text", words(score_example=score))
    assert found.score == 39 / 40
    (failed,) = [each for each in found.examples if each.score == 0]
    assert failed == (5, 0.0, "no answer")


def test_a_candidate_that_fails_on_all_of_the_first_examples_has_failed():
    asked = []

    def score(text, example):
        asked.append(example)
        raise ValueError("not a prompt")

    found = judged("text", words(score_example=score))
    assert (found.is_valid, found.error, len(asked)) == (False, "not a prompt", 8)
    assert found.examples == ()


@pytest.mark.parametrize(
    ("answer", "words_of_fault"),
    [
        (1.5, "score_example returned 1.5 for the example"),
        (-0.1, "expected a score in [0, 1]"),
        ("good", "score_example returned 'good'; expected a number, a dict with combined_score"),
        ({"accuracy": 1.0}, "expected a number, a dict with combined_score"),
        (None, "score_example returned None"),
    ],
)
def test_an_answer_that_is_no_score_is_the_evaluators_fault(answer, words_of_fault):
    found = judged("text", words(score_example=lambda text, example: answer))
    assert words_of_fault in found.artifacts[EVALUATOR_FAULT]


def test_a_candidate_that_clearly_loses_its_race_is_judged_on_few_examples():
    rival = scores_by_place(judged(EVERY).examples)
    asked = []

    def score(text, example):
        asked.append(example)
        return score_example(text, example)

    found = judged("nothing", words(score_example=score), rival=rival)
    assert found.is_valid
    # The rival has full scores, so one miss is enough; eight are judged at once.
    assert len(found.examples) == len(asked) == 8
    assert found.score == 0.0


def test_a_rejected_candidate_gets_the_rivals_mean_and_the_difference_on_what_both_have():
    rival = (0.75,) * 40
    found = judged("nothing", words(score_example=lambda text, example: 0.25), rival=rival)
    assert 8 <= len(found.examples) < 40
    assert found.score == pytest.approx(0.25)
    assert found.score < 0.75


def test_a_better_candidate_is_judged_on_all_examples():
    rival = scores_by_place(judged("w00. w01.").examples)
    found = judged(EVERY, rival=rival)
    assert (len(found.examples), found.score) == (40, 1.0)


def test_no_candidate_is_rejected_early_without_a_racing_error():
    found = judged("nothing", words(racing_error=0.0), rival=(1.0,) * 40)
    assert (len(found.examples), found.score) == (40, 0.0)


def test_only_a_new_best_is_judged_on_the_validation_examples():
    problem = words(validation=[{"word": "w01."}, {"word": "w99."}])
    assert judged("w01.", problem, incumbent=0.5).validation == ()
    assert judged("w01.", problem).validation == ()
    assert judged("w01.", problem, incumbent=0.0).validation == (1.0, 0.0)
    assert check_problem(problem).validation == (0.0, 0.0)


def test_examples_of_a_batch_are_judged_at_the_same_time():
    together = threading.Barrier(5, timeout=30)

    def score(text, example):
        together.wait()  # breaks unless five are here at once
        return 1.0

    assert judged("text", words(score_example=score, batch=5)).score == 1.0


def test_a_batch_of_one_judges_one_after_the_other():
    lock = threading.Lock()

    def score(text, example):
        assert lock.acquire(blocking=False)
        lock.release()
        return 1.0

    assert judged("text", words(score_example=score, batch=1)).score == 1.0


DOUBLE = "def double(number):\n    return 2 * number\n"


def called(**changes: Any) -> Problem:
    numbers = [{"inputs": {"number": number}, "answer": 2 * number} for number in range(10)]
    fields: dict[str, Any] = {
        "language": "Python",
        "initial_program": DOUBLE,
        "entry_point": "double",
        "examples": numbers,
        "score_example": lambda output, example: output == example["answer"],
    }
    return words(**(fields | changes))


@pytest.mark.process
def test_an_entry_point_is_called_with_the_inputs_of_each_example():
    assert judged(DOUBLE, called()).score == 1.0
    found = judged(DOUBLE.replace("2 * number", "1 // number"), called())
    # 1 // 1 is no 2, and the call with 0 fails: its error is the feedback there.
    assert found.score == 0.0
    (feedback,) = [each.feedback for each in found.examples if each.place == 0]
    assert "ZeroDivisionError" in feedback


@pytest.mark.process
def test_a_program_that_cannot_be_loaded_has_failed():
    found = judged("def double(number):\n    return (", called())
    assert not found.is_valid
    assert "SyntaxError" in found.artifacts[NOT_SCORED]


REFUSED = [
    ({"examples": ()}, "score_example is"),
    ({"examples": (), "score_example": None, "score": len, "validation": WORDS}, "examples is"),
    ({"score_example": None}, "but score_example is None; expected the function that judges"),
    ({"score": len}, "and score_example is <function score_example at"),
    ({"examples": [1]}, "examples[0] is 1; expected a dict"),
    ({"examples": [{"a": object}]}, "expected plain data"),
    ({"examples": [{"a": float("nan")}]}, "expected plain data"),
    ({"examples": "abc"}, "examples is 'abc'; expected a list of dicts"),
    ({"validation": [{1: 2}]}, "validation[0] is {1: 2}; expected a dict with strings as keys"),
    ({"racing_error": 1.0}, "racing_error is 1.0; expected a number of at least 0 and below 1"),
    ({"batch": 0}, "batch is 0; expected an integer of at least 1"),
    ({"repeats": 2}, "repeats is 2, but there are examples; expected none"),
    ({"objectives": ["a:max", "b:min"]}, "but there are examples; expected none"),
    ({"reference": 2.0}, "reference is 2.0, but there are examples; expected none"),
]


@pytest.mark.parametrize(("changes", "refusal"), REFUSED)
def test_what_a_data_set_refuses(changes, refusal):
    with pytest.raises(ValueError) as refused:
        words(**changes)
    assert refusal in str(refused.value)


def test_examples_of_called_programs_need_inputs():
    with pytest.raises(ValueError, match=r"examples\[0\]\['inputs'\] is None; expected a dict"):
        called(examples=[{"answer": 1}])
    with pytest.raises(ValueError, match="the name of a keyword argument"):
        called(examples=[{"inputs": {"no name": 1}}])


def test_fingerprints_tell_data_sets_apart():
    same, other = words().fingerprint, words(examples=WORDS[:39]).fingerprint
    assert words().fingerprint == same != other
    assert words(racing_error=0.2).fingerprint != same
    # Races may end after each batch, so its size decides who is rejected.
    assert words(batch=2).fingerprint != same
    assert DataSet(WORDS).digest == DataSet.of("examples", list(WORDS)).digest


EVALUATOR = """
def score_example(text, example):
    return {"combined_score": example["word"] in text, "feedback": "say " + example["word"]}
"""


def folder_of(path: Path, evaluator: str = EVALUATOR, **files: str) -> Path:
    known = {
        "problem.toml": 'program = "prompt.md"\nexamples = "train.jsonl"\nvalidation = "v.jsonl"\n',
        "problem.md": "Say all words.",
        "prompt.md": "w00.",
        "train.jsonl": "\n".join(map(json.dumps, WORDS)),
        "v.jsonl": '{"word": "w77."}\n\n',
        "evaluator.py": evaluator,
    }
    for name, text in (
        known | {key.replace("_", "."): text for key, text in files.items()}
    ).items():
        (path / name).write_text(text)
    return path


def test_a_folder_is_read_with_its_data(tmp_path):
    problem = load_folder(folder_of(tmp_path))
    assert (len(problem.examples), len(problem.validation)) == (40, 1)
    found = judged("w00. w77.", problem, incumbent=-inf)
    assert (found.score, found.validation) == (1 / 40, (1.0,))
    assert {each.feedback for each in found.examples} >= {"say w00."}


@pytest.mark.parametrize(
    ("files", "refusal"),
    [
        ({"train_jsonl": '{"word": "a"}\n{"word"'}, "train.jsonl, line 2:"),
        ({"train_jsonl": "[1]"}, "train.jsonl, line 1 is [1]; expected a dict"),
        ({"train_jsonl": "\n"}, "train.jsonl: holds no example"),
        ({"problem_toml": 'program = "prompt.md"\n'}, "examples is missing; needed where"),
        (
            {"problem_toml": 'program = "prompt.md"\nvalidation = "v.jsonl"\n'},
            "examples is missing; needed where validation is given",
        ),
        (
            {"problem_toml": 'program = "prompt.md"\nexamples = "no.jsonl"\n'},
            "no.jsonl: does not exist",
        ),
        (
            {"problem_toml": 'program = "prompt.md"\nexamples = "../x.jsonl"\n'},
            "../x.jsonl: does not exist",
        ),
    ],
)
def test_what_a_folder_with_data_refuses(tmp_path, files, refusal):
    with pytest.raises(ValueError) as refused:
        load_folder(folder_of(tmp_path, **files))
    assert refusal in str(refused.value)


def test_score_example_takes_two_arguments(tmp_path):
    folder = folder_of(tmp_path, "def score_example(text):\n    return 1\n")
    with pytest.raises(ValueError, match=r"expected score_example\(output, example\)"):
        load_folder(folder)
