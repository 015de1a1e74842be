"""A stored run whose database was restored from a dump: no bill is forgotten."""

import subprocess
from decimal import Decimal
from math import inf

import psycopg
import pytest
from billing_server import BillingServer
from crash_runs import CAP, PRICE_IN, PRICE_OUT, SEED, Provider
from fakes import toy_problem
from postgres_server import started_server
from waiting import within
from warm import PROCESSES

from costada.models.chat_models import chat_model
from costada.runs.discovery import discover
from costada.runs.resume import LOST_STEPS
from costada.store.purse import Purse
from costada.values.usage import Price

pytestmark = pytest.mark.process

DUMPED, KILLED, ITERATIONS = 6, 12, 16


def run(folder, url, database, **options):
    """Begin or resume the run of a folder in a database, in this process, to its end."""
    with Purse(10, dsn=database) as purse:
        discover(
            toy_problem(),
            chat_model("openai:stand-in", base_url=url, retry_wait=0, max_tokens=CAP),
            out=folder,
            store=database,
            purse=purse,
            price=Price(PRICE_IN, PRICE_OUT),
            seed=SEED,
            budget=5.0,
            max_iterations=ITERATIONS,
            **options,
        )


def check_ledger(database, bill):
    """All requests cost at least what was billed, and one row stands for those that were lost."""
    with psycopg.connect(database) as connection:
        calls = connection.execute("SELECT cost, bound, role FROM costada.costada_call").fetchall()
    assert sum(Decimal(cost) + Decimal(bound) for cost, bound, _ in calls) >= bill
    assert [role for *_, role in calls].count(LOST_STEPS) == 1


@pytest.fixture
def provider():
    return Provider()


@pytest.fixture
def url(provider):
    with BillingServer(default=provider.answer) as server:
        yield server.url


@pytest.mark.parametrize("parallel", [1, 4])
def test_what_a_restored_database_lacks_is_told_and_counted(parallel, provider, url, tmp_path):
    folder, dump = tmp_path / "hex", tmp_path / "dump"
    provider.last_answered = DUMPED
    with started_server() as server:
        programs = server.programs
        own = {"parallel": parallel, "gateway": False}
        process = PROCESSES.Process(target=run, args=(folder, url, server.address), kwargs=own)
        process.start()
        within(60, lambda: provider.billed.total() >= DUMPED)
        words = f"--dbname={server.address}", "--format=custom", "--schema=costada"
        more = "--no-unlogged-table-data", f"--file={dump}"
        subprocess.run([programs / "pg_dump", *words, *more], check=True)
        provider.last_answered = KILLED
        within(60, lambda: provider.billed.total() >= KILLED)
        process.kill()
        process.join()
        provider.last_answered = inf
        with psycopg.connect(server.address, autocommit=True) as connection:
            connection.execute("CREATE DATABASE restored")
        restored = server.address.replace("/postgres?", "/restored?")
        subprocess.run([programs / "pg_restore", f"--dbname={restored}", dump], check=True)
        billed = provider.bill
        with pytest.raises(ValueError, match=r"the database has lost \d+ of \d+ requests") as told:
            run(folder, url, restored, resume=True, **own)
        assert "--accept-loss" in str(told.value)
        assert provider.bill == billed
        run(folder, url, restored, resume=True, accept_loss=True, **own)
        assert provider.bill > billed
        check_ledger(restored, provider.bill)
        with Purse(10, dsn=restored) as purse:
            assert purse.spent >= provider.bill
