"""Servers of a queue take each job once, resume what others left, and pay from teams' purses."""

from math import inf

import pytest
from billing_server import BillingServer
from crash_runs import Provider
from queue_servers import (
    begun_server,
    have_ended,
    ledger_of,
    order_of_starts,
    purse_of,
    states,
    statuses_of_calls,
)
from waiting import within

from costada.agents.job_clients import add_jobs
from costada.agents.teams import Team
from costada.runs.shared_purse import PurseAddress
from costada.store.address import shown_address
from costada.store.job_queue import JobQueue
from costada.store.rows import CallStatus
from costada.store.run_store import RunStore

pytestmark = pytest.mark.process

SECONDS = 60
TOY = {"problem": "toy", "budget": 0.05}
"""A run of some ten calls."""

TEAMS = {"red": Team(budget=100), "blue": Team(budget=100)}


@pytest.fixture
def provider():
    return Provider()


@pytest.fixture
def billing(provider):
    with BillingServer(default=provider.answer) as server:
        yield server


@pytest.fixture
def database(postgres_address):
    """The address as runs in it need it."""
    return shown_address(postgres_address)


@pytest.fixture
def begin(database, billing, tmp_path, monkeypatch):
    """Begins a server, which is killed at the end."""
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    processes = []

    def begun(teams=TEAMS, **settings):
        for name, team in teams.items():
            PurseAddress(database, name).create(team.budget, "crossing").close()
        words = database, billing.url, tmp_path, teams
        processes.append(begun_server(*words, **settings))
        return processes[-1]

    yield begun
    for process in processes:
        process.kill()
        process.join()


def test_jobs_of_two_teams_end_and_each_team_pays_for_its_own(begin, database, provider):
    begin(at_once=3)
    for team in TEAMS:
        names = add_jobs(database, team, TOY, range(3), name=team)
        assert names == [f"{team}/seed-{seed}" for seed in range(3)]
    within(SECONDS, lambda: have_ended(database))
    assert {*states(database).values()} == {"finished"}
    paid = [purse_of(database, team) for team in TEAMS]
    assert sum(spent for spent, _ in paid) == provider.bill
    for team, (spent, left) in zip(TEAMS, paid, strict=True):
        assert spent == ledger_of(database, team) > 0
        assert left == 100 - spent


def test_jobs_start_by_priority_and_no_team_exceeds_its_quota(begin, database, provider):
    provider.last_answered = 0  # runs that have started go on until this is raised
    teams = {"red": Team(budget=9, at_once=2), "blue": Team(budget=9, at_once=1, priority=1)}
    for name, team in teams.items():
        PurseAddress(database, name).create(team.budget, "crossing").close()
    add_jobs(database, "red", TOY, range(3), name="red")
    add_jobs(database, "red", TOY, [7], priority=5, name="urgent")
    add_jobs(database, "blue", TOY, range(2), name="blue")
    begin(teams)
    begin(teams)
    expected = {"blue/seed-0", "urgent", "red/seed-0"}
    within(SECONDS, lambda: expected == {*order_of_starts(database)})
    begin(teams)  # one more changes nothing, as all quotas are used
    with JobQueue(database) as queue:
        within(SECONDS, lambda: len(queue.live_servers()) == 3)
    within(SECONDS, lambda: provider.billed.total() >= 3)
    assert {run for run, state in states(database).items() if state == "running"} == expected
    provider.last_answered = inf
    within(SECONDS, lambda: have_ended(database))
    assert {*states(database).values()} == {"finished"}


@pytest.mark.parametrize("parallel", [1, 8])
def test_another_server_resumes_what_a_killed_one_left_and_pays_for_nothing_twice(
    begin, database, provider, parallel
):
    killed = begin(parallel=parallel)
    add_jobs(database, "red", {**TOY, "budget": 0.2}, range(3))
    within(SECONDS, lambda: provider.billed.total() >= 8)
    killed.kill()
    killed.join()
    begin(parallel=parallel)
    within(SECONDS, lambda: have_ended(database))
    assert {*states(database).values()} == {"finished"}
    spent, left = purse_of(database, "red")
    assert spent == ledger_of(database, "red") >= provider.bill
    assert left == 100 - spent
    # what was in flight at the kill counts at its upper bound; all else is known to the cent
    calls = statuses_of_calls(database)
    assert calls.total() >= provider.billed.total()
    assert calls[CallStatus.LOST] <= 3 * parallel


def test_a_server_that_is_told_to_end_gives_its_runs_back_exactly(begin, database, provider):
    ended = begin()
    add_jobs(database, "red", {**TOY, "budget": 0.2}, range(3))
    within(SECONDS, lambda: provider.billed.total() >= 8)
    ended.terminate()
    ended.join(SECONDS)
    assert ended.exitcode == 0
    assert {*states(database).values()} == {"waiting"}
    begin()
    within(SECONDS, lambda: have_ended(database))
    spent, _ = purse_of(database, "red")
    assert spent == ledger_of(database, "red") == provider.bill
    assert statuses_of_calls(database) == {CallStatus.DONE: provider.billed.total()}


def test_cancelled_jobs_end_and_what_is_left_returns_to_the_team(begin, database, provider):
    provider.last_answered = 2
    begin({"red": Team(budget=9, at_once=1)})
    first, second = add_jobs(database, "red", {**TOY, "budget": 5}, range(2))
    within(SECONDS, lambda: provider.billed.total() > 2)
    with JobQueue(database) as queue:
        assert queue.cancel(first)
        assert queue.cancel(second)
        provider.last_answered = inf
        within(SECONDS, lambda: have_ended(database))
        assert states(database) == {first: "cancelled", second: "cancelled"}
        assert not queue.cancel(first)
        assert not queue.cancel("nobody")
    spent, left = purse_of(database, "red")
    assert spent == ledger_of(database, "red") == provider.bill
    assert left == 9 - spent
    assert order_of_starts(database) == [first]


def test_what_cannot_run_fails_with_its_reason_and_the_others_go_on(begin, database, provider):
    begin({"red": Team(budget=100), "poor": Team(budget=0.01)})
    unknown = add_jobs(database, "red", {**TOY, "problem": "nothing"}, [0], name="unknown")
    first = add_jobs(database, "poor", TOY, range(2), name="poor")
    within(SECONDS, lambda: have_ended(database))
    with JobQueue(database) as queue:
        jobs = {job.run: (job.ended, job.error) for job in queue.jobs()}
    assert jobs.pop(*unknown) == ("failed", "Unknown problem 'nothing'. Known: toy.")
    # one takes what there is and crosses it; for the other nothing is left
    paid, unpaid = sorted(jobs[name] for name in first)
    assert paid == ("budget", "")
    assert unpaid[0] == "unpaid"
    assert "'poor' has $0 left" in unpaid[1]


def test_a_name_that_another_run_has_taken_since_is_left_to_it(begin, database):
    teams = {"red": Team(budget=9)}
    PurseAddress(database, "red").create(9, "crossing").close()
    [name] = add_jobs(database, "red", TOY, [0])
    with RunStore.postgres(database) as store:
        assert store.named.claim(name, "{}")
    begin(teams)
    within(SECONDS, lambda: have_ended(database))
    with JobQueue(database) as queue:
        [job] = queue.jobs()
    assert job.ended == "failed"
    assert f"#{name}" in job.error


def test_jobs_are_added_all_or_none_under_names_that_are_free(begin, database):
    begin()
    assert add_jobs(database, "red", TOY, range(2)) == ["toy-1", "toy-2"]
    assert add_jobs(database, "red", TOY, [5]) == ["toy-3"]
    add_jobs(database, "red", TOY, range(2), name="mine")
    with pytest.raises(ValueError, match="--name: got 'mine', but 'mine/seed-1' is taken"):
        add_jobs(database, "red", TOY, range(1, 4), name="mine")
    with pytest.raises(ValueError, match="--team: got 'green', expected a team of its servers"):
        add_jobs(database, "green", TOY, range(2))
    with pytest.raises(ValueError, match="budget"):
        add_jobs(database, "red", {**TOY, "budget": -1}, range(2))
    with pytest.raises(ValueError, match=r"got the name '\.\./up'"):
        add_jobs(database, "red", TOY, [0], name="../up")
    expected = {"toy-1", "toy-2", "toy-3", "mine/seed-0", "mine/seed-1"}
    assert states(database).keys() == expected
