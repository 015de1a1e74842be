"""A provider's bill settles exactly the requests that it can say something about."""

from decimal import Decimal
from math import inf

import pytest
from rows import call_row

from costada.models.provider_bills import Bill, BilledUsage
from costada.runs.reconciliation import Billed, SentCall, is_model, reconcile
from costada.store.call_log import CallKey
from costada.store.rows import CallStatus
from costada.values.usage import NO_TOKENS, Usage

DOLLAR = Decimal(1)


def sent(ticket, *, at=1000.0, **facts):
    """A request that was sent and answered at a time; with a bound, its process died."""
    is_lost = "bound" in facts
    own = {"status": CallStatus.LOST, "cost": Decimal(0), "usage": NO_TOKENS, "provider_id": None}
    known = {"provider_id": f"id-{ticket}", "cost": Decimal("0.002"), "usage": Usage(1000, 500)}
    row = call_row(
        ticket=ticket, ended_at=at, seconds=0.0, **{**(own if is_lost else known), **facts}
    )
    return SentCall(CallKey("run", ticket, "generation", 1), 1, row)


def line(request_id, *, at=1000.0, dollars="0.002", model="stand-in"):
    return BilledUsage(request_id, model, at, at, Usage(10, 5), Decimal(dollars))


def joined(lines, calls, since=-inf, until=inf):
    return reconcile(Bill("of a test", lines), calls, since, until)


def test_a_request_without_a_line_was_not_billed():
    known, lost = sent(1), sent(2, bound=DOLLAR)
    found = joined([line("id-1")], [known, lost])
    assert found.settled == {lost: Billed(Decimal(0))}
    assert (found.known, found.unexplained, found.in_doubt, found.differing) == (1, [], {}, [])


def test_a_lost_request_gets_the_dearest_line_that_can_be_its_own():
    lost = sent(1, bound=DOLLAR)
    cheap, own = line("a", dollars="0.1"), line("b", dollars="0.9")
    others = [
        line("early", at=800.0),
        line("late", at=5000.0),
        line("dear", dollars="1.1"),
        line("other", model="another"),
    ]
    found = joined([cheap, own, *others], [lost])
    assert found.settled == {lost: Billed(Decimal("0.9"), "b", Usage(10, 5))}
    assert found.unexplained == [cheap, *others]


def test_several_lost_requests_share_the_lines_of_most_dollars():
    # The first can only have the line in the middle, which is also the second's dearest.
    first, second = sent(1, at=0.0, bound=DOLLAR), sent(2, at=3500.0, bound=DOLLAR)
    middle, late = line("m", at=3600.0, dollars="0.5"), line("l", at=7000.0, dollars="0.3")
    found = joined([middle, late], [first, second])
    assert {call: each.request_id for call, each in found.settled.items()} == {
        first: "m",
        second: "l",
    }


def test_what_the_export_does_not_cover_stays_in_doubt():
    lost = sent(1, at=1000.0, bound=DOLLAR)
    begins, ends = 1000.0 - 120, 1000.0 + 3600 + 120
    assert joined([line("x", at=0.0)], [lost], begins, ends).settled
    late = joined([line("x", at=0.0)], [lost], begins + 1, ends)
    assert late.in_doubt == {lost: "the export begins after it was sent"}
    early = joined([line("x", at=0.0)], [lost], begins, ends - 1)
    assert "ends before the last moment" in early.in_doubt[lost]


def test_estimates_become_what_was_billed_and_other_differences_are_told():
    estimated, other = sent(1, is_estimated=True), sent(2)
    found = joined([line("id-1", dollars="0.5"), line("id-2", dollars="0.003")], [estimated, other])
    assert found.settled == {estimated: Billed(Decimal("0.5"), "id-1", Usage(10, 5))}
    assert found.differing == [(other, Decimal("0.003"))]


def used(inputs, outputs, model="stand-in"):
    return BilledUsage("", model, 0.0, 86_400.0, Usage(inputs, outputs))


def test_spans_settle_what_known_requests_leave():
    # 1,000 + 500 tokens at $1 and $2 per million: $0.002 for the known request.
    known, first, second = sent(1), sent(2, bound=Decimal("0.003")), sent(3, bound=DOLLAR)
    nothing = joined([used(400, 100), used(600, 400)], [known, first, second], 0.0, 86_400.0)
    assert nothing.settled == {first: Billed(Decimal(0)), second: Billed(Decimal(0))}
    more = joined([used(3000, 1500)], [known, first, second], 0.0, 86_400.0)
    assert more.settled == {first: Billed(Decimal("0.003")), second: Billed(Decimal("0.001"))}


@pytest.mark.parametrize(
    ("billed", "reason"),
    [
        (used(999, 500), "fewer tokens of the model than the ledger"),
        (used(1000, 400_000), "others have used the model"),
    ],
)
def test_spans_that_do_not_fit_settle_nothing(billed, reason):
    known, lost = sent(1), sent(2, bound=Decimal("0.5"))
    found = joined([billed], [known, lost], 0.0, 86_400.0)
    assert not found.settled
    assert reason in found.in_doubt[lost]


def test_a_span_says_nothing_beside_estimates_or_of_a_part_of_the_run():
    lost = sent(2, bound=DOLLAR)
    beside = joined([used(1000, 500)], [sent(1, is_estimated=True), lost], 0.0, 86_400.0)
    assert "are estimates" in beside.in_doubt[lost]
    outside = joined([used(1000, 500)], [sent(1, at=-1.0), lost], 0.0, 86_400.0)
    assert "begins after it was sent" in outside.in_doubt[lost]


def test_a_cached_answer_is_no_request():
    cached = sent(1, is_cache_hit=True)
    assert joined([line("id-1")], [cached]).unexplained == [line("id-1")]


@pytest.mark.parametrize(
    ("billed", "asked", "is_same"),
    [
        ("gpt-5-mini", "gpt-5-mini", True),
        ("gpt-5-mini-2025-08-07", "gpt-5-mini", True),
        ("claude-haiku-4-5-20251001", "claude-haiku-4-5", True),
        ("gpt-5-mini", "gpt-5", False),
        ("gpt-5-mini", "gpt-5-mini-2025-08-07", False),
    ],
)
def test_bills_name_models_with_their_dates(billed, asked, is_same):
    assert is_model(billed, asked) is is_same
