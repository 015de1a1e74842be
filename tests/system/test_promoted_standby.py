"""A standby takes over in mid-run: the run goes on by itself, and no bill is forgotten."""

from contextlib import closing
from math import inf

import psycopg
import pytest
from crash_runs import CAP, PRICE_IN, PRICE_OUT
from fakes import toy_folder
from paid_runs import PURSE, ledger_in, run_paid, spent_from
from postgres_server import placed_server, started_server
from waiting import within
from warm import PROCESSES

from costada.agents.search_service import SearchService
from costada.nodes.calls.purse_slice import SLICE
from costada.runs.config import RunConfig
from costada.runs.resume import LOST_STEPS
from costada.runs.search_request import SearchRequest
from costada.runs.stored_run import lease_name
from costada.store.outage import LostWrites
from costada.store.postgres_lease import Leases
from costada.store.purse import Purse

pytestmark = pytest.mark.process

SMALL_SLICE, LARGE_SLICE = 0.02, 1.0
"""Slices of an account that are used up within a few requests, and by no run here."""

SEEN, KILLED, ITERATIONS = 6, 12, 16
"""Requests that the standby has, those that are sent when its server is killed, and the run's."""


def address_of_both(primary, standby):
    """An address that leads to the one of two servers that takes writes."""
    hosts = f"{primary.address},{standby.address.partition('host=')[2]}"
    return f"{hosts}&target_session_attrs=read-write"


@pytest.mark.parametrize(
    ("parallel", "is_behind", "gateway", "purse_slice"),
    [
        (1, True, False, None),
        (1, False, False, None),
        (4, True, False, None),
        (4, False, False, None),
        (1, True, True, None),
        (4, True, True, None),
        (1, True, False, SMALL_SLICE),
        (4, True, False, SMALL_SLICE),
        (4, False, False, SMALL_SLICE),
        (4, True, False, LARGE_SLICE),
        (1, True, True, SMALL_SLICE),
    ],
)
def test_a_run_goes_on_by_itself_and_counts_what_its_server_lacks(
    parallel, is_behind, gateway, purse_slice, provider, url, tmp_path
):
    provider.last_answered = SEEN
    with started_server() as primary, placed_server() as standby:
        standby.begin_as_standby_of(primary)
        if not is_behind:
            primary.wait_for_standbys()
        database = address_of_both(primary, standby)
        words = tmp_path / "hex", url, database
        own = {"parallel": parallel, "gateway": gateway, "max_iterations": ITERATIONS}
        own["purse_slice"] = purse_slice
        process = PROCESSES.Process(target=run_paid, args=words, kwargs=own)
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
        ledger, roles = ledger_in(standby.address)
        assert ledger >= provider.bill
        is_exact = not is_behind or (gateway and parallel == 1)
        assert roles.count(LOST_STEPS) == (not is_exact)
        if is_exact:
            assert ledger == provider.bill
        assert spent_from(standby.address) >= provider.bill
        if is_exact and purse_slice:
            assert spent_from(standby.address) == provider.bill


@pytest.mark.parametrize("purse_slice", [None, SMALL_SLICE, LARGE_SLICE])
def test_a_purse_that_lacks_writes_gets_them_from_the_files_of_its_runs(
    purse_slice, provider, url, tmp_path
):
    provider.last_answered = SEEN
    with started_server() as primary, placed_server() as standby:
        standby.begin_as_standby_of(primary)
        words = url, address_of_both(primary, standby)
        own = {"parallel": 4, "gateway": False, "max_iterations": ITERATIONS}
        own |= {"purse_slice": purse_slice, "store": None}
        processes = [
            PROCESSES.Process(target=run_paid, args=(tmp_path / name, *words), kwargs=own)
            for name in ("one", "two")
        ]
        for each in processes:
            each.start()
        within(60, lambda: provider.billed.total() >= SEEN)
        standby.control("stop")
        provider.last_answered = 2 * KILLED
        within(60, lambda: provider.billed.total() >= 2 * KILLED)
        primary.control("stop", "--mode=immediate")
        standby.control("start")
        provider.last_answered = inf
        standby.control("promote")
        for each in processes:
            each.join(120)
            assert each.exitcode == 0
        with Purse(PURSE, dsn=standby.address) as purse:
            assert purse.spent >= provider.bill
            assert purse.remaining == PURSE - purse.spent
            assert not any(each.bound for each in purse.calls() if each.key == SLICE)


SET_BACK = "UPDATE costada.costada_lease SET epoch = 0, seconds = 0"
"""What a failover leaves that has lost the lease of a run."""


@pytest.mark.parametrize("is_taken", [False, True])
def test_a_run_whose_lease_went_back_goes_on_unless_another_process_has_it(
    is_taken, provider, url, tmp_path
):
    provider.last_answered = SEEN
    with started_server() as server:
        own = {"parallel": 4, "gateway": False, "max_iterations": ITERATIONS}
        words = tmp_path / "hex", url, server.address
        process = PROCESSES.Process(target=run_paid, args=words, kwargs=own)
        process.start()
        within(60, lambda: provider.billed.total() >= SEEN)
        with psycopg.connect(server.address, autocommit=True) as connection:
            connection.execute(SET_BACK)
        other = Leases(server.address)
        held = other.acquire(lease_name("hex"), 30.0) if is_taken else None
        provider.last_answered = inf
        process.join(120)
        assert process.exitcode == is_taken
        if held:
            held.check()
            held.release()
        ledger, roles = ledger_in(server.address)
        assert ledger >= provider.bill
        assert LOST_STEPS not in roles


def test_a_run_that_has_only_lost_its_lease_asks_before_it_pays_for_lost_requests(
    provider, url, tmp_path
):
    provider.last_answered = SEEN
    with started_server() as server:
        words = tmp_path / "hex", url, server.address
        own = {"max_iterations": ITERATIONS}
        process = PROCESSES.Process(target=run_paid, args=words, kwargs=own)
        process.start()
        within(60, lambda: provider.billed.total() >= SEEN)
        with psycopg.connect(server.address, autocommit=True) as connection:
            connection.execute(f"{SET_BACK}; DELETE FROM costada.costada_call WHERE cost <> '0'")
        provider.last_answered = inf
        process.join(120)
        assert process.exitcode == 1
        assert LOST_STEPS not in ledger_in(server.address)[1]
        with pytest.raises(ValueError, match=r"the database has lost \d+ of \d+ requests"):
            run_paid(*words, resume=True, **own)
        run_paid(*words, resume=True, accept_loss=True, **own)
        ledger, roles = ledger_in(server.address)
        assert roles.count(LOST_STEPS) == 1
        assert ledger >= provider.bill


def test_runs_of_a_server_go_on_by_themselves(provider, url, tmp_path, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    provider.last_answered = SEEN
    with started_server() as primary, placed_server() as standby:
        standby.begin_as_standby_of(primary)
        database = address_of_both(primary, standby)
        toy = str(toy_folder(tmp_path))
        settings = RunConfig(
            problem=toy,
            model="openai:stand-in",
            base_url=url,
            price=f"{PRICE_IN},{PRICE_OUT}",
            max_tokens=CAP,
            max_iterations=ITERATIONS,
        )
        with closing(Purse(PURSE, dsn=database)) as purse:
            runs = SearchService(
                {"toy": toy}, SearchRequest(settings), purse, tmp_path / "runs", database
            )
            runs.follow()
            names = [runs.start("toy", 5.0, seed=seed).folder.name for seed in (0, 1)]
            within(60, lambda: provider.billed.total() >= SEEN)
            standby.control("stop")
            provider.last_answered = KILLED
            within(60, lambda: provider.billed.total() >= KILLED)
            primary.control("stop", "--mode=immediate")
            standby.control("start")
            provider.last_answered = inf
            standby.control("promote")
            try:
                within(120, lambda: {phase_of(runs, name) for name in names} == {"finished"})
            finally:
                runs.end(60)
            ledger, roles = ledger_in(standby.address)
            assert ledger >= provider.bill
            assert roles.count(LOST_STEPS) > 0
            assert purse.spent >= provider.bill


def phase_of(runs, name):
    """The phase of a run of a server, which may not have noticed yet that it lacks writes."""
    try:
        return runs.run(name).status()["phase"]
    except LostWrites:
        return ""
