"""Programs of the simulated landscape: what the evaluator accepts and the model writes."""

import pytest

from costada.evaluators.registry import is_built_in, problem, problem_names
from costada.experiments.landscape.landscape import Outcome
from costada.experiments.landscape.problem import (
    SeenProgram,
    evaluate,
    program_text,
    read_program,
    with_outcome,
)
from costada.prompts.replies import Proposal, parse_program

SEED = problem("landscape").initial_program


def test_the_landscape_is_a_problem_but_no_benchmark():
    assert problem("landscape").name == "landscape"
    assert is_built_in("landscape")
    assert "landscape" not in problem_names()


def test_the_quality_is_the_score():
    verdict = evaluate(program_text(3, "0.7125", 99))
    assert verdict.is_valid
    assert verdict.score == verdict.objective == 0.7125


def test_the_initial_program_scores_what_that_of_circle_packing_does():
    assert evaluate(SEED).score == 0.3642


@pytest.mark.parametrize("quality", ["broken", "1.0000", "0.5", "-0.5000", "0.12345", "1e-1"])
def test_a_quality_in_another_form_fails_and_is_named(quality):
    verdict = evaluate(program_text(3, quality, 1))
    assert not verdict.is_valid
    assert verdict.score == 0
    assert verdict.error == (f"quality: got {quality!r}, expected 0.0000 to 0.9999, four decimals")


@pytest.mark.parametrize(
    "code",
    [
        "",
        SEED + "import os\n",
        SEED.replace("search()", "os.remove('x')"),
        SEED.replace("variant=0", "variant=x"),
        SEED.replace("approach_0", "approach_100"),
        SEED.replace("variant=0)", "variant=0) + 1"),
    ],
)
def test_a_program_of_another_form_fails(code):
    assert evaluate(code).error.startswith("program: expected the initial one")


def test_the_model_reads_and_writes_what_the_evaluator_accepts():
    code = with_outcome(SEED, Outcome(5, 0.8), 77)
    assert code == program_text(5, "0.8000", 77)
    assert read_program(code) == SeenProgram(5, 0.8)


def test_a_failing_program_is_refused_by_the_evaluator():
    code = with_outcome(SEED, Outcome(5, None), 77)
    assert evaluate(code).error.startswith("quality: got 'broken'")


def test_a_text_without_a_call_is_no_program():
    assert read_program("def solution():\n    return 0\n") is None


def test_an_answer_is_parsed_to_exactly_the_program_in_it():
    code = program_text(5, "0.8000", 77)
    read = parse_program(f"Simulated answer.\n\n```python\n{code}```\n", SEED, "solution")
    assert isinstance(read, Proposal)
    assert read.code == code
