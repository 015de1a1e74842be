"""A provider's bill settles exactly the requests that it can say something about."""

from dataclasses import replace
from decimal import Decimal
from math import inf

import pytest
from rows import call_row

from costada.models.provider_bills import Bill, BilledUsage
from costada.runs.reconciliation import BILL, Billed, SentCall, reconcile, undated
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
    known, lost = sent(1, at=1000.0), sent(2, at=1000.0, bound=DOLLAR)
    begins, ends = 1000.0 - 120, 1000.0 + 3600 + 120
    assert joined([line("id-1")], [known, lost], begins, ends).settled
    # Its own line may be outside, so one that fits does not settle it either.
    for lines in ([line("id-1")], [line("id-1"), line("x", dollars="0.1")]):
        late = joined(lines, [known, lost], begins + 1, ends)
        assert late.in_doubt == {lost: "the export begins after it was sent"}
        early = joined(lines, [known, lost], begins, ends - 1)
        assert "ends before the last moment" in early.in_doubt[lost]


def test_an_answer_to_a_request_that_timed_out_is_billed_up_to_an_hour_later():
    known = sent(1)
    timed_out = sent(2, at=1000.0, bound=DOLLAR, status=CallStatus.ERROR)
    found = joined([line("id-1"), line("late", at=4600.0)], [known, timed_out])
    assert found.settled[timed_out].request_id == "late"
    uncounted = sent(2, at=1000.0, bound=DOLLAR, status=CallStatus.UNCOUNTED)
    found = joined([line("id-1"), line("late", at=1121.0)], [known, uncounted])
    assert found.settled[uncounted] == Billed(Decimal(0))


@pytest.mark.parametrize(
    ("lines", "answered", "reason"),
    [
        ([line("x", model="another")], [], "no known request to its model"),
        ([line("id-3", model="another")], [sent(3, model="another")], "no known request to its"),
        ([line("id-3")], [sent(3), sent(4)], "lacks an answered request to its model"),
        ([line("id-3"), line("x", dollars="0.1")], [sent(3), sent(4)], "lacks an answered request"),
        ([line("id-3"), line("x", dollars="1.1")], [sent(3)], "cost more than its bound"),
    ],
)
def test_an_export_that_cannot_be_complete_settles_nothing(lines, answered, reason):
    lost = sent(2, bound=DOLLAR)
    found = joined(lines, [*answered, lost])
    assert found.settled == {}
    assert reason in found.in_doubt[lost]


def test_known_requests_show_what_a_bill_calls_a_model():
    known, lost = sent(1, model="alias"), sent(2, model="alias", bound=DOLLAR)
    found = joined([line("id-1", model="real"), line("x", model="real")], [known, lost])
    assert found.settled[lost].request_id == "x"


def copy_of(call):
    """The request in a fork of its run."""
    return SentCall(call.key._replace(run_id="fork"), call.number, call.row)


def test_a_fork_is_settled_as_the_run_that_it_copied():
    known, lost = sent(1), sent(2, bound=DOLLAR)
    calls = [known, lost, copy_of(known), copy_of(lost)]
    lines = [line("id-1"), line("own", dollars="0.9"), line("theirs", dollars="0.1")]
    found = joined(lines, calls)
    own = Billed(Decimal("0.9"), "own", Usage(10, 5))
    assert found.settled == {lost: own, copy_of(lost): own}
    assert found.unexplained == [lines[2]]
    # The original was settled before: nothing is left that the copy could be given.
    row = replace(lost.row, cost=Decimal("0.9"), bound=Decimal(0), provider_id="own")
    settled = SentCall(lost.key, 1, row)
    again = joined(lines[:2], [known, settled, copy_of(known), copy_of(lost)])
    assert again.settled == {copy_of(lost): Billed(Decimal("0.9"), "own", NO_TOKENS)}


def test_the_tokens_of_a_fork_count_once():
    # 1,000 + 500 tokens are known; 1,000 + 500 more cost $0.002.
    known, lost = sent(1), sent(2, bound=DOLLAR)
    calls = [known, lost, copy_of(known), copy_of(lost)]
    found = joined([used(2000, 1000)], calls, 0.0, 86_400.0)
    assert found.settled == dict.fromkeys([lost, copy_of(lost)], Billed(Decimal("0.002")))


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


def test_names_with_and_without_a_date_are_one_model_of_a_span():
    # Together they left 1,000,000 output tokens, $2, more than both bounds.
    plain = sent(1, bound=DOLLAR, model="gpt-5-mini")
    dated = sent(2, bound=DOLLAR / 2, model="gpt-5-mini-2025-08-07")
    found = joined([used(0, 10**6, "gpt-5-mini-2025-08-07")], [plain, dated], 0.0, 86_400.0)
    assert not found.settled


def test_what_an_earlier_bill_has_settled_is_not_settled_again():
    # 1,000 + 500 tokens are known, 1,000 + 500 were settled at $0.002, 500 + 0 are left: $0.0005.
    settled = sent(2, cost=Decimal("0.002"), usage=NO_TOKENS, price_source=BILL, provider_id=None)
    lost = sent(3, bound=DOLLAR)
    found = joined([used(2500, 1000)], [sent(1), settled, lost], 0.0, 86_400.0)
    assert found.settled == {lost: Billed(Decimal("0.0005"))}


def test_lines_of_models_without_a_request_in_doubt_are_not_unknown():
    others = used(10, 5, "another")
    assert joined([used(1000, 500), others], [sent(1)], 0.0, 86_400.0).unexplained == [others]


@pytest.mark.parametrize(
    ("billed", "reason"),
    [
        (used(999, 500), "fewer tokens of the model than the ledger"),
        (used(1000, 400_000), "others have used the model"),
        (used(0, 0, "another"), "no line of its model"),
        (
            BilledUsage("", "stand-in", 0.0, 86_400.0, Usage(2000, 500, cache_write_tokens=1000)),
            "written to a cache",
        ),
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
    elsewhere = joined([used(1000, 500)], [sent(1, provider="azure"), lost], 0.0, 86_400.0)
    assert "several providers" in elsewhere.in_doubt[lost]
    outside = joined([used(1000, 500)], [sent(1, at=-1.0), lost], 0.0, 86_400.0)
    assert "begins after it was sent" in outside.in_doubt[lost]


def test_a_cached_answer_is_no_request():
    cached = sent(1, is_cache_hit=True)
    assert joined([line("id-1")], [cached]).unexplained == [line("id-1")]


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("gpt-5-mini", "gpt-5-mini"),
        ("gpt-5-mini-2025-08-07", "gpt-5-mini"),
        ("claude-haiku-4-5-20251001", "claude-haiku-4-5"),
        ("claude-haiku-4-5@20251001", "claude-haiku-4-5"),
        ("model-1234-56-78", "model-1234-56-78"),
    ],
)
def test_bills_name_models_with_their_dates(model, name):
    assert undated(model) == name
