"""Sweeps of this machine whose runs are in Postgres."""

import json
import os
import re
import shutil
import signal
import subprocess
from http.client import HTTPConnection
from pathlib import Path
from time import monotonic, sleep
from urllib.parse import quote

import psycopg
import pytest
from postgres_server import started_server
from swept_runs import (
    COMMAND,
    FAILED,
    FINISHED,
    INTERRUPTED,
    METHOD,
    PATIENCE_SECONDS,
    REFUSED,
    begun,
    costada,
    wait_for_steps,
)
from swept_runs import words as slow_words

from costada.experiments.sweep.place import FILE, SweepPlace, keep_place
from costada.experiments.sweep.sweep import Status, run_in, with_progress
from costada.runs.config import RunConfig
from costada.store.address import RunAddress, shown_address
from costada.store.run_store import RunStore

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(2 * PATIENCE_SECONDS)]

ITERATIONS = 6
SECRET = "geheim-4711"


def words(near: Path, out: Path, store: str | None, *more: object) -> list[object]:
    given = ("--max-iterations", ITERATIONS, "--lost-calls", "ignore", "--seeds", 2)
    stored = () if store is None else ("--store", store)
    return ["sweep", "--problems", near, "--methods", METHOD, "--out", out, *given, *stored, *more]


def steps(out: Path, seed: int) -> Path:
    return out / "near" / METHOD / f"seed-{seed}" / "steps.jsonl"


def lines(address: str, out: Path, seed: int) -> list[str]:
    """The trace of a run as the database has it."""
    with RunStore.at(RunAddress(address, f"{out.name}/near/{METHOD}/seed-{seed}")) as store:
        return store.step_lines(store.run_ids()[-1])


def facts(result: subprocess.CompletedProcess[str]) -> list[tuple[int, str, int]]:
    runs = json.loads(result.stdout)
    return [(run["seed"], run["status"], run["iterations"]) for run in runs]


@pytest.fixture
def url(postgres_address):
    return shown_address(postgres_address)


@pytest.fixture
def server():
    """A server that asks one of its users for a password."""
    with started_server() as running:
        with psycopg.connect(running.address, autocommit=True) as connection:
            connection.execute(f"CREATE ROLE guarded LOGIN SUPERUSER PASSWORD '{SECRET}'")
        yield running


@pytest.fixture(scope="module")
def undisturbed(near, tmp_path_factory):
    """The traces of seeds 0 and 1 by a sweep into folders."""
    out = tmp_path_factory.mktemp("undisturbed") / "sweep"
    result = costada(*words(near, out, None))
    assert result.returncode == FINISHED, result.stderr
    return [steps(out, seed).read_text() for seed in (0, 1)]


def test_runs_are_in_the_database_under_the_names_of_the_sweep(near, undisturbed, url, tmp_path):
    out = tmp_path / "sweep"
    result = costada(*words(near, out, url, "--json"))
    assert result.returncode == FINISHED, result.stderr
    assert facts(result) == [(0, "finished", ITERATIONS), (1, "finished", ITERATIONS)]
    assert not list(out.rglob("*.sqlite"))
    assert not list(out.rglob("settings.json"))
    for seed in (0, 1):
        assert lines(url, out, seed) == undisturbed[seed].splitlines()
        assert steps(out, seed).read_text() == undisturbed[seed]

    shutil.rmtree(out / "near")
    config = RunConfig(problem=str(near), max_iterations=ITERATIONS, lost_calls="ignore")
    seen = with_progress(run_in(out, f"near/{METHOD}/seed-0", config, url), may_run=True)
    assert (seen.status, seen.step.iteration) == (Status.FINISHED, ITERATIONS)
    assert not (out / "near").exists()

    again = costada(*words(near, out, url, "--json"))
    assert facts(again) == facts(result)
    assert "2 runs, all finished before" in again.stderr


def test_a_killed_run_is_resumed_by_the_same_command_without_its_files(
    near, undisturbed, url, tmp_path
):
    out = tmp_path / "sweep"
    process = begun(*words(near, out, url, "--jobs", 1))
    killed = kill_the_holder(url, f"thread '{out.name}/near/{METHOD}/seed-0'")
    _, errors = process.communicate(timeout=PATIENCE_SECONDS)
    assert killed
    assert process.returncode == FAILED, errors
    for file in steps(out, 0).parent.iterdir():
        file.unlink()
    again = costada(*words(near, out, url))
    assert again.returncode == FINISHED, again.stderr
    assert [steps(out, seed).read_text() for seed in (0, 1)] == undisturbed


def kill_the_holder(address: str, name: str) -> int:
    """Kill the process that works on a run, once the run has made a step."""
    end = monotonic() + PATIENCE_SECONDS
    with RunStore.postgres(address) as store:
        while monotonic() < end:
            run = next((each for each in store.named.all() if each.last), None)
            holder = store.holders(name).get(name)
            if run and holder:
                os.kill(holder.pid, signal.SIGKILL)
                return holder.pid
            sleep(0.01)
    raise AssertionError("no run began")


def rows_of(place: object) -> list[dict[str, object]]:
    """The rows of the page of `costada watch`."""
    process = begun("watch", place)
    try:
        address = process.stdout.readline().split()[0]
        port, token = re.search(r":(\d+)/\?(token=.+)", address).groups()
        while True:
            connection = HTTPConnection("127.0.0.1", int(port), timeout=30)
            connection.request("GET", f"/index/0?{token}")
            found = json.loads(connection.getresponse().read())
            connection.close()
            if not found["unread"]:
                return found["rows"]
    finally:
        process.kill()
        process.communicate()


def test_a_running_sweep_is_watched_and_compared(near, slow, url, tmp_path, invoke):
    out, others = tmp_path / "sweep", tmp_path / "others"
    short = ("--max-iterations", 2, "--seeds", 1)
    assert costada(*words(near, others, url, *short)).returncode == FINISHED
    process = begun(*slow_words(slow, out, "--store", url, "--max-iterations", 1000))
    wait_for_steps(out)
    names = [f"sweep/slow/{METHOD}/seed-{seed}" for seed in (0, 1)]
    for place in (out, f"{url}#sweep"):
        rows = rows_of(place)
        assert {row["id"]: row["state"] for row in rows} == dict.fromkeys(names, "running")
        assert all(row["iterations"] > 0 for row in rows)
    assert {row["state"] for row in rows_of(url)} == {"running", "finished"}
    compared = " ".join(invoke("compare", out).output.split())
    for name in names:
        assert f"{url}#{name}: not finished: " in compared
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == INTERRUPTED
    assert {row["state"] for row in rows_of(out)} == {"stopped"}


def test_a_sweep_is_watched_before_its_first_run_begins(url, tmp_path):
    with RunStore.postgres(url):
        keep_place(tmp_path, SweepPlace(url))
    assert rows_of(tmp_path) == []


def test_only_the_runs_of_the_sweep_are_compared(near, url, tmp_path):
    for name in ("one", "two"):
        result = costada(*words(near, tmp_path / name, url))
        assert result.returncode == FINISHED, result.stderr
    compared = costada("compare", tmp_path / "one")
    assert compared.returncode == FINISHED, compared.stderr
    assert "the same run" not in compared.stdout
    both = costada("compare", url, "--out", tmp_path / "both")
    assert both.stdout.count("the same run as") == 2
    one = costada("compare", f"{url}#two", "--out", tmp_path / "alone")
    assert one.returncode == FINISHED, one.stderr
    assert "the same run" not in one.stdout
    table = "comparison.csv"
    assert (tmp_path / "one" / table).read_text() == (tmp_path / "alone" / table).read_text()


def test_a_server_that_only_the_folder_names_is_not_connected_to(tmp_path):
    (tmp_path / FILE).write_text('{"store": "postgresql://u@db.example.org/runs"}')
    result = costada("compare", tmp_path)
    assert result.returncode == REFUSED
    assert "the runs are in postgresql://u@db.example.org/runs; to connect there" in result.stderr


def test_a_sweep_keeps_its_runs_in_one_place(near, url, tmp_path):
    stored, plain, short = tmp_path / "stored", tmp_path / "plain", ("--max-iterations", 1)
    assert costada(*words(near, stored, url, *short)).returncode == FINISHED
    refused = costada(*words(near, stored, None, *short))
    assert refused.returncode == REFUSED
    assert f"has its runs in {url}" in " ".join(refused.stderr.split())
    assert costada(*words(near, plain, None, *short)).returncode == FINISHED
    refused = costada(*words(near, plain, url, *short))
    assert refused.returncode == REFUSED
    assert "has runs in folders, expected another --out" in refused.stderr


def test_the_password_is_in_no_file_and_no_list_of_processes(near, server, tmp_path):
    given = server.address.replace("postgres@", f"guarded:{quote(SECRET)}@", 1)
    out = tmp_path / "sweep"
    seen: set[str] = set()
    with subprocess.Popen(
        [*COMMAND, *map(str, words(near, out, given, "--seeds", 1))],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        while process.poll() is None:
            children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
            for child in children:
                try:
                    seen.add(Path(f"/proc/{child}/cmdline").read_text())
                except OSError:
                    continue
            sleep(0.02)
        shown = process.stdout.read()
    assert process.returncode == FINISHED, shown
    seen = {each for each in seen if "\0sweep\0" not in each}  # of a child that is still a copy
    assert any("--store=postgresql://guarded@" in each for each in seen)
    assert not [text for text in (*seen, shown) if SECRET in text]
    files = [path for path in out.rglob("*") if path.is_file()]
    assert not [path for path in files if SECRET.encode() in path.read_bytes()]
