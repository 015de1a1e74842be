"""What a reader sees of a run file that another process writes."""

from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import pytest
from rows import call_row
from store_backends import SHARED

from costada.store.address import RunAddress, StorePlace
from costada.store.call_log import CallKey
from costada.store.history import CacheUse, Iterations, RunHistory, Tickets
from costada.store.rows import CallStatus, Outcome, OutcomeKind
from costada.store.run_store import RunStore
from costada.values.candidate import Candidate, Program
from costada.values.usage import Usage

Opening = Callable[..., RunStore]


@pytest.fixture
def place(address: Path | str) -> StorePlace:
    return RunAddress(address, "run") if isinstance(address, str) else address


pytestmark = pytest.mark.parametrize("address", SHARED, indirect=True)


def candidate(iteration: int) -> Candidate:
    return Candidate(
        id=f"{iteration}.1",
        ticket=iteration,
        program=Program.of(f"x = {iteration}\n"),
        score=0.5,
        objective=None,
        is_valid=True,
        metrics={},
        artifacts={},
        error=None,
        parent_id="0.1",
        generation=1,
        changes="",
    )


def test_a_span_begins_beyond_one_iteration_and_ends_with_another(
    place: StorePlace, open_store: Opening
) -> None:
    with open_store() as store:
        store.open_run("run", "costada", "toy", "bubblewrap")
        for iteration in range(5):
            store.put_step("run", iteration, {"iteration": iteration, "best_score": float("-inf")})
            store.candidates.put("run", candidate(iteration))
            store.put_tactics("run", iteration, {"tactics": [iteration]})
    with RunHistory.of(place) as history:
        assert history.last_run() == "run"
        assert history.sandbox("run") == "bubblewrap"
        span = Iterations("run", 1, 3)
        assert history.steps(span) == [
            {"iteration": 2, "best_score": None},
            {"iteration": 3, "best_score": None},
        ]
        found = history.candidates(Tickets("run", 2, [1]))
        assert [history.text(each.program) for each in found] == ["x = 1\n", "x = 3\n", "x = 4\n"]
        assert history.tactics(span) == [(2, {"tactics": [2]}), (3, {"tactics": [3]})]
        assert history.tickets("run") == [0, 1, 2, 3, 4]


def test_calls_that_came_to_no_answer_are_reported_with_their_reason(
    place: StorePlace, open_store: Opening
) -> None:
    with open_store() as store:
        store.open_run("run", "costada", "toy")
        for number, kind in enumerate(OutcomeKind, start=1):
            key = CallKey("run", number, "generation", 1)
            store.call_log.put_outcome(key, Outcome("", f"{kind} text", kind))
    with RunHistory.of(place) as history:
        failures = history.failures(Tickets("run"))
    assert [(each.kind, each.text) for each in failures] == [
        (OutcomeKind.FAILURE, "failure text"),
        (OutcomeKind.REFUSAL, "refusal text"),
        (OutcomeKind.TIMEOUT, "timeout text"),
        (OutcomeKind.NO_PROTOCOL, "no protocol text"),
    ]


def test_a_history_does_not_see_what_is_written_while_it_is_read(
    place: StorePlace, open_store: Opening
) -> None:
    with open_store() as store:
        store.open_run("run", "costada", "toy")
        store.put_step("run", 1, {"iteration": 1})
        with RunHistory.of(place) as history:
            assert len(history.steps(Iterations("run"))) == 1
            store.put_step("run", 2, {"iteration": 2})
            assert len(history.steps(Iterations("run"))) == 1
        with RunHistory.of(place) as history:
            assert len(history.steps(Iterations("run"))) == 2


def test_a_file_without_a_run_has_no_last_run(place: StorePlace, open_store: Opening) -> None:
    open_store().close()
    with RunHistory.of(place) as history:
        assert history.last_run() == ""
        assert history.tickets("") == []


def test_money_of_a_call_is_read_exactly(place: StorePlace, open_store: Opening) -> None:
    from test_run_store import call

    with open_store() as store:
        store.open_run("run", "costada", "toy")
        store.call_log.put_call("run", call(1, "0.1000000000000000001"))
    with RunHistory.of(place) as history:
        (call,) = history.calls(Tickets("run"))
    assert call.cost == Decimal("0.1000000000000000001")
    assert call.status is CallStatus.DONE
    assert call.facts["model"]


def test_open_calls_are_those_that_were_sent_and_have_not_ended(
    place: StorePlace, open_store: Opening
) -> None:
    with open_store() as store:
        store.open_run("run", "costada", "toy")
        log = store.call_log
        for ticket, status in ((1, CallStatus.DONE), (2, CallStatus.LOST), (3, CallStatus.ERROR)):
            log.put_call("run", call_row(ticket=ticket, status=status))
        started = {"status": CallStatus.STARTED, "cost": Decimal(0), "bound": Decimal("0.05")}
        number = log.put_call("run", call_row(ticket=5, **started, ended_at=70.5))
        log.put_call("run", call_row(ticket=4, role="guide", **started))
        log.put_call("other", call_row(ticket=6, **started))
        with RunHistory.of(place) as history:
            found = history.open_calls("run")
        assert [(each.ticket, each.role) for each in found] == [(5, "generation"), (4, "guide")]
        assert (found[0].bound, found[0].facts["ended_at"]) == (Decimal("0.05"), 70.5)
        log.finish_call("run", number, call_row(ticket=5))
    with RunHistory.of(place) as history:
        assert [each.ticket for each in history.open_calls("run")] == [4]


def test_the_savings_of_prompt_caches_are_summed_over_the_requests_of_a_run(
    place: StorePlace, open_store: Opening
) -> None:
    """At $2 and $10 per million: 1,000 tokens in and 10 out cost $0.0021 without a cache."""
    rates = {"price_in": "2", "price_out": "10"}
    plain = call_row(ticket=1, usage=Usage(1000, 10), cost=Decimal("0.0021"), **rates)
    read = call_row(ticket=2, usage=Usage(1000, 10, 600), cost=Decimal("0.00102"), **rates)
    written = Usage(1000, 10, cache_write_tokens=400)
    wrote = call_row(ticket=3, usage=written, cost=Decimal("0.0023"), **rates)
    with open_store() as store:
        store.open_run("run", "costada", "toy")
        for row in (plain, read, wrote):
            store.call_log.put_call("run", row)
    with RunHistory.of(place) as history:
        used = history.cache_use("run")
        past = [call.saved for call in history.calls(Tickets("run"))]
        assert history.cache_use("other") == CacheUse(0, 0, 0.0)
    assert past == [Decimal(0), Decimal("0.00108"), Decimal("-0.0002")]
    assert [row.saved for row in (plain, read, wrote)] == past
    assert (used.input_tokens, used.cached_tokens) == (3000, 600)
    assert used.saved == pytest.approx(0.00088)
