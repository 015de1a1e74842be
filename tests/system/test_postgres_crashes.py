"""A run in Postgres whose process is killed, or whose server crashes, continues exactly."""

import os
import time
from contextlib import closing, contextmanager
from decimal import Decimal
from threading import Thread

import pytest
from billing_server import BillingServer
from crash_runs import Provider, Record, check_against_bill
from fakes import toy_problem
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.postgres import PostgresSaver
from postgres_server import started_server
from warm import PROCESSES

from costada.controller.constants import Constants
from costada.graph.build import compile_search
from costada.models.chat_models import chat_model
from costada.nodes.settings import Settings
from costada.store.postgres_checkpoints import PostgresRunSaver
from costada.store.run_store import RunStore
from costada.values.usage import Price

THREAD = {"configurable": {"thread_id": "run"}}
ITERATIONS = 16
CALLS_BEFORE_A_KILL = (4, 9, 13)


@contextmanager
def langgraphs_own(address):
    with PostgresSaver.from_conn_string(address) as saver:
        saver.setup()
        yield saver


SAVERS = {
    "of runs": lambda address: closing(PostgresRunSaver(address)),
    "LangGraph's": langgraphs_own,
}


def search(url, store, saver, parallel=1):
    settings = Settings(
        price=Price("0.6", "1.92"),
        constants=Constants(max_iterations=ITERATIONS),
        lost_calls="ignore",
    )
    model = chat_model("openai:stand-in", base_url=url, retry_wait=0, max_tokens=4000)
    return compile_search(
        toy_problem(),
        model,
        budget=10.0,
        settings=settings,
        checkpointer=saver,
        store=store,
        parallel=parallel,
    )


def continued(graph):
    given = None if graph.get_state(THREAD).values else {"seed": 1}
    graph.invoke(given, THREAD, durability="sync")


def run(address, url, saver, folder):
    """Begin a run or continue it, in a folder that has nothing to do with it."""
    os.chdir(folder)
    with RunStore.postgres(address) as store, SAVERS[saver](address) as opened:
        continued(search(url, store, opened))


def what_happened(store):
    run_id = store.run_ids()[-1]
    calls = tuple(store.call_log.calls(run_id))
    steps = [{**row, "step_cost": None, "spent": None} for row in store.steps(run_id)]
    record = Record("", "", calls, (), store.call_log.spent(run_id, ITERATIONS))
    return steps, record


@pytest.fixture(scope="module")
def undisturbed():
    provider = Provider()
    with BillingServer(default=provider.answer) as server, RunStore() as store:
        continued(search(server.url, store, InMemorySaver()))
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
def test_a_killed_run_is_resumed_by_another_process_elsewhere(
    postgres_address, tmp_path, saver, undisturbed
):
    provider = Provider()
    with BillingServer(default=provider.answer) as server:
        for number, last in enumerate((*CALLS_BEFORE_A_KILL, 10**9)):
            folder = tmp_path / f"{number}"
            folder.mkdir()
            given = (postgres_address, server.url, saver, folder)
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
def test_a_run_whose_server_crashes_fails_with_its_name_and_continues(parallel, undisturbed):
    provider = Provider()
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

        crashing = Thread(target=crash)
        crashing.start()
        with pytest.raises(OSError, match=r"connection was lost|cannot connect") as raised:
            continued(search(server.url, store, saver, parallel))
        crashing.join()
        assert raised.value.filename == database.address
        continued(search(server.url, store, saver, parallel))
        if parallel == 1:
            check(store, provider, undisturbed)
        else:
            steps, record = what_happened(store)
            check_against_bill(record, provider)
            assert [row["iteration"] for row in steps] == list(range(1, ITERATIONS + 1))
