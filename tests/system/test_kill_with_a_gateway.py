"""Requests that are in flight at a kill: the gateway that they went through knows them, no other.

Every run is killed while the provider answers a request that it has billed.
"""

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from crash_runs import kill_often, run_to_end, run_with, serve
from killed_runs import run_stored
from warm import PROCESSES

from costada.plugins.gateway.gateway_of_run import stop_gateways
from costada.runs.folder import RunFolder
from costada.runs.stored_run import run_at
from costada.store.address import shown_address
from costada.store.rows import CallStatus
from costada.store.run_store import RunStore

pytestmark = pytest.mark.process

NUM_KILLS = 4


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
    url = shown_address(postgres_address)
    RunStore.postgres(url).close()  # creates the tables
    return {"store": url, "gateway": True}


def calls_of(folder, store=None):
    place = RunFolder(folder) if store is None else run_at(f"{store}#{folder.name}")
    with RunStore.at(place.database, is_read_only=True) as opened:
        (run_id,) = opened.run_ids()
        return list(opened.call_log.calls(run_id)), opened.ledger.spent(run_id, 10**9)


def check_exact(calls, spent, provider):
    assert [call for call in calls if call.status is not CallStatus.DONE] == []
    assert sum(call.cost for call in calls) == spent == provider.bill


def check_not_below(calls, spent, provider, num_lost):
    """The bill is on the ledger, with so many lost requests at their bound."""
    lost = [call for call in calls if call.status is CallStatus.LOST]
    assert len(lost) == num_lost
    assert spent == sum(call.cost + call.bound for call in calls) > provider.bill


@dataclass(frozen=True)
class Story:
    """A run in Postgres that is killed while a request is in flight, and resumed to its end.

    Attributes:
        kills: On which machine, and how many requests were billed by then.
        resumed_on: The machine of the end.
        num_lost: Requests that count at their bound: no gateway there knows them.
        between: What happens to the machines after the first kill.
        parallel: Steps in flight (K).
    """

    kills: tuple[tuple[int, int], ...]
    resumed_on: int = 0
    num_lost: int = 0
    between: Callable[[list[Path]], object] = lambda _: None
    parallel: int | None = None


def lose_the_journal(machines: list[Path]) -> None:
    stop_gateways(RunFolder(machines[0]))
    shutil.rmtree(machines[0])


def copy_the_journal(machines: list[Path]) -> None:
    """The copy does not know what its original sends later."""
    stop_gateways(RunFolder(machines[0]))
    shutil.copytree(machines[0], machines[1])


STORIES = {
    "resumed on its machine": Story(((0, 3), (0, 9)), parallel=1),
    "resumed on its machine, four in flight": Story(((0, 3), (0, 9)), parallel=4),
    "resumed on another machine": Story(((0, 3), (1, 6)), resumed_on=1, num_lost=1),
    "its journal is gone": Story(((0, 3),), num_lost=1, between=lose_the_journal),
    "resumed with an older copy of the journal": Story(
        ((0, 3), (0, 6)), resumed_on=1, num_lost=1, between=copy_the_journal
    ),
}


@pytest.mark.parametrize("name", STORIES)
def test_a_gateway_knows_the_requests_that_went_through_it_and_no_other(
    machines, stored, served, name
):
    story = STORIES[name]
    options = stored if story.parallel is None else {**stored, "parallel": story.parallel}
    for number, (machine, num_billed) in enumerate(story.kills):
        kill_in_flight(run_stored, machines[machine], served, options, num_billed)
        if number == 0:
            story.between(machines)
    folder = machines[story.resumed_on]
    run_stored(folder, served[0].url, options)
    calls, spent = calls_of(folder, stored["store"])
    if story.num_lost:
        check_not_below(calls, spent, served[1], story.num_lost)
    else:
        check_exact(calls, spent, served[1])


def test_a_run_in_postgres_with_a_gateway_is_billed_exactly_whenever_it_is_killed(
    machines, stored, served
):
    hits = kill_often(machines[0], *served, 1, NUM_KILLS, stored, run_stored)
    assert hits >= NUM_KILLS // 2
    check_exact(*calls_of(machines[0], stored["store"]), served[1])


def test_a_request_without_a_gateway_is_not_forgotten_when_the_run_gets_one(folder, served):
    """Several calls in flight turn the gateway on; it knows nothing of what was sent before."""
    kill_in_flight(run_to_end, folder, served, {"parallel": 1}, 3)
    run_to_end(folder, served[0].url, {"parallel": 4})
    assert (folder / "gateway.log").exists()
    check_not_below(*calls_of(folder), served[1], num_lost=1)
