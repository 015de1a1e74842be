"""Servers of a queue take each job once, resume what others left, and pay from teams' purses."""

from math import inf
from time import monotonic

import psycopg
import pytest
from billing_server import BillingServer, Page, Refusal
from crash_runs import Provider
from fakes import toy_folder
from judged_problems import judged_folder
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
from costada.agents.run_server import POLL_SECONDS
from costada.agents.teams import Team
from costada.runs.shared_purse import PurseAddress
from costada.runs.stored_run import lease_name
from costada.store.address import shown_address
from costada.store.job_queue import JobQueue
from costada.store.rows import CallStatus
from costada.store.run_store import RunStore

pytestmark = pytest.mark.process

SECONDS = 60
TOY = {"budget": 0.05}
"""A run of some ten calls."""

TEAMS = {"red": Team(budget=100), "blue": Team(budget=100)}


def check_paid(database, provider):
    """The team "red" has paid what was billed, and has the rest of its $100."""
    spent, left = purse_of(database, "red")
    assert spent == ledger_of(database, "red") == provider.bill > 0
    assert left == 100 - spent


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

    def begun(teams=TEAMS, machine="", **settings):
        for name, team in teams.items():
            PurseAddress(database, name).create(team.budget, "crossing").close()
        words = database, billing.url, tmp_path / machine, teams
        processes.append(begun_server(*words, **settings))
        return processes[-1]

    yield begun
    for process in processes:
        process.kill()
        process.join()


def job_of(database):
    """The only job."""
    with JobQueue(database) as queue:
        [job] = queue.jobs()
    return job


def test_jobs_of_two_teams_end_and_each_team_pays_for_its_own(begin, database, provider):
    begin(at_once=3)
    for team in TEAMS:
        names = add_jobs(database, team, "toy", TOY, range(3), name=team)
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
    add_jobs(database, "red", "toy", TOY, range(3), name="red")
    add_jobs(database, "red", "toy", TOY, [7], priority=5, name="urgent")
    add_jobs(database, "blue", "toy", TOY, range(2), name="blue")
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
    add_jobs(database, "red", "toy", {**TOY, "budget": 0.2}, range(3))
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
    add_jobs(database, "red", "toy", {**TOY, "budget": 0.2}, range(3))
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
    first, second = add_jobs(database, "red", "toy", {**TOY, "budget": 5}, range(2))
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


def test_a_server_that_ends_keeps_its_runs_from_others_until_they_are_saved(
    begin, database, provider
):
    ended = begin()
    add_jobs(database, "red", "toy", {"budget": 0.2}, range(3))
    within(SECONDS, lambda: provider.billed.total() >= 8)
    provider.last_answered = 0  # calls in flight take long
    begin()
    with JobQueue(database) as queue:
        within(SECONDS, lambda: len(queue.live_servers()) == 2)
        ended.terminate()
        # the other one looks for jobs three times
        end = monotonic() + 3 * POLL_SECONDS
        within(SECONDS, lambda: monotonic() > end)
        assert {*states(database).values()} == {"running"}
        provider.last_answered = inf
        ended.join(SECONDS)
    within(SECONDS, lambda: have_ended(database))
    assert {*states(database).values()} == {"finished"}
    spent, left = purse_of(database, "red")
    assert (spent, left) == (provider.bill, 100 - provider.bill)


@pytest.mark.parametrize("parallel", [1, 4])
def test_a_server_with_a_wrong_key_ends_and_another_one_does_its_jobs(
    begin, database, billing, provider, monkeypatch, parallel
):
    billing.refused_key = "wrong"
    monkeypatch.setenv("OPENAI_API_KEY", "wrong")
    refused = begin(parallel=parallel)
    add_jobs(database, "red", "toy", TOY, range(8))
    refused.join(SECONDS)
    assert refused.exitcode == 1  # with what `serve` raises
    assert {*states(database).values()} == {"waiting"}
    with JobQueue(database) as queue:
        errors = {job.error for job in queue.jobs()}
        assert queue.live_servers() == []
    assert any("refused the request with status 401" in each for each in errors)
    assert purse_of(database, "red") == (0, 100)
    monkeypatch.setenv("OPENAI_API_KEY", "right")
    begin(parallel=parallel)
    within(SECONDS, lambda: have_ended(database))
    assert {*states(database).values()} == {"finished"}
    check_paid(database, provider)


def test_a_key_that_is_revoked_lets_all_runs_of_a_server_save(
    begin, database, billing, provider, monkeypatch
):
    monkeypatch.setenv("OPENAI_API_KEY", "revoked")
    refused = begin()
    add_jobs(database, "red", "toy", {"budget": 0.2}, range(4))
    within(SECONDS, lambda: provider.billed.total() >= 12)
    billing.refused_key = "revoked"
    refused.join(SECONDS)
    assert refused.exitcode == 1
    assert {*states(database).values()} == {"waiting"}
    monkeypatch.setenv("OPENAI_API_KEY", "new")
    begin()
    within(SECONDS, lambda: have_ended(database))
    assert {*states(database).values()} == {"finished"}
    check_paid(database, provider)


@pytest.mark.parametrize(
    ("refusal", "parallel"),
    [
        (Refusal(404, "no such model"), 1),
        (Refusal(404, "no such model"), 4),
        (Refusal(429, "no money", code="insufficient_quota"), 1),
    ],
)
def test_jobs_of_a_server_whose_model_or_account_is_refused_are_done_with_another_model(
    begin, database, billing, provider, refusal, parallel
):
    billing.default = lambda body: provider.answer(body) if body["model"] == "stand-in" else refusal
    refused = begin(model="openai:misspelt", parallel=parallel)
    add_jobs(database, "red", "toy", TOY, range(4))
    refused.join(SECONDS)
    assert refused.exitcode == 1
    assert {*states(database).values()} == {"waiting"}
    begin(parallel=parallel)
    within(SECONDS, lambda: have_ended(database))
    assert {*states(database).values()} == {"finished"}
    check_paid(database, provider)


GATED = """import time
from pathlib import Path


def score(output):
    while not Path(r"{gate}").exists():
        time.sleep(0.01)
    return {{"combined_score": output}}
"""


def test_a_run_that_a_refused_server_has_only_begun_is_done_with_another_model(
    begin, database, billing, provider, tmp_path
):
    """A second run is planned until the first one was refused; it begins, and asks nothing."""
    gate = tmp_path / "gate"
    folder = toy_folder(tmp_path, "gated", GATED.format(gate=gate))
    billing.default = lambda body: (
        provider.answer(body) if body["model"] == "stand-in" else Refusal(404)
    )
    refused = begin(model="openai:misspelt", folders={"gated": str(folder)})
    [second] = add_jobs(database, "red", "gated", TOY, [0])
    within(SECONDS, lambda: states(database)[second] == "running")
    [first] = add_jobs(database, "red", "toy", TOY, [0])
    with JobQueue(database) as queue:
        within(SECONDS, lambda: "404" in queue.jobs_of([first])[0].error)
    gate.touch()
    refused.join(SECONDS)
    assert refused.exitcode == 1
    with JobQueue(database) as queue:
        assert queue.jobs_of([second])[0].has_begun
    assert purse_of(database, "red") == (0, 100)
    begin(folders={"gated": str(folder)})
    within(SECONDS, lambda: have_ended(database))
    assert {*states(database).values()} == {"finished"}


SLOW_PROGRAM = "import time\n\n\ndef value():\n    time.sleep(600)\n"


def test_a_refused_server_leaves_what_others_have_under_the_name_of_a_job_that_has_not_begun(
    begin, database, billing, tmp_path
):
    folder = toy_folder(tmp_path, "slow")
    (folder / "initial_program.py").write_text(SLOW_PROGRAM)
    billing.default = Refusal(404)
    refused = begin(folders={"slow": str(folder)})
    [second] = add_jobs(database, "red", "slow", TOY, [0])
    other = tmp_path / second / "settings.json"
    other.parent.mkdir()
    other.touch()
    with JobQueue(database) as queue, RunStore.postgres(database) as store:
        assert store.named.claim(second, "{}")
        within(SECONDS, lambda: states(database)[second] == "running")
        add_jobs(database, "red", "toy", TOY, [0])  # is refused while the second one is planned
        refused.join(SECONDS)
        assert refused.exitcode == 1
        assert not queue.jobs_of([second])[0].has_begun
        assert store.named.settings(second) == "{}"
    assert other.exists()


def test_jobs_of_a_server_whose_address_is_no_chat_api_are_released(begin, database, billing):
    billing.default = Page()
    refused = begin()
    add_jobs(database, "red", "toy", TOY, range(4))
    refused.join(SECONDS)
    assert refused.exitcode == 1
    assert {*states(database).values()} == {"waiting"}


def test_a_request_that_is_refused_for_its_content_fails_only_its_job(
    begin, database, billing, provider
):
    billing.script(Refusal(400, "too long"))
    serving = begin({"red": Team(budget=9, at_once=1)})
    first, second = add_jobs(database, "red", "toy", TOY, range(2))
    within(SECONDS, lambda: have_ended(database))
    assert states(database) == {first: "failed", second: "finished"}
    assert serving.is_alive()


def errors_of(database):
    with JobQueue(database) as queue:
        return [job.error for job in queue.jobs()]


class Away(Provider):
    """Answers so many requests, and no more until it is back."""

    num_answers, is_back = 0, False

    def answer(self, body):
        if self.billed.total() >= self.num_answers and not self.is_back:
            return Refusal(503)
        return super().answer(body)


@pytest.mark.parametrize("parallel", [1, 4])
@pytest.mark.parametrize(
    ("num_answers", "reason"), [(0, "got a usable answer"), (8, "for longest_pause")]
)
def test_jobs_are_tried_again_after_an_outage_that_is_longer_than_a_run_waits(
    num_answers, reason, parallel, begin, database, billing
):
    provider = Away()
    provider.num_answers = num_answers
    billing.default = provider.answer
    serving = begin(longest_pause=0.5, retry_seconds=0.5, parallel=parallel, gateway=False)
    names = add_jobs(database, "red", "toy", TOY, range(2))
    within(SECONDS, lambda: any(reason in each for each in errors_of(database)))
    provider.is_back = True
    within(SECONDS, lambda: have_ended(database))
    assert states(database) == dict.fromkeys(names, "finished")
    assert serving.is_alive()
    spent, _ = purse_of(database, "red")
    assert spent == ledger_of(database, "red") == provider.bill


@pytest.mark.parametrize("parallel", [1, 4])
def test_jobs_are_tried_again_when_their_machine_can_start_threads_again(
    parallel, begin, database, provider, tmp_path
):
    threadless = tmp_path / "threadless"
    serving = begin(threadless=threadless, retry_seconds=0.5, parallel=parallel)
    first = add_jobs(database, "red", "toy", {"budget": 0.2}, [0])
    within(SECONDS, lambda: provider.billed.total() >= 4)
    threadless.touch()
    second = add_jobs(database, "red", "toy", TOY, [0])
    within(SECONDS, lambda: any("start new thread" in each for each in errors_of(database)))
    threadless.unlink()
    within(SECONDS, lambda: have_ended(database))
    assert states(database) == dict.fromkeys([*first, *second], "finished")
    assert serving.is_alive()
    check_paid(database, provider)


def test_a_model_of_a_problem_that_its_provider_does_not_know_fails_only_jobs_of_the_problem(
    begin, database, billing, provider, tmp_path
):
    judged = judged_folder(tmp_path / "judged", billing.url)
    billing.default = lambda body: (
        provider.answer(body) if body["model"] == "stand-in" else Refusal(404)
    )
    serving = begin({"red": Team(budget=9, at_once=1)}, folders={"judged": str(judged)})
    [first] = add_jobs(database, "red", "judged", TOY, [0])
    [second] = add_jobs(database, "red", "toy", TOY, [0])
    within(SECONDS, lambda: have_ended(database))
    assert states(database) == {first: "failed", second: "finished"}
    with JobQueue(database) as queue:
        assert "Error code: 404" in queue.jobs()[0].error
    assert serving.is_alive()


def test_a_run_that_somebody_holds_is_tried_again(begin, database):
    PurseAddress(database, "red").create(9, "crossing").close()
    [name] = add_jobs(database, "red", "toy", TOY, [0])
    with RunStore.postgres(database) as store:
        lease = store.hold(lease_name(name))
        begin(retry_seconds=0.5)
        within(SECONDS, lambda: "another process is at work" in job_of(database).error)
        lease.release()
    within(SECONDS, lambda: have_ended(database))
    assert states(database) == {name: "finished"}


def test_a_killed_run_that_no_server_can_go_on_with_returns_what_is_left(begin, database, provider):
    killed = begin(purse_slice=1.0)
    add_jobs(database, "red", "toy", {"budget": 5}, [0])
    within(SECONDS, lambda: provider.billed.total() >= 3)
    killed.kill()
    killed.join()
    spent, left = purse_of(database, "red")
    assert (spent, left) == (1, 95)
    with psycopg.connect(database) as connection:  # a setting that no job may choose
        connection.execute('UPDATE costada.costada_job SET chosen = \'{"sandbox": "none"}\'')
    begin()
    within(SECONDS, lambda: have_ended(database))
    assert job_of(database).ended == "failed"
    assert job_of(database).error.startswith("job: chooses sandbox, expected problem, budget")
    spent, left = purse_of(database, "red")
    assert spent == ledger_of(database, "red") >= provider.bill
    assert left == 100 - spent


def test_a_killed_run_that_is_cancelled_returns_what_is_left(begin, database, provider):
    killed = begin(purse_slice=1.0)
    [name] = add_jobs(database, "red", "toy", {"budget": 5}, [0])
    within(SECONDS, lambda: provider.billed.total() >= 3)
    killed.kill()
    killed.join()
    with JobQueue(database) as queue:
        assert queue.cancel(name)
    begin()
    within(SECONDS, lambda: have_ended(database))
    assert states(database) == {name: "cancelled"}
    spent, left = purse_of(database, "red")
    assert spent == ledger_of(database, "red") >= provider.bill
    assert left == 100 - spent


def test_a_run_that_has_paid_is_not_resumed_with_other_settings(begin, database, provider):
    killed = begin()
    [name] = add_jobs(database, "red", "toy", TOY, [0])
    within(SECONDS, lambda: ledger_of(database, "red") > 0)
    killed.kill()
    killed.join()
    num_billed = provider.billed.total()
    begin(retry_wait=0.02)
    within(SECONDS, lambda: "other settings than this server has" in job_of(database).error)
    assert job_of(database).error.endswith(": retry_wait was 0.01, got 0.02")
    assert states(database) == {name: "waiting"}
    assert provider.billed.total() == num_billed


@pytest.mark.parametrize("parallel", [1, 4])
def test_a_run_that_has_bought_nothing_begins_anew_with_the_settings_of_the_server(
    parallel, begin, database, provider
):
    mistyped = begin(base_url="http://127.0.0.1:9/v1", parallel=parallel)
    names = add_jobs(database, "red", "toy", TOY, range(2))
    within(SECONDS, lambda: all("got a usable answer" in each for each in errors_of(database)))
    mistyped.terminate()
    mistyped.join(SECONDS)
    begin(parallel=parallel, retry_seconds=0.5)
    within(SECONDS, lambda: have_ended(database))
    assert states(database) == dict.fromkeys(names, "finished")
    check_paid(database, provider)


@pytest.mark.parametrize("parallel", [1, 4])
def test_a_machine_where_a_run_bought_nothing_resumes_the_one_that_has_its_name_since(
    parallel, begin, database, provider
):
    mistyped = begin(base_url="http://127.0.0.1:9/v1", machine="first", parallel=parallel)
    [name] = add_jobs(database, "red", "toy", {"budget": 0.2}, [0])
    within(SECONDS, lambda: "got a usable answer" in job_of(database).error)
    mistyped.terminate()
    mistyped.join(SECONDS)
    killed = begin(machine="second", parallel=parallel)
    within(SECONDS, lambda: provider.billed.total() >= 8)
    killed.kill()
    killed.join()
    begin(machine="first", parallel=parallel)
    within(SECONDS, lambda: have_ended(database))
    assert job_of(database).error == ""
    assert states(database) == {name: "finished"}


def test_a_job_that_has_not_begun_is_cancelled_without_a_server(begin, database):
    PurseAddress(database, "red").create(9, "crossing").close()
    [name] = add_jobs(database, "red", "toy", TOY, [0])
    with JobQueue(database) as queue:
        assert queue.cancel(name)
        assert states(database) == {name: "cancelled"}


def test_jobs_wait_for_a_server_that_offers_their_problem(begin, database):
    PurseAddress(database, "red").create(9, "crossing").close()
    add_jobs(database, "red", "other", TOY, [0])  # no server is there to ask
    begin()
    with JobQueue(database) as queue:
        within(SECONDS, lambda: queue.offered() == {"toy"})
    [name] = add_jobs(database, "red", "toy", TOY, [0])
    within(SECONDS, lambda: states(database)[name] == "finished")
    assert states(database) == {"other-1": "waiting", name: "finished"}
    with pytest.raises(ValueError, match="Unknown problem 'other'"):
        add_jobs(database, "red", "other", TOY, [1])


def test_where_a_team_has_too_little_a_run_ends_as_unpaid(begin, database):
    begin({"poor": Team(budget=0.01)})
    add_jobs(database, "poor", "toy", TOY, range(2))
    within(SECONDS, lambda: have_ended(database))
    with JobQueue(database) as queue:
        # one takes what there is and crosses it; for the other nothing is left
        paid, unpaid = sorted((job.ended, job.error) for job in queue.jobs())
        assert paid == ("budget", "")
        assert unpaid[0] == "unpaid"
        assert "'poor' has $0 left" in unpaid[1]
        assert len(order_of_starts(database)) == 1  # the other one is no run
        assert queue.retry("failed") == queue.retry("toy-9") == 0
        PurseAddress(database, "poor").create(1, "crossing").close()
        assert queue.retry("unpaid") == 1
    within(SECONDS, lambda: have_ended(database))
    assert {*states(database).values()} == {"finished"}


def test_a_name_that_another_run_has_taken_since_is_left_to_it(begin, database):
    PurseAddress(database, "red").create(9, "crossing").close()
    [name] = add_jobs(database, "red", "toy", TOY, [0])
    with RunStore.postgres(database) as store:
        assert store.named.claim(name, "{}")
    begin({"red": Team(budget=9)})
    within(SECONDS, lambda: have_ended(database))
    assert job_of(database).ended == "failed"
    assert f"#{name}" in job_of(database).error


def test_jobs_are_added_all_or_none_under_names_that_are_free(begin, database):
    begin()
    assert add_jobs(database, "red", "toy", TOY, range(2)) == ["toy-1", "toy-2"]
    assert add_jobs(database, "red", "toy", TOY, [5]) == ["toy-3"]
    add_jobs(database, "red", "toy", TOY, range(2), name="mine")
    with pytest.raises(ValueError, match="name: got 'mine', but 'mine/seed-1' is taken"):
        add_jobs(database, "red", "toy", TOY, range(1, 4), name="mine")
    add_jobs(database, "red", "toy", TOY, range(2), name="toy-4")  # two below it
    assert add_jobs(database, "red", "toy", TOY, range(2)) == ["toy-5", "toy-6"]
    with pytest.raises(ValueError, match="team: got 'green', expected a team of its servers"):
        add_jobs(database, "green", "toy", TOY, range(2))
    with pytest.raises(ValueError, match="seeds: got 4, 4, expected different ones"):
        add_jobs(database, "red", "toy", TOY, [4, 4])
    for name in ("mine", "toy-1/below"):
        with pytest.raises(ValueError, match=f"name: got '{name}', but"):
            add_jobs(database, "red", "toy", TOY, [9], name=name)
    with pytest.raises(ValueError, match="name: got 'failed', which stands for all jobs"):
        add_jobs(database, "red", "toy", TOY, [9], name="failed")
    with pytest.raises(ValueError, match=r"budget: got 1e\+30, expected at least 1e-9 and less"):
        add_jobs(database, "red", "toy", {"budget": 1e30}, [9])
    with pytest.raises(ValueError, match=r"problem: got 'a\\tb', expected printable"):
        add_jobs(database, "red", "a\tb", TOY, [9])
    with pytest.raises(ValueError, match="budget"):
        add_jobs(database, "red", "toy", {**TOY, "budget": -1}, range(2))
    with pytest.raises(ValueError, match=r"name: got the name '\.\./up'"):
        add_jobs(database, "red", "toy", TOY, [0], name="../up")
    expected = {"toy-1", "toy-2", "toy-3", "toy-4/seed-0", "toy-4/seed-1", "toy-5", "toy-6"}
    assert states(database).keys() == {*expected, "mine/seed-0", "mine/seed-1"}
