from typing import Any

import pytest
from page_runs import step

from costada.reports.page.failures import Failure, failures_of, kind_of
from costada.store.history import PastCall, PastCandidate, PastFailure
from costada.store.rows import CallStatus, OutcomeKind


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ("timeout: the program exceeded 5 s", "ran out of time"),
        ("the program held more than 512 MB of memory", "ran out of memory"),
        ("MemoryError", "ran out of memory"),
        ("the program was killed by SIGSEGV before it returned", "was killed"),
        ("the program ended its process (exit status 1) before it returned", "ended its process"),
        ("malformed answer: it is incomplete; ...", "gave no answer"),
        (
            'File "candidate.py", line 3\n    f(\n     ^\nSyntaxError: expected',
            "raised SyntaxError",
        ),
        ("Traceback\nKeyError: 1\n\nThe above\nTypeError: no", "raised TypeError"),
        ("centers has shape (25, 2); expected (26, 2)", "refused by the evaluator"),
        ("<script>alert(1)</script>Error: boo", "refused by the evaluator"),
        ("MyOwnError: boo", "refused by the evaluator"),
        ("", "refused by the evaluator"),
    ],
)
def test_a_failed_program_is_sorted_by_what_its_error_says(error, kind):
    assert kind_of(error) == kind


def test_marks_of_the_sandbox_and_the_evaluator_come_before_the_error():
    assert kind_of("TypeError: no", ["sandbox_fault"]) == "the sandbox broke down"
    assert kind_of("TypeError: no", ["evaluator_fault", "log"]) == "the evaluator failed"


def past_call(iteration: int, status: CallStatus, error: str | None) -> PastCall:
    none: Any = 0
    return PastCall(iteration, "generation", 1, 1, status, none, none, "", "", {"error": error})


def past_candidate(name: str, **facts: Any) -> PastCandidate:
    return PastCandidate(name, int(name.split(".")[0]), "", {"is_valid": True, **facts})


def test_every_failure_is_told_once_with_its_place_and_iteration():
    found = failures_of(
        calls=[past_call(1, CallStatus.ERROR, "RateLimitError"), past_call(3, CallStatus.DONE, "")],
        candidates=[
            past_candidate("2.1", is_valid=False, error="TypeError: no"),
            past_candidate("2.2"),
            past_candidate("2.1>1@15", is_valid=False, error="TypeError: no", is_copy=True),
        ],
        outcomes=[
            PastFailure(1, "generation", 1, OutcomeKind.FAILURE, "RateLimitError"),
            PastFailure(4, "generation", 1, OutcomeKind.REFUSAL, "status 400"),
        ],
        tactics=[(4, {"tactics": []}), (5, {"tactics": [{}]})],
        steps=[
            step(1, failure="RateLimitError"),
            step(2, attempts=2),
            step(3, attempts=1, failure="The answer is empty."),
            step(4, failure="status 400"),
        ],
    )
    assert found == [
        Failure(1, 1, "Model", "request failed", "RateLimitError"),
        Failure(2, 1, "Program", "raised TypeError", "TypeError: no"),
        Failure(3, 1, "Answer", "no program in the answer", "The answer is empty."),
        Failure(4, 0, "Answer", "no tactic in the guide's answer", ""),
        Failure(4, 1, "Model", "request refused", "status 400"),
    ]


def test_the_reason_of_an_earlier_attempt_without_a_program_is_not_known():
    found = failures_of([], [past_candidate("1.2")], [], [], [step(1, attempts=2)])
    assert found == [Failure(1, 1, "Answer", "no program in the answer", "")]


def test_a_long_reason_is_told_by_its_beginning():
    found = failures_of([], [past_candidate("1.1", is_valid=False, error="x" * 900)], [], [], [])
    assert found[0].text == "x" * 300
