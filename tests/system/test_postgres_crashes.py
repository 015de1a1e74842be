"""A run in Postgres whose process is killed, or whose server crashes, continues exactly."""

import os
from contextlib import closing
from decimal import Decimal
from math import inf
from threading import Thread

import psycopg
import pytest
from billing_server import BillingServer
from crash_runs import Provider, Record, check_against_bill
from killed_searches import SAVERS, execute_run, search
from langgraph.checkpoint.memory import InMemorySaver
from postgres_server import started_server
from waiting import within
from warm import PROCESSES

from costada.store.lease import LostLease
from costada.store.outage import outages
from costada.store.postgres_checkpoints import PostgresRunSaver
from costada.store.run_store import RunStore

pytestmark = pytest.mark.process

ITERATIONS = 16
CALLS_BEFORE_A_KILL = (4, 9, 13)


def run(address, url, saver, folder):
    """Begin a run or continue it, in a folder that has nothing to do with it."""
    os.chdir(folder)
    with RunStore.postgres(address) as store, SAVERS[saver](address) as opened:
        execute_run(search(url, store, opened, ITERATIONS))


def what_happened(store):
    run_id = store.run_ids()[-1]
    calls = tuple(store.call_log.calls(run_id))
    steps = [{**row, "step_cost": None, "spent": None} for row in store.steps(run_id)]
    record = Record("", "", calls, (), store.ledger.spent(run_id, ITERATIONS))
    return steps, record


@pytest.fixture(scope="module")
def undisturbed():
    provider = Provider()
    with BillingServer(default=provider.answer) as server, RunStore() as store:
        execute_run(search(server.url, store, InMemorySaver(), ITERATIONS))
        steps, record = what_happened(store)
    assert len(steps) == ITERATIONS
    return steps, record


def check(store, provider, undisturbed):
    steps, record = what_happened(store)
    check_against_bill(record, provider)
    assert steps == undisturbed[0]
    cost = sum((call.cost for call in record.done), Decimal(0))
    assert cost == sum((call.cost for call in undisturbed[1].done), Decimal(0))
    assert [call.prompt for call in record.done] == [call.prompt for call in undisturbed[1].done]


@pytest.mark.parametrize("saver", SAVERS)
def test_a_killed_run_is_resumed_by_another_process_in_another_folder(
    postgres_address, tmp_path, saver, undisturbed
):
    provider = Provider()
    with BillingServer(default=provider.answer) as server:
        for number, last in enumerate((*CALLS_BEFORE_A_KILL, 10**9)):
            folder = tmp_path / f"{number}"
            folder.mkdir()
            given = (postgres_address, server.url, saver, folder)
            provider.last_answered = last + 1
            process = PROCESSES.Process(target=run, args=given)
            process.start()
            while process.is_alive() and provider.billed.total() < last:
                process.join(0.002)
            process.kill() if process.is_alive() else None
            process.join()
            assert (process.exitcode == 0) is (last == 10**9)
            assert list(folder.iterdir()) == []
    with RunStore.postgres(postgres_address, is_read_only=True) as store:
        check(store, provider, undisturbed)


def when_billed(provider, number, act):
    """A thread that does something once so many requests were billed."""

    def wait_and_act():
        within(60, lambda: provider.billed.total() >= number)
        act()

    thread = Thread(target=wait_and_act)
    thread.start()
    return thread


@pytest.mark.parametrize("parallel", [1, 4])
def test_a_run_continues_by_itself_each_time_its_server_restarts_or_crashes(parallel, undisturbed):
    provider = Provider()
    with (
        started_server() as database,
        BillingServer(default=provider.answer) as server,
        RunStore.postgres(database.address) as store,
        closing(PostgresRunSaver(database.address)) as saver,
    ):

        def restart_often():
            for number in (3, 5, 7, 9, 11):
                within(60, lambda number=number: provider.billed.total() >= number)
                if number == 7:
                    database.continue_log()
                    database.control("restart", "--mode=fast")
                    database.delay_log()
                else:
                    database.crash()
            database.continue_log()

        database.delay_log()
        restarting = Thread(target=restart_often)
        restarting.start()
        execute_run(search(server.url, store, saver, ITERATIONS, parallel))
        restarting.join()
        steps, record = what_happened(store)
        check_against_bill(record, provider)
        assert record.lost == []  # so each billed request is one finished call
        assert len(steps) == ITERATIONS
        if parallel == 1:
            check(store, provider, undisturbed)


def test_answers_that_come_while_the_server_is_stopped_are_stored_when_it_is_back(caplog):
    parallel = 4
    provider = Provider(last_answered=6)
    with (
        started_server() as database,
        BillingServer(default=provider.answer) as server,
        RunStore.postgres(database.address) as store,
        closing(PostgresRunSaver(database.address)) as saver,
    ):

        def stop_and_start():
            database.control("stop", "--mode=fast")
            provider.last_answered = inf  # the answers of all requests in flight
            within(60, lambda: outages() and len(server.bill) >= 6 + parallel)
            database.control("start")

        stopping = when_billed(provider, 6 + parallel, stop_and_start)
        execute_run(search(server.url, store, saver, ITERATIONS, parallel))
        stopping.join()
        _, record = what_happened(store)
        check_against_bill(record, provider)
        assert record.lost == []
    assert "Waiting for the database, since" in caplog.text
    assert "The database is back after" in caplog.text
    assert outages() == []


def test_a_stop_that_is_longer_than_the_longest_pause_ends_the_run_which_can_be_resumed():
    provider = Provider()
    with (
        started_server() as database,
        BillingServer(default=provider.answer) as server,
        RunStore.postgres(database.address) as store,
        closing(PostgresRunSaver(database.address)) as saver,
    ):
        stopping = when_billed(provider, 6, lambda: database.control("stop", "--mode=fast"))
        with pytest.raises(OSError, match=r"was away for longest_pause \(0\.2 s\)") as raised:
            execute_run(search(server.url, store, saver, ITERATIONS, longest_pause=0.2))
        stopping.join()
        assert raised.value.filename == database.address
        database.control("start")
        execute_run(search(server.url, store, saver, ITERATIONS))
        _, record = what_happened(store)
        check_against_bill(record, provider)


def test_a_run_that_another_process_has_taken_over_in_an_outage_ends(postgres_address):
    provider = Provider()
    taking = "UPDATE costada.costada_lease SET epoch = epoch + 1, pid = 7, host = 'elsewhere'"
    with (
        BillingServer(default=provider.answer) as server,
        RunStore.postgres(postgres_address) as store,
        closing(PostgresRunSaver(postgres_address)) as saver,
        psycopg.connect(postgres_address, autocommit=True) as another,
    ):

        def take_over():
            another.execute(taking)
            another.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE datname = current_database() AND pid != pg_backend_pid()"
            )

        taken = when_billed(provider, 6, take_over)
        with pytest.raises(LostLease, match="process 7 on elsewhere took it over"):
            execute_run(search(server.url, store, saver, ITERATIONS))
        taken.join()
