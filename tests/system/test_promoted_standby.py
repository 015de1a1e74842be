"""A standby takes over in mid-run: the run goes on by itself, and no bill is forgotten."""

from decimal import Decimal
from math import inf

import psycopg
import pytest
from billing_server import BillingServer
from crash_runs import CAP, PRICE_IN, PRICE_OUT, SEED, Provider
from fakes import toy_problem
from postgres_server import placed_server, started_server
from waiting import within
from warm import PROCESSES

from costada.models.chat_models import chat_model
from costada.runs.discovery import discover
from costada.runs.resume import LOST_STEPS
from costada.store.purse import Purse
from costada.values.usage import Price

pytestmark = pytest.mark.process

SEEN, KILLED, ITERATIONS = 6, 12, 16
"""Requests that the standby has, those that are sent when its server is killed, and the run's."""


def run(folder, url, database, parallel, iterations=ITERATIONS, gateway=False):
    """A run in a database, which a purse there pays for."""
    with Purse(1000, dsn=database) as purse:
        discover(
            toy_problem(),
            chat_model("openai:stand-in", base_url=url, retry_wait=0, max_tokens=CAP),
            out=folder,
            store=database,
            purse=purse,
            price=Price(PRICE_IN, PRICE_OUT),
            seed=SEED,
            budget=500.0,
            max_iterations=iterations,
            parallel=parallel,
            gateway=gateway,
        )


@pytest.fixture
def provider():
    return Provider()


@pytest.fixture
def url(provider):
    with BillingServer(default=provider.answer) as server:
        yield server.url


def address_of_both(primary, standby):
    """An address that leads to the one of two servers that takes writes."""
    hosts = f"{primary.address},{standby.address.partition('host=')[2]}"
    return f"{hosts}&target_session_attrs=read-write"


def ledger_in(server):
    """Dollars of all requests that a server knows, and their roles."""
    with psycopg.connect(server.address) as connection:
        rows = "SELECT cost, bound, role FROM costada.costada_call"
        calls = connection.execute(rows).fetchall()
    ledger = sum(Decimal(cost) + Decimal(bound) for cost, bound, _ in calls)
    return ledger, [role for *_, role in calls]


@pytest.mark.parametrize(
    ("parallel", "is_behind", "gateway"),
    [
        (1, True, False),
        (1, False, False),
        (4, True, False),
        (4, False, False),
        (1, True, True),
        (4, True, True),
    ],
)
def test_a_run_goes_on_by_itself_and_counts_what_its_server_lacks(
    parallel, is_behind, gateway, provider, url, tmp_path
):
    provider.last_answered = SEEN
    with started_server() as primary, placed_server() as standby:
        standby.begin_as_standby_of(primary)
        if not is_behind:
            primary.wait_for_standbys()
        database = address_of_both(primary, standby)
        words = tmp_path / "hex", url, database, parallel, ITERATIONS, gateway
        process = PROCESSES.Process(target=run, args=words)
        process.start()
        within(60, lambda: provider.billed.total() >= SEEN)
        if is_behind:
            standby.control("stop")
        provider.last_answered = KILLED
        within(60, lambda: provider.billed.total() >= KILLED)
        primary.control("stop", "--mode=immediate")
        if is_behind:
            standby.control("start")
        provider.last_answered = inf
        standby.control("promote")
        process.join(120)
        assert process.exitcode == 0
        ledger, roles = ledger_in(standby)
        assert ledger >= provider.bill
        is_exact = not is_behind or (gateway and parallel == 1)
        assert roles.count(LOST_STEPS) == (not is_exact)
        if is_exact:
            assert ledger == provider.bill
        with Purse(1000, dsn=standby.address) as purse:
            assert purse.spent >= provider.bill
