"""The sums of a step's calls are those of its rows, whoever has written them."""

from decimal import Decimal

import pytest

from costada.store.rows import CallRow, CallStatus, LandedTickets
from costada.store.run_store import RunStore

RUN = "run"


def cost_of(store: RunStore) -> Decimal:
    return store.ledger.step_cost(RUN, 1, counts_lost=True)


def sent(bound: str) -> CallRow:
    return CallRow(
        ticket=1, role="evaluation", attempt=1, bound=Decimal(bound), status=CallStatus.STARTED
    )


@pytest.fixture
def store(tmp_path):
    with RunStore(tmp_path / "run.sqlite") as store:
        store.call_log.put_call(RUN, sent("0.5"))
        assert cost_of(store) == Decimal("0.5")
        yield store


def test_what_another_connection_writes_counts(store, tmp_path):
    with RunStore(tmp_path / "run.sqlite") as other:
        other.call_log.put_call(RUN, sent("0.25"))
        assert cost_of(store) == Decimal("0.75")
        done = CallRow(ticket=1, role="evaluation", attempt=1, cost=Decimal("0.1"))
        store.call_log.finish_call(RUN, 1, done)
        assert cost_of(store) == cost_of(other) == Decimal("0.35")


def add_and_fail(store: RunStore) -> None:
    with store._db.transaction():
        store.call_log.put_call(RUN, sent("0.25"))
        assert cost_of(store) == Decimal("0.75")
        raise InterruptedError


def test_what_is_undone_does_not_count(store):
    with pytest.raises(InterruptedError):
        add_and_fail(store)
    assert cost_of(store) == Decimal("0.5")


def test_what_is_in_flight_can_be_left_out(store):
    seen = LandedTickets(1, (1,))
    store.call_log.put_call(RUN, sent("0.25"))
    store.call_log.finish_call(
        RUN, 1, CallRow(ticket=1, role="evaluation", attempt=1, cost=Decimal("0.1"))
    )
    assert store.ledger.open_cost(RUN, seen, counts_lost=True) == Decimal("0.35")
    left_out = store.ledger.open_cost(RUN, seen, counts_lost=True, counts_sent=False)
    assert left_out == Decimal("0.1")
