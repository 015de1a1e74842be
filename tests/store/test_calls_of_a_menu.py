"""What came of the calls to each model of a menu: a call belongs to the last model it asked."""

from dataclasses import replace
from decimal import Decimal

import pytest
from rows import call_row

from costada.store.call_log import CallFilter, CallKey
from costada.store.rows import CallStatus, Outcome, OutcomeKind

KEY = CallKey("run", 1, "generation", 1)
FIRST, SECOND = CallFilter(entry="first"), CallFilter(entry="second")


@pytest.fixture
def log(store):
    """Of the only call, the first model gave an answer without text, and the second one made it."""
    for entry in ("first", "second"):
        store.call_log.put_call("run", call_row(entry=entry))
    return store.call_log


@pytest.mark.parametrize("kind", [OutcomeKind.ANSWER, OutcomeKind.TIMEOUT, OutcomeKind.NO_PROTOCOL])
def test_an_outcome_is_that_of_the_model_that_was_asked_last(log, kind):
    assert (log.last_kind("run", FIRST), log.last_kind("run", SECOND)) == (None, None)
    log.put_outcome(KEY, Outcome("", "text", kind))
    assert (log.last_kind("run", FIRST), log.last_kind("run", SECOND)) == (None, kind)
    assert log.last_kind("run") is kind
    is_answer = kind is OutcomeKind.ANSWER
    assert (log.has_answer("run", FIRST), log.has_answer("run", SECOND)) == (False, is_answer)
    assert log.has_answer("run") is is_answer


def test_an_answer_without_counts_is_known_until_it_is_charged(log):
    row = replace(call_row(entry="first"), status=CallStatus.UNCOUNTED, bound=Decimal("0.1"))
    log.put_call("run", replace(row, ticket=2))
    assert (log.has_uncounted("run", FIRST), log.has_uncounted("run", SECOND)) == (True, False)
    log.settle_call("run", replace(row, ticket=2, status=CallStatus.DONE))
    assert not log.has_uncounted("run", FIRST)
