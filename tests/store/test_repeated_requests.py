"""Requests that a killed process left without an end, and those that a gateway reports again."""

from dataclasses import replace
from decimal import Decimal

import pytest
from rows import call_row

from costada.store.call_log import CallKey
from costada.store.rows import CallStatus

D = Decimal
KEY = CallKey("run", 1, "generation", 1)
SENT = call_row(status=CallStatus.LOST, cost=D(0), bound=D("0.03"), gateway="here", answer="")


def test_a_request_that_a_gateway_reports_again_is_replaced_in_one_transaction(store):
    log = store.call_log
    for gateway in ("here", "", "elsewhere", "here"):
        log.put_call("run", replace(SENT, gateway=gateway))
    log.put_call("run", replace(SENT, status=CallStatus.ERROR, bound=D(0)))
    found = log.repeatable(KEY, {"here"})
    assert [each[:3] for each in found] == [(1, "here", "stand-in"), (4, "here", "stand-in")]
    assert log.repeatable(KEY, set()) == []
    assert (log.lost_through(KEY, {"here"}), log.lost_through(KEY, ())) == (D("0.06"), 0)

    def refuse(bound):
        assert store.ledger.step_cost("run", 1, counts_lost=True) == D("0.09")
        raise ValueError("too much")

    with pytest.raises(ValueError, match="too much"):
        log.put_call("run", SENT, refuse, repeats=1)
    assert store.ledger.step_cost("run", 1, counts_lost=True) == D("0.12")
    done = replace(SENT, status=CallStatus.DONE, cost=D("0.01"), bound=D(0))
    log.put_call("run", done, repeats=1)
    assert store.ledger.step_cost("run", 1, counts_lost=True) == D("0.10")
    assert [each.number for each in log.repeatable(KEY, {"here"})] == [4, 6]


def test_lost_requests_are_summed_by_the_gateway_that_they_went_through(store):
    log, started = store.call_log, replace(SENT, status=CallStatus.STARTED)
    for gateway in ("here", "", "here"):
        log.put_call("run", replace(started, gateway=gateway))
    assert log.mark_lost(KEY) == {"here": D("0.06"), "": D("0.03")}
    assert log.mark_lost(KEY) == {}
