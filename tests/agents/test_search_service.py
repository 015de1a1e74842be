"""Searches of a server and their money: in folders, and of several servers on one database."""

import os
import time
from contextlib import contextmanager, suppress
from dataclasses import replace
from decimal import Decimal
from functools import partial
from threading import Event

import psycopg
import pytest
from fakes import toy_folder
from served_searches import CALL_COST, better_programs, service_of, taking_time
from waiting import within
from warm import PROCESSES

from costada.agents.followed_runs import best_program_of
from costada.agents.search_service import SearchService, named_problems
from costada.runs.config import RunConfig
from costada.runs.folder_lease import hold_lease
from costada.runs.search_request import SearchRequest
from costada.runs.stored_run import StoredRun
from costada.store.address import RunAddress, shown_address
from costada.store.purse import Purse

pytestmark = pytest.mark.process


def test_abandoned_runs_return_their_money_except_what_they_spent(tmp_path):
    path = tmp_path / "purse.sqlite"
    with Purse(1, path=path) as purse:
        (tmp_path / "dead").mkdir()
        purse.child(str(tmp_path / "dead"), 0.25).put("call", cost=0.125)
        purse.child(str(tmp_path / "removed"), 0.25).put("call", cost=0.0625)
        assert float(purse.remaining) == 0.5
    with Purse(1, path=path) as purse:
        service_of(purse, tmp_path).paid.reclaim()
        assert float(purse.spent) == 0.1875
        assert float(purse.remaining) == 0.8125


def test_a_server_leaves_the_runs_of_other_machines_in_a_shared_purse_alone(tmp_path):
    with Purse(1) as purse:
        for name in ("one", "other"):
            purse.child(f"{name}:{tmp_path / 'dead'}", 0.25)
        service_of(purse, tmp_path, "one").paid.reclaim()
        is_closed = {
            account.name.partition(":")[0]: account.is_closed for account in purse.accounts()
        }
        assert is_closed == {"purse": False, "one": True, "other": False}


def test_money_of_a_run_at_work_stays_with_it(tmp_path):
    with Purse(1) as purse:
        run = tmp_path / "run"
        run.mkdir()
        purse.child(str(run), 0.25)
        with hold_lease(run):
            service_of(purse, tmp_path).paid.reclaim()
        assert float(purse.remaining) == 0.75


def test_money_of_a_run_that_is_kept_elsewhere_stays_with_it(tmp_path):
    with Purse(1) as purse:
        for place in ("/elsewhere/runs/other-1", tmp_path, tmp_path / "deeper" / "run-1"):
            purse.child(str(place), 0.25)
        service_of(purse, tmp_path).paid.reclaim()
        assert not any(account.is_closed for account in purse.accounts())


def test_a_problem_folder_is_named_by_its_whole_path_as_runs_save_it(tmp_path, monkeypatch):
    toy = toy_folder(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert named_problems(["toy"]) == {"toy": str(toy)}


def test_a_purse_that_cannot_be_read_is_a_fault_of_the_server(tmp_path, capsys):
    purse = Purse(1, path=tmp_path / "purse.sqlite")
    service = service_of(purse, tmp_path)
    assert service.reaches_purse()
    purse.close()
    assert not service.reaches_purse()
    assert capsys.readouterr().err.startswith("costada: ")


def wait_for_steps(run, number):
    while run.status()["iterations"] < number:
        assert run.thread.is_alive(), run.status()
        time.sleep(0.005)


def stored_service(address, url, toy, folder, **changes):
    """A service with its runs and its purse in a database."""
    model = {"model": "openai:stand-in", "base_url": url, "price": "1,2", "lost_calls": "ignore"}
    settings = RunConfig(problem=str(toy), **model, **changes)
    purse = Purse(1, dsn=address, name="the server's purse")
    return SearchService({"toy": str(toy)}, SearchRequest(settings), purse, folder, address)


@pytest.fixture
def services(postgres_address, tmp_path, monkeypatch):
    """Begin a service on the same database and purse: services(name)."""
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    with better_programs() as provider, taking_time(provider):
        toy, address = toy_folder(tmp_path), shown_address(postgres_address)

        def begin(name, **changes):
            return stored_service(address, provider.url, toy, tmp_path / name, **changes)

        begin.elsewhere = partial(elsewhere, address, provider.url, toy, tmp_path / "elsewhere")
        yield begin


@pytest.fixture
def service(tmp_path, monkeypatch):
    """A service with its runs in folders, a purse of a dollar, and what its provider billed."""
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    with better_programs() as provider, taking_time(provider), Purse(1) as purse:
        toy = str(toy_folder(tmp_path))
        model = {"model": "openai:stand-in", "base_url": provider.url, "price": "1,2"}
        settings = RunConfig(problem=toy, **model)
        given = SearchRequest(settings)
        yield SearchService({"toy": toy}, given, purse, tmp_path / "runs"), provider


def test_a_stopped_run_is_continued_to_its_budget_and_a_finished_one_beyond_it(service):
    service, provider = service
    begun = service.start("toy", 0.02, seed=0)
    wait_for_steps(begun, 2)
    assert service.stop("toy-1") is begun
    begun.wait(60)
    stopped = begun.status()
    assert (stopped["phase"], stopped["purse_left"]) == ("interrupted", 1 - stopped["spent"])
    with pytest.raises(ValueError, match="run 'toy-1', which is interrupted; expected another"):
        service.start("toy", 0.02, seed=0)
    again = service.extend("toy-1", 0)
    with pytest.raises(ValueError, match="'toy-1', which is running; expected one that is not"):
        service.extend("toy-1", 0)
    again.wait(60)
    ended = again.status()
    assert (ended["phase"], ended["spent"], ended["budget"]) == ("finished", 0.02, 0.02)
    with pytest.raises(
        ValueError, match=r"ended \(budget\) and has nothing left to do within \$0.02"
    ):
        service.extend("toy-1", 0)
    more = service.extend("toy-1", 0.01)
    more.wait(60)
    assert (more.status()["spent"], more.status()["budget"]) == (0.03, 0.03)
    assert more.status()["purse_left"] == 0.97
    assert CALL_COST * len(provider.bill) == Decimal("0.03")
    assert service.listed()["runs"] == [more.status()]


def test_a_run_with_broken_settings_leaves_the_others_readable(service):
    service, _ = service
    for seed in (0, 1):
        service.start("toy", 0.002, seed=seed).wait(60)
    later = replace(service, runs={})
    later.run("toy-1").folder.settings.write_text("{")
    assert later.run("toy-2").status()["phase"] == "finished"
    broken = later.run("toy-1").status()
    assert (broken["phase"], "settings" in broken["error"]) == ("unreadable", True)


def test_a_run_with_unreadable_settings_does_not_hinder_a_search(service):
    service, _ = service
    service.start("toy", 0.002, seed=0).wait(60)
    later = replace(service, runs={})
    settings = later.run("toy-1").folder.settings
    settings.unlink()
    settings.symlink_to("/proc/self/mem")  # a regular file whose first byte cannot be read
    assert "Input/output error" in later.run("toy-1").status()["error"]
    begun = later.start("toy", 0.002, seed=1)
    begun.wait(60)
    assert begun.status()["phase"] == "finished"


def slow_folder(parent):
    """A problem whose evaluator takes a minute for every program but the first."""
    folder = parent / "slow"
    folder.mkdir()
    (folder / "problem.md").write_text("Improve it.")
    (folder / "initial_program.py").write_text("first = 0.5\n")
    (folder / "evaluator.py").write_text(
        "import time\n"
        "def evaluate(path):\n"
        "    time.sleep(0 if 'first' in open(path).read() else 60)\n"
        "    return {'combined_score': 0.5}\n"
    )
    return str(folder)


def test_a_service_that_ends_cancels_the_evaluations_of_its_own_runs_only(service, tmp_path):
    service, provider = service
    slow = slow_folder(tmp_path)
    ending, other = (
        replace(service, problems={"slow": slow}, parent=tmp_path / name, runs={}, _ending=Event())
        for name in ("ending", "other")
    )
    evaluating = other.start("slow", 0.02, seed=0)
    within(60, lambda: provider.bill)
    quick, may_answer = provider.default, Event()
    provider.default = lambda body: may_answer.wait(60) and quick(body)
    asking = ending.start("slow", 0.02, seed=0)
    within(60, lambda: len(provider.requests) == 2)
    ending.end(1)
    may_answer.set()
    asking.wait(60)
    assert asking.status()["phase"] == "interrupted"
    assert evaluating.status()["phase"] == "running"
    other.end(30)
    assert evaluating.status()["phase"] == "interrupted"


@pytest.mark.parametrize(
    ("dollars", "said"), [(-1, "finite number of at least 0"), (float("inf"), "finite number")]
)
def test_a_run_is_continued_only_with_dollars(service, dollars, said):
    service, _ = service
    service.start("toy", 0.002, seed=0).wait(60)
    with pytest.raises(ValueError, match=f"dollars: got {dollars:g}, expected a {said}"):
        service.extend("toy-1", dollars)


def test_a_run_is_continued_as_far_as_the_purse_has_dollars(service):
    service, _ = service
    service.start("toy", 0.002, seed=0).wait(60)
    with service.purse.child("other", 0.994) as other:
        assert float(other.budget) == 0.994
        more = service.extend("toy-1", 10)
        assert more.status()["budget"] == 0.006
        more.wait(60)
        with pytest.raises(
            ValueError, match=r"dollars: got 10 .* but the purse has \$0 left for it"
        ):
            service.extend("toy-1", 10)


def test_no_server_resumes_by_itself_what_a_client_has_stopped(services):
    first, second = services("first"), services("second")
    begun = first.start("toy", 0.02, seed=0)
    wait_for_steps(begun, 2)
    with pytest.raises(ValueError, match="'toy-1', which another process works on; stop it there"):
        second.stop("toy-1")
    first.stop("toy-1")
    begun.wait(60)
    second.follow()
    other = second.start("toy", 0.002, seed=1)
    other.wait(60)
    assert second.run("toy-1").status()["phase"] == "interrupted"
    second.extend("toy-1", 0).wait(60)
    assert second.run("toy-1").status()["spent"] == 0.02
    second.end(1)


def test_another_server_resumes_a_run_whose_server_has_ended_and_pays_from_the_same_account(
    services,
):
    first, second = services("first"), services("second")
    begun = first.start("toy", 0.02, seed=0)
    wait_for_steps(begun, 2)
    assert second.run("toy-1").status()["phase"] == "running"
    first.end(30)
    assert first.run("toy-1").status()["phase"] == "interrupted"
    assert float(first.purse.remaining) == 1 - first.run("toy-1").status()["spent"]
    second.follow()
    while (view := second.run("toy-1")).status()["phase"] in ("interrupted", "running"):
        view.wait(0.1)
    status = view.status()
    assert (status["phase"], status["stop_reason"]) == ("finished", "budget")
    assert status["spent"] == 0.02
    assert float(second.purse.spent) == 0.02
    assert float(second.purse.remaining) == 0.98
    seen = services("third").run("toy-1")
    assert {**seen.status(), "folder": ""} == {**status, "folder": ""}
    assert best_program_of(seen)["program"] == best_program_of(view)["program"]
    second.end(1)


@contextmanager
def elsewhere(address, url, toy, folder, work):
    """Yield what another process says that works as a server on the same database."""
    said, end = PROCESSES.Pipe(duplex=False)
    process = PROCESSES.Process(target=serve, args=(address, url, toy, folder, work, end))
    process.start()
    end.close()
    try:
        yield said
    finally:
        process.kill()
        process.join()


def serve(address, url, toy, folder, work, said):
    os.environ["OPENAI_API_KEY"] = "none"
    work(stored_service(address, url, toy, folder), said)


def stored(service):
    return StoredRun(service.parent / "toy-1", RunAddress(service.store, "toy-1"))


def claim_late(service, said):
    """Take the name of a run that begins a moment later."""
    run = stored(service)
    with run.hold():
        said.send("held")
        time.sleep(2.5)
        run.claim(service.settings)
    said.send("claimed")


def take_over(service, said):
    """Hold a run as soon as it has begun and that is possible, and do nothing."""
    said.send("ready")
    while True:
        with suppress(ValueError):
            service.run("toy-1")
            with stored(service).hold():
                said.send("held")
                time.sleep(60)


def follow_to_the_end(service, said):
    """Resume the run and say how it ended."""
    said.send("ready")
    service.follow()
    said.send(end_of(service))


def end_of(service):
    while (status := service.run("toy-1").status())["phase"] in ("interrupted", "running"):
        time.sleep(0.05)
    return status


def test_a_name_that_another_server_takes_is_left_to_it(services):
    service = services("here", preflight=False)
    service.check()  # loads what takes long
    with services.elsewhere(claim_late) as said:
        assert said.recv() == "held"
        begun = service.start("toy", 0.004, seed=0)
        assert said.recv() == "claimed"
    begun.wait(60)
    assert (begun.name, begun.status()["phase"]) == ("toy-2", "finished")
    assert [account.name for account in service.purse.accounts()[1:2]] == ["toy-2"]


def test_a_client_gets_no_more_than_it_asked_for_where_a_dead_server_had_drawn_more(services):
    service = services("here")
    service.purse.child("toy-1", 0.5)
    begun = service.start("toy", 0.004, seed=0)
    begun.wait(60)
    status = begun.status()
    assert (status["run"], status["budget"], status["spent"]) == ("toy-1", 0.004, 0.004)
    assert stored(service).load().budget == 0.004
    assert service.purse.remaining == Decimal("0.996")


def check_resumed(service):
    """An interrupted run of $0.06 is resumed to its end, and paid for once."""
    assert service.run("toy-1").status()["phase"] == "interrupted"
    service.follow()
    status = end_of(service)
    assert (status["phase"], status["spent"]) == ("finished", 0.06)
    assert service.purse.spent == Decimal("0.06")
    service.end(1)


def test_a_run_that_another_process_took_over_is_resumed_after_that_one_has_died(
    services, postgres_address
):
    service = services("here")
    with services.elsewhere(take_over) as said:
        assert said.recv() == "ready"
        begun = service.start("toy", 0.06, seed=0)
        wait_for_steps(begun, 1)
        with psycopg.connect(postgres_address, autocommit=True) as connection:
            # the connection of the lease is cut, as by a network failure
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory'"
                " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
            )
        assert said.recv() == "held"
        begun.wait(60)
        assert "this process has lost the run" in begun.status()["error"]
        assert service.run("toy-1").status()["phase"] == "running"
    check_resumed(service)


def test_two_servers_that_find_one_interrupted_run_report_it_as_it_is(services):
    first, second = services("first"), services("second")
    wait_for_steps(first.start("toy", 0.02, seed=0), 2)
    first.end(30)
    with services.elsewhere(follow_to_the_end) as said:
        assert said.recv() == "ready"
        second.follow()
        here, there = end_of(second), said.recv()
    assert {**here, "folder": ""} == {**there, "folder": ""}
    assert (here["phase"], here["spent"]) == ("finished", 0.02)
    assert second.purse.remaining == Decimal("0.98")
    second.end(1)


def test_no_run_begins_while_a_server_ends(services):
    service = services("here")
    service.end(0)
    with pytest.raises(ValueError, match="the server is ending"):
        service.start("toy", 0.02, seed=0)
    assert len(service.purse.accounts()) == 1


def test_a_run_whose_connections_are_cut_continues_by_itself(services, postgres_address):
    service = services("here")
    begun = service.start("toy", 0.06, seed=0)
    wait_for_steps(begun, 1)
    with psycopg.connect(postgres_address, autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
    status = end_of(service)
    assert (status["phase"], status["spent"]) == ("finished", 0.06)
    assert service.purse.spent == Decimal("0.06")
    service.end(1)
