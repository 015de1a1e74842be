"""`costada serve`, `enqueue` and `queue`, as processes and in this one."""

import json
import signal
from contextlib import closing
from math import inf
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from begun_commands import BegunCommand
from billing_server import BillingServer, Refusal
from crash_runs import Provider
from fakes import toy_folder
from ports import free_port
from postgres_server import started_server
from waiting import within

from costada.reports.run_metrics import metrics_text
from costada.runs.stored_index import StoredIndex
from costada.store.address import shown_address

pytestmark = pytest.mark.process

SECONDS = 120


@pytest.fixture
def database(postgres_address):
    return shown_address(postgres_address)


@pytest.fixture
def teams(tmp_path):
    file = tmp_path / "teams.toml"
    file.write_text("[red]\nbudget = 1\n")
    return file


@pytest.fixture
def server(database, teams, tmp_path):
    words = "--teams", teams, "--problems", "circle_packing", "--out", tmp_path / "runs"
    command = BegunCommand(tmp_path / "server.txt", "serve", database, *words)
    command.wait_for("at most 100 runs at once, sandbox ")
    yield command
    command.send_signal(signal.SIGTERM)
    assert command.exit_code() == 0


@pytest.fixture
def begin(tmp_path):
    """Begins `costada serve WORDS`, which is killed at the end if it still runs."""
    commands = []

    def begun(*words):
        words = "serve", *words, "--out", tmp_path / "runs"
        commands.append(BegunCommand(tmp_path / "server.txt", *words))
        commands[-1].wait_for("at most 100 runs at once")
        return commands[-1]

    yield begun
    for each in commands:
        if each.exit_code(within=0) is None:
            each.send_signal(signal.SIGKILL)
            each.exit_code()


def rows(invoke, database):
    return json.loads(invoke("queue", database, "--json").stdout)


def test_runs_are_enqueued_served_and_listed(server, database, invoke, tmp_path):
    options = "--team", "red", "--budget", "0.01", "--priority", "3"
    added = invoke("enqueue", database, "circle_packing", *options, "--seeds", "4,7")
    names = ["circle_packing-1", "circle_packing-2"]
    assert added.stdout.split() == [f"{database}#{name}" for name in names]
    within(SECONDS, lambda: {row["state"] for row in rows(invoke, database)} == {"finished"})
    first, second = rows(invoke, database)
    expected = {"run": "circle_packing-1", "team": "red", "problem": "circle_packing"}
    expected |= {"budget": 0.01, "seed": 4, "priority": 3, "state": "finished"}
    assert first == {**expected, "stop_reason": "budget", "error": ""}
    assert second["seed"] == 7
    shown = invoke("queue", database).stdout
    assert all(word in shown for word in (*names, "red", "$0.01", "finished"))
    assert "circle_packing-2" in invoke("runs", database).stdout
    added = invoke("enqueue", database, "circle_packing", *options, "--name", "gone").stdout.strip()
    assert "gone is cancelled" in invoke("queue", database, "--cancel", added).stdout
    within(SECONDS, lambda: rows(invoke, database)[-1]["state"] != "running")
    ended = rows(invoke, database)[-1]["state"]
    assert ended in ("cancelled", "finished")
    with closing(StoredIndex(database)) as index:
        metrics = metrics_text(index)
    assert 'costada_jobs{purse="red",state="finished"}' in metrics
    assert (tmp_path / "runs" / "circle_packing-1" / "best_program.py").is_file()
    removed = invoke("queue", database, "--forget", "finished").stdout
    assert removed in ("Removed: 2 jobs; runs stay\n", "Removed: 3 jobs; runs stay\n")
    assert "finished" not in {row["state"] for row in rows(invoke, database)}
    assert "circle_packing-2" in invoke("runs", database).stdout


def test_a_server_whose_key_is_refused_ends_as_wrongly_configured(
    begin, database, teams, invoke, monkeypatch
):
    monkeypatch.setenv("OPENAI_API_KEY", "wrong")
    with BillingServer(default=Refusal(401, "wrong key")) as billing:
        words = "--teams", teams, "--problems", "circle_packing"
        model = "--model", "openai:mine", "--base-url", billing.url, "--price", "1,1"
        command = begin(database, *words, *model)
        options = "--team", "red", "--budget", "0.2", "--seeds", "3"
        assert invoke("enqueue", database, "circle_packing", *options).exit_code == 0
        assert command.exit_code() == 2
    assert "costada: the server ends, and its jobs are free for others: model 'mine'" in (
        command.said
    )
    assert "put a valid API key into the environment" in command.said
    assert "Traceback" not in command.said
    waiting = rows(invoke, database)
    assert [row["state"] for row in waiting] == ["waiting"] * 3
    assert "status 401" in waiting[0]["error"]


LOGGING = """from pathlib import Path


def score(output):
    with Path(r"{log}").open("a") as log:
        log.write(f"{{output}}\\n")
    return {{"combined_score": output}}
"""


def test_the_initial_program_of_the_first_problem_is_evaluated_once(
    begin, database, teams, invoke, tmp_path
):
    log = tmp_path / "outputs"
    folder = toy_folder(tmp_path, "logging", LOGGING.format(log=log))
    command = begin(database, "--teams", teams, "--problems", folder)
    [first] = log.read_text().split()
    options = "--team", "red", "--budget", "0.01", "--seeds", "2"
    assert invoke("enqueue", database, "logging", *options).exit_code == 0
    within(SECONDS, lambda: {row["state"] for row in rows(invoke, database)} == {"finished"})
    assert log.read_text().split().count(first) == 1
    command.send_signal(signal.SIGINT)
    assert command.exit_code() == 130


def asked(address):
    """Status and text of the answer at an address."""
    try:
        with urlopen(address, timeout=SECONDS) as answer:
            return answer.status, answer.read().decode().strip()
    except HTTPError as error:
        return error.code, error.read().decode().strip()


def test_a_server_says_whether_it_lives_and_takes_jobs(begin, teams, invoke, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    provider, port = Provider(last_answered=0), free_port()
    with BillingServer(default=provider.answer) as billing, started_server() as postgres:
        database = postgres.address
        words = "--teams", teams, "--problems", "circle_packing", "--port", str(port)
        words += "--model", "openai:mine", "--base-url", billing.url, "--price", "1,1"
        command = begin(database, *words)
        live, ready = (f"http://127.0.0.1:{port}/{path}" for path in ("live", "ready"))
        within(SECONDS, lambda: asked(ready) == (200, "ok"))
        assert asked(live) == (200, "ok")
        assert asked(f"http://127.0.0.1:{port}/queue")[0] == 404
        postgres.control("stop")
        within(SECONDS, lambda: asked(ready) == (503, "cannot read its queue"))
        assert asked(live) == (200, "ok")
        command.wait_for("Waiting for the database")
        postgres.control("start")
        command.wait_for("The database is back after ")
        within(SECONDS, lambda: asked(ready) == (200, "ok"))
        options = "--team", "red", "--budget", "0.2"
        assert invoke("enqueue", database, "circle_packing", *options).exit_code == 0
        within(SECONDS, lambda: provider.billed.total() > 0)
        command.send_signal(signal.SIGTERM)
        within(SECONDS, lambda: asked(ready) == (503, "is ending"))
        assert asked(live) == (200, "ok")
        provider.last_answered = inf
        assert command.exit_code() == 0
        assert [row["state"] for row in rows(invoke, database)] == ["waiting"]
    assert "Errno" not in command.said
    words = "costada: Waiting for the database, since ", "costada: The database is back after "
    assert [command.said.count(each) for each in words] == [1, 1]


@pytest.mark.parametrize(
    ("words", "fault"),
    [
        (["enqueue", "DSN", "p", "--team", "red", "--budget", "0"], "--budget: got 0"),
        (
            ["enqueue", "DSN", "p", "--team", "no", "--budget", "1"],
            "--team: got 'no', expected a team of its servers",
        ),
        (
            ["enqueue", "DSN", "p", "--team", "red", "--budget", "1", "--seeds", "x"],
            "--seeds: got 'x'",
        ),
        (
            ["enqueue", "DSN", "p", "--team", "red", "--budget", "1", "--name", "a b"],
            "--name: got the name 'a b'",
        ),
        (["enqueue", "nowhere", "p", "--team", "red", "--budget", "1"], "nowhere"),
        (["queue", "DSN", "--cancel", "none"], "--cancel: got 'none', expected a job"),
        (["queue", "DSN", "--retry", "none"], "--retry: got 'none', expected a job"),
        (["queue", "DSN", "--retry", "finished"], "--retry: got 'finished', expected a job"),
        (
            ["queue", "DSN", "--forget", "none"],
            "--forget: got 'none', expected a job that has ended",
        ),
        (["serve", "DSN", "--teams", "TEAMS", "--out", "TEAMS"], "expected a folder"),
        (["serve", "DSN", "--teams", "missing.toml"], "missing.toml"),
        (["serve", "DSN", "--teams", "TEAMS", "--problems", "none"], "problem is 'none'; expected"),
        (["serve", "DSN", "--teams", "TEAMS", "--jobs", "0"], "--jobs"),
        (["serve", "DSN", "--teams", "TEAMS", "--host", "here"], "--host: got 'here', expected"),
    ],
)
def test_wrong_words_are_refused_in_one_line(database, teams, invoke, words, fault):
    given = [{"DSN": database, "TEAMS": str(teams)}.get(each, each) for each in words]
    refused = invoke(*given)
    assert refused.exit_code == 2
    assert fault in refused.stderr
    assert "Traceback" not in refused.stderr


def test_the_address_of_the_queue_may_be_in_the_environment(database, server, invoke, monkeypatch):
    options = "--team", "red", "--budget", "0.01"
    refused = invoke("enqueue", "circle_packing", *options)
    assert (refused.exit_code, "PROBLEM: is missing" in refused.stderr) == (2, True)
    monkeypatch.setenv("COSTADA_STORE", database)
    for words in ((), (database,)):
        refused = invoke("enqueue", *words, *options)
        assert (refused.exit_code, "PROBLEM: is missing" in refused.stderr) == (2, True)
    added = invoke("enqueue", "circle_packing", *options)
    assert added.stdout == f"{database}#circle_packing-1\n"
    assert "circle_packing-1" in invoke("queue").stdout


def test_a_change_of_all_jobs_in_a_state_without_any_says_so(database, server, invoke):
    words = [("--retry", "failed"), ("--retry", "cancelled"), ("--forget", "finished")]
    for option, state in words:
        done = invoke("queue", database, option, state)
        assert (done.exit_code, done.stdout) == (0, f"No job is {state}\n")


def test_a_queue_that_nobody_has_used_is_said_to_be_empty(database, invoke):
    refused = invoke("queue", database)
    assert refused.exit_code == 2
    assert "begin one, or name another database" in refused.stderr
