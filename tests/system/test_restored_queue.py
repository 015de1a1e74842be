"""A queue whose database was restored from a dump: its servers go on, and no bill is forgotten."""

import subprocess
from math import inf

import psycopg
import pytest
from crash_runs import CAP
from paid_runs import ledger_in
from postgres_server import started_server
from queue_servers import begun_server, have_ended, ledger_of, purse_of, states
from waiting import within

from costada.agents.job_clients import add_jobs
from costada.agents.teams import Team
from costada.runs.resume import LOST_STEPS
from costada.runs.shared_purse import PurseAddress

pytestmark = pytest.mark.process

SECONDS, BUDGET = 60, 20
TEAMS = {"red": Team(budget=BUDGET)}
DUMPED, KILLED = 6, 12


@pytest.fixture
def begin(url, tmp_path, monkeypatch):
    """Begins a server of one run with the same folder, which is killed at the end."""
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    processes = []

    def begun(database, **settings):
        words = database, url, tmp_path / "runs", TEAMS
        processes.append(begun_server(*words, gateway=False, **settings))
        return processes[-1]

    yield begun
    for process in processes:
        process.kill()
        process.join()


def restored(server, dump):
    """The address of a new database with what a dump has."""
    with psycopg.connect(server.address, autocommit=True) as connection:
        connection.execute("CREATE DATABASE restored")
    address = server.address.replace("/postgres?", "/restored?")
    subprocess.run([server.programs / "pg_restore", f"--dbname={address}", dump], check=True)
    return address


@pytest.mark.parametrize(
    "settings",
    [{}, {"parallel": 4}, {"max_tokens": 10 * CAP}],
    ids=["one at a time", "four in flight", "more lost than is left"],
)
def test_a_server_counts_what_a_restored_database_lacks_and_goes_on(
    begin, provider, tmp_path, settings
):
    dump = tmp_path / "dump"
    provider.last_answered = DUMPED
    with started_server() as server:
        PurseAddress(server.address, "red").create(BUDGET, "crossing").close()
        killed = begin(server.address, **settings)
        [name] = add_jobs(server.address, "red", "toy", {"budget": 0.1}, [0])
        within(SECONDS, lambda: provider.billed.total() > DUMPED)
        words = f"--dbname={server.address}", "--format=custom", "--schema=costada"
        more = "--no-unlogged-table-data", f"--file={dump}"
        subprocess.run([server.programs / "pg_dump", *words, *more], check=True)
        provider.last_answered = KILLED
        within(SECONDS, lambda: provider.billed.total() > KILLED)
        killed.kill()
        killed.join()
        provider.last_answered = inf
        address = restored(server, dump)
        begin(address, **settings, log=tmp_path / "log")
        within(SECONDS, lambda: have_ended(address))
        assert states(address) == {name: "finished"}
        _, roles = ledger_in(address)
        assert roles.count(LOST_STEPS) == 1
        spent, left = purse_of(address, "red")
        assert spent == ledger_of(address, "red") >= provider.bill
        assert left == BUDGET - spent
    said = (tmp_path / "log").read_text()
    assert f"#{name}: the database has lost" in said
    assert "these dollars count as spent" in said
