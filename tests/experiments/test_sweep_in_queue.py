"""Sweeps whose runs are jobs of a queue, with servers, commands and kills as users have them."""

import json
import shutil
import signal

import pytest
from begun_commands import BegunCommand
from postgres_server import started_server
from queue_servers import claim_all, num_connections, purse_of, states
from waiting import within

from costada.runs.shared_purse import PurseAddress
from costada.store.address import shown_address
from costada.store.job_queue import JobQueue
from costada.store.run_store import RunStore

pytestmark = pytest.mark.process

SECONDS = 120
FINISHED, FAILED, REFUSED, INTERRUPTED = 0, 1, 2, 130
NAMES = ["sweep/near/seed-0", "sweep/near/seed-1"]
METHOD, ITERATIONS = "uniform", 3


@pytest.fixture
def database(postgres_address):
    return shown_address(postgres_address)


@pytest.fixture
def words(database, tmp_path):
    """A sweep of two runs, which a purse pays for whose server need not be there."""
    PurseAddress(database, "red").create(1, "crossing").close()
    place = "--out", tmp_path / "sweep", "--store", database
    own = "--problems", "near", "--seeds", 2, "--budget", 0.3
    return ["sweep", *own, *place, "--on", "queue", "--team", "red"]


@pytest.fixture
def serve(database, near, tmp_path):
    """Begins a server with its own settings, which ends with the test."""
    begun = []

    def begin(*more):
        teams = tmp_path / "teams.toml"
        teams.write_text("[red]\nbudget = 1\n")
        own = "--problems", near, "--method", METHOD, "--max-iterations", ITERATIONS
        place = "--teams", teams, "--out", tmp_path / "runs"
        output = tmp_path / f"server{len(begun)}.txt"
        begun.append(BegunCommand(output, "serve", database, *place, *own, *more))
        begun[-1].wait_for("at most 100 runs at once")
        return begun[-1]

    yield begin
    for each in begun:
        each.send_signal(signal.SIGKILL)
        each.exit_code()


def begun_sweep(words, tmp_path):
    """A sweep whose jobs are in the queue, and the text of its process."""
    return BegunCommand(tmp_path / "said.txt", *words)


def runs_of(result):
    return [(run["seed"], run["status"], run["error"]) for run in json.loads(result.stdout)]


def is_waiting(database):
    """Whether both jobs are there and wait."""
    try:
        return states(database) == dict.fromkeys(NAMES, "waiting")
    except ValueError:  # there are no tables yet
        return False


def test_a_sweep_is_executed_by_servers_with_their_settings(serve, words, database, invoke):
    serve()
    result = invoke(*words, "--json")
    assert result.exit_code == FINISHED, result.output
    assert "Largest bill from here on: $0.6 = 2 x $0.3" in result.stderr
    assert f"[2/2] {NAMES[0].removeprefix('sweep/')[:-1]}" in result.stderr
    found = json.loads(result.stdout)
    for run, seed in zip(found, (0, 1), strict=True):
        assert (run["problem"], run["seed"], run["status"]) == ("near", seed, "finished")
        assert (run["method"], run["iterations"]) == (METHOD, ITERATIONS)
        assert (run["budget"], run["budget_at_start"]) == (0.3, None)
    spent, left = purse_of(database, "red")
    assert float(spent) == pytest.approx(sum(run["spent"] for run in found))
    assert spent > 0
    assert left == 1 - spent
    out = words[words.index("--out") + 1]
    for seed in (0, 1):
        assert (out / "near" / f"seed-{seed}" / "report.html").is_file()
    assert METHOD in invoke("compare", out).stdout

    again = invoke(*words, "--json")
    assert "2 runs, all finished before: nothing is left to spend." in again.stderr
    assert json.loads(again.stdout) == found
    more = invoke(*[3 if word == 2 else word for word in words], "--json")
    assert runs_of(more)[2:] == [(2, "finished", None)]
    assert "2 finished before" in more.stderr
    assert len(states(database)) == 3


def test_ctrl_c_leaves_the_jobs_and_the_same_command_goes_on(
    serve, words, database, invoke, tmp_path
):
    sweep = begun_sweep(words, tmp_path)
    within(SECONDS, lambda: is_waiting(database))
    sweep.wait_for("2 runs, at most 2 at once")
    sweep.send_signal(signal.SIGINT)
    assert sweep.exit_code() == INTERRUPTED
    assert f"costada sweep --out {tmp_path / 'sweep'} --cancel" in sweep.said.replace("\n", " ")
    assert is_waiting(database)
    shown = invoke("sweep", "--out", tmp_path / "sweep", "--status", "--json", "--store", database)
    assert runs_of(shown) == [(0, "queued", None), (1, "queued", None)]
    serve()
    again = invoke(*words, "--json")
    assert runs_of(again) == [(0, "finished", None), (1, "finished", None)]
    assert states(database) == dict.fromkeys(NAMES, "finished")


@pytest.mark.parametrize("keeps_folder", [True, False])
def test_a_killed_sweep_adds_no_job_twice(serve, words, database, invoke, tmp_path, keeps_folder):
    sweep = begun_sweep(words, tmp_path)
    within(SECONDS, lambda: is_waiting(database))
    sweep.send_signal(signal.SIGKILL)
    sweep.exit_code()
    if not keeps_folder:  # as if nothing had been written
        shutil.rmtree(tmp_path / "sweep")
    detached = invoke(*words, "--detach", "--json")
    assert runs_of(detached) == [(0, "queued", None), (1, "queued", None)]
    assert is_waiting(database)
    serve()
    assert runs_of(invoke(*words, "--json")) == [(0, "finished", None), (1, "finished", None)]
    assert states(database) == dict.fromkeys(NAMES, "finished")


def test_cancelled_jobs_are_failed_runs_and_the_same_command_lets_them_wait_again(
    serve, words, database, invoke, tmp_path
):
    sweep = begun_sweep(words, tmp_path)
    within(SECONDS, lambda: is_waiting(database))
    cancelled = invoke("sweep", "--out", tmp_path / "sweep", "--cancel", "--store", database)
    assert cancelled.exit_code == FINISHED, cancelled.output
    assert sweep.exit_code() == FAILED
    assert "Failed: 2\n  near/seed-0: cancelled\n  near/seed-1: cancelled\n" in sweep.said
    assert ".log" not in sweep.said
    assert states(database) == dict.fromkeys(NAMES, "cancelled")
    serve()
    assert runs_of(invoke(*words, "--json")) == [(0, "finished", None), (1, "finished", None)]


@pytest.mark.cluster
def test_a_sweep_outlasts_a_restart_of_its_database(tmp_path, invoke):
    with started_server() as server:
        address = shown_address(server.address)
        PurseAddress(address, "red").create(1, "crossing").close()
        place = "--out", tmp_path / "sweep", "--store", address
        own = "--problems", "near", "--seeds", 2, "--budget", 0.3
        sweep = begun_sweep(["sweep", *own, *place, "--on", "queue", "--team", "red"], tmp_path)
        within(SECONDS, lambda: is_waiting(address))
        sweep.wait_for("2 runs, at most 2 at once")
        server.control("stop", "--mode=immediate")
        assert sweep.exit_code(within=3) is None
        server.control("start")
        invoke("sweep", "--out", tmp_path / "sweep", "--cancel", "--store", address)
        assert sweep.exit_code() == FAILED
        assert "Failed: 2\n  near/seed-0: cancelled" in sweep.said


def test_many_runs_are_read_over_few_connections(words, database, invoke, tmp_path):
    invoke(*[40 if word == 2 else word for word in words], "--detach")
    claim_all(database)
    place = "--out", tmp_path / "sweep", "--store", database
    invoke("sweep", *place, "--cancel")  # without a server: the runs of waiting jobs are not read
    before = num_connections(database)
    status = invoke("sweep", *place, "--status", "--json")
    assert len(runs_of(status)) == 40
    assert num_connections(database) - before < 20


def test_jobs_that_are_not_paid_or_fail_say_why(serve, words, database, invoke, tmp_path):
    PurseAddress(database, "red").create(1, "crossing").close()
    with PurseAddress(database, "red").open() as purse:
        purse.put("all but a cent", cost=0.99)
    serve("--method", "costada")
    result = invoke(*words, "--json")
    assert result.exit_code == FAILED
    found = json.loads(result.stdout)
    paid, unpaid = sorted(found, key=lambda run: run["status"] != "finished")
    assert (paid["status"], paid["budget_at_start"]) == ("finished", 0.01)
    assert (unpaid["status"], unpaid["iterations"]) == ("failed", 0)
    assert "unpaid: " in unpaid["error"]
    assert "'red' has $0 left" in unpaid["error"]
    status = invoke("sweep", "--out", tmp_path / "sweep", "--status", "--json", "--store", database)
    assert {run["error"] for run in json.loads(status.stdout)} == {None, unpaid["error"]}


def test_a_job_that_fails_is_a_failed_run_beside_the_others(serve, words, database, invoke):
    invoke(*words, "--detach")
    with RunStore.postgres(database) as store:  # somebody takes the name of a run
        assert store.named.claim(NAMES[0], "{}")
    serve()
    result = invoke(*words)
    assert result.exit_code == FAILED
    assert "Failed: 1\n  near/seed-0: failed: " in result.stdout
    assert f"#{NAMES[0]}: already holds a run" in result.stdout
    assert "Finished 1 of 2 runs" in result.stdout


def test_jobs_and_runs_of_others_are_left_alone(words, database, invoke):
    invoke(*words, "--detach")
    other = [0.4 if word == 0.3 else word for word in words]
    refused = invoke(*other)
    assert refused.exit_code == REFUSED
    assert "#sweep/near/seed-0: was given {'team': 'red', 'problem': 'near'" in refused.stderr
    PurseAddress(database, "blue").create(1, "crossing").close()
    refused = invoke(*["blue" if word == "red" else word for word in words])
    assert refused.exit_code == REFUSED
    assert "expected {'team': 'blue'" in refused.stderr
    assert is_waiting(database)


@pytest.mark.parametrize(
    ("more", "fault"),
    [
        (["--methods", "uniform"], "--methods: not with --on queue, whose jobs choose --problems,"),
        (["--model", "openai:x"], "--model: not with --on queue"),
        (["--max-iterations", 3, "--jobs", 2], "--jobs, --max-iterations: not with --on queue"),
        (["--set", "controller.base_patience=8"], "controller: not with --on queue"),
        (["--purse", "p.sqlite", "--total", 1], "--purse, --total: not with --on queue"),
        (["--slurm", "mem=4G"], "--slurm: not with --on queue"),
        (["--team", "green"], "--team: got 'green', expected a team of its servers"),
        (["--team", ""], "--team: is missing, expected it with --on queue"),
        (["--store", ""], "--store: is missing, expected it with --on queue"),
        (["--on", "slurm"], "--team: got 'red', expected --on queue with it"),
    ],
)
def test_what_jobs_do_not_choose_is_refused_by_name(words, database, invoke, more, fault):
    refused = invoke(*words, *more)
    assert refused.exit_code == REFUSED
    assert fault in refused.stderr
    assert "Traceback" not in refused.stderr
    with JobQueue(database) as queue:
        assert queue.jobs() == []
    assert not words[words.index("--out") + 1].exists()
