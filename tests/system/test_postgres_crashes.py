"""A run in Postgres whose process is killed, or whose server crashes, continues exactly."""

import os
import time
from contextlib import closing
from decimal import Decimal
from math import inf
from threading import Thread

import pytest
from billing_server import BillingServer
from crash_runs import Provider, Record, check_against_bill
from killed_searches import SAVERS, execute_run, search
from langgraph.checkpoint.memory import InMemorySaver
from postgres_server import started_server
from warm import PROCESSES

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


@pytest.mark.parametrize("parallel", [1, 4])
def test_a_run_whose_server_crashes_fails_with_the_name_of_the_server_and_can_be_resumed(
    parallel, undisturbed
):
    provider = Provider(last_answered=6 + parallel)
    with (
        started_server() as database,
        BillingServer(default=provider.answer) as server,
        RunStore.postgres(database.address) as store,
        closing(PostgresRunSaver(database.address)) as saver,
    ):

        def crash():
            while provider.billed.total() < 6:
                time.sleep(0.002)
            database.control("restart", "--mode=immediate")
            provider.last_answered = inf

        crashing = Thread(target=crash)
        crashing.start()
        with pytest.raises(OSError, match=r"connection was lost|cannot connect") as raised:
            execute_run(search(server.url, store, saver, ITERATIONS, parallel))
        crashing.join()
        assert raised.value.filename == database.address
        execute_run(search(server.url, store, saver, ITERATIONS, parallel))
        if parallel == 1:
            check(store, provider, undisturbed)
        else:
            steps, record = what_happened(store)
            check_against_bill(record, provider)
            assert [row["iteration"] for row in steps] == list(range(1, ITERATIONS + 1))
