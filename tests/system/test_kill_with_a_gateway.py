"""Requests that are in flight at a kill: the gateway that they went through knows them, no other.

Every run is killed while the provider answers a request that it has billed.
"""

import os
import shutil
from decimal import Decimal

import pytest
from crash_runs import (
    BUDGET,
    CAP,
    PRICE_IN,
    PRICE_OUT,
    SEED,
    kill_often,
    run_to_end,
    run_with,
    serve,
    slow_evaluation,
)
from fakes import toy_problem
from warm import PROCESSES

from costada.models.chat_models import chat_model
from costada.plugins.gateway.gateway_of_run import stop_gateways
from costada.runs.discovery import discover
from costada.runs.folder import RunFolder
from costada.runs.stored_run import run_at
from costada.store.postgres_connections import name_of
from costada.store.rows import CallStatus
from costada.store.run_store import RunStore
from costada.values.usage import Price

pytestmark = pytest.mark.process

NUM_KILLS = 4


def run_stored(folder, url, options):
    """Start or resume the run of the folder's name in Postgres, in this process, to its end."""
    is_begun = run_at(f"{options['store']}#{folder.name}").claimed_at is not None
    discover(
        toy_problem(evaluate=slow_evaluation),
        chat_model("openai:stand-in", base_url=url, retry_wait=0, max_tokens=CAP),
        out=folder,
        resume=is_begun,
        price=Price(PRICE_IN, PRICE_OUT),
        **{"seed": SEED, "budget": BUDGET, **options},
    )


def kill_in_flight(run, folder, served, options, number):
    """Kill a run when the provider has billed so many requests, before it answers the last one."""
    server, provider = served
    given = (dict(os.environ), run, folder, server.url, options)
    process = PROCESSES.Process(target=run_with, args=given)

    def answer(body):
        reply = provider.answer(body)
        if provider.billed.total() >= number:  # calls in flight may be billed at once
            process.kill()
        return reply

    server.default = answer
    process.start()
    process.join()
    server.default = provider.answer
    assert process.exitcode < 0


@pytest.fixture
def served():
    server, provider = serve()
    with server:
        yield server, provider


@pytest.fixture
def machines(tmp_path):
    """Folders of one run on two machines; their gateways end with the test."""
    folders = [tmp_path / machine / "hex" for machine in "ab"]
    yield folders
    for folder in folders:
        stop_gateways(RunFolder(folder))


@pytest.fixture
def folder(tmp_path):
    """The folder of a run, whose gateway ends with the test."""
    yield tmp_path / "run"
    stop_gateways(RunFolder(tmp_path / "run"))


@pytest.fixture
def stored(postgres_address):
    """The options of a run in Postgres with a gateway."""
    url = name_of(postgres_address)
    RunStore.postgres(url).close()  # creates the tables
    return {"store": url, "gateway": True}


def calls_of(folder, store=None):
    place = RunFolder(folder) if store is None else run_at(f"{store}#{folder.name}")
    with RunStore.at(place.database, is_read_only=True) as opened:
        (run_id,) = opened.run_ids()
        return list(opened.call_log.calls(run_id)), opened.call_log.spent(run_id, 10**9)


def check_exact(calls, spent, provider):
    assert [call for call in calls if call.status is not CallStatus.DONE] == []
    assert sum(call.cost for call in calls) == spent == provider.bill


def check_not_below(calls, spent, provider, num_lost):
    """The bill is on the ledger, with so many lost requests at their bound."""
    lost = [call for call in calls if call.status is CallStatus.LOST]
    assert len(lost) == num_lost
    assert spent == sum(call.cost + call.bound for call in calls) > provider.bill


@pytest.mark.parametrize("parallel", [1, 4])
def test_a_run_in_postgres_that_is_resumed_on_its_machine_is_billed_exactly(
    machines, stored, served, parallel
):
    options = {**stored, "parallel": parallel}
    for number in (3, 9):
        kill_in_flight(run_stored, machines[0], served, options, number)
    run_stored(machines[0], served[0].url, options)
    check_exact(*calls_of(machines[0], stored["store"]), served[1])


def test_a_run_in_postgres_with_a_gateway_is_billed_exactly_whenever_it_is_killed(
    machines, stored, served
):
    hits = kill_often(machines[0], *served, 1, NUM_KILLS, stored, run_stored)
    assert hits >= NUM_KILLS // 2
    check_exact(*calls_of(machines[0], stored["store"]), served[1])


def test_a_request_of_another_machine_counts_at_its_bound(machines, stored, served):
    kill_in_flight(run_stored, machines[0], served, stored, 3)
    kill_in_flight(run_stored, machines[1], served, stored, 6)
    run_stored(machines[1], served[0].url, stored)
    check_not_below(*calls_of(machines[1], stored["store"]), served[1], num_lost=1)


def test_a_request_counts_at_its_bound_whose_journal_is_gone(machines, stored, served):
    kill_in_flight(run_stored, machines[0], served, stored, 3)
    stop_gateways(RunFolder(machines[0]))
    shutil.rmtree(machines[0])
    run_stored(machines[0], served[0].url, stored)
    check_not_below(*calls_of(machines[0], stored["store"]), served[1], num_lost=1)


def test_a_copy_of_the_journal_does_not_know_what_its_original_sent_later(
    machines, stored, served, tmp_path
):
    kill_in_flight(run_stored, machines[0], served, stored, 3)
    stop_gateways(RunFolder(machines[0]))
    shutil.copytree(machines[0], machines[1])
    kill_in_flight(run_stored, machines[0], served, stored, 6)
    run_stored(machines[1], served[0].url, stored)
    check_not_below(*calls_of(machines[1], stored["store"]), served[1], num_lost=1)


def test_a_request_without_a_gateway_is_not_forgotten_when_the_run_gets_one(folder, served):
    """Several calls in flight turn the gateway on; it knows nothing of what was sent before."""
    kill_in_flight(run_to_end, folder, served, {"parallel": 1}, 3)
    run_to_end(folder, served[0].url, {"parallel": 4})
    assert (folder / "gateway.log").exists()
    check_not_below(*calls_of(folder), served[1], num_lost=1)


def test_a_hard_budget_holds_when_answers_come_from_the_gateway(folder, served):
    options = {"parallel": 4, "gateway": True, "budget_policy": "hard"}
    hits = kill_often(folder, *served, 3, NUM_KILLS, options)
    assert hits >= NUM_KILLS // 2
    calls, spent = calls_of(folder)
    check_exact(calls, spent, served[1])
    assert served[1].bill <= Decimal(str(BUDGET))
