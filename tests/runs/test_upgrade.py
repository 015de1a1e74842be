"""Runs, purses and journals of earlier versions: upgraded, resumed, or shown as they are."""

import json
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from decimal import Decimal

import psycopg
import pytest
from stored_formats import FORMATS, stored_file, stored_run, stored_statements

from costada import load_run
from costada.plugins.gateway.response_journal import Journal, RequestState
from costada.runs.folder import RunFolder
from costada.runs.upgrade import upgrade
from costada.store.address import shown_address
from costada.store.postgres_lease import LOCK
from costada.store.purse import Purse
from costada.store.rows import MAX_CELL
from costada.store.schema import FORMAT
from costada.store.sqlite_engine import connect_to_read

pytestmark = pytest.mark.process

EARLIER = sorted(int(each.name) for each in FORMATS.iterdir())
CALLS = "SELECT {}, role, attempt, n, cost, bound FROM costada_call ORDER BY 1, 2, 3, 4"
CHARGES = "SELECT iteration, cost, spent FROM costada_charge ORDER BY iteration"


def rows(path, statement):
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(statement).fetchall()


def ledger(path, column="ticket"):
    """Calls and charges of a run file, read without the product."""
    return rows(path, CALLS.format(column)), rows(path, CHARGES)


def contents(folder):
    """The files of a folder, without SQLite's own beside the run file."""
    kept = (each for each in folder.iterdir() if "sqlite-" not in each.name)
    return {each.name: each.read_bytes() for each in kept}


def format_of(path):
    return rows(path, "SELECT version FROM costada_format")


@pytest.fixture(params=EARLIER)
def number(request):
    return request.param


def test_there_is_a_fixture_of_each_earlier_format_that_can_be_upgraded():
    assert list(range(EARLIER[0], FORMAT)) == EARLIER


# Each goes on for a few iterations: one more crosses the budget, the next gain reaches the target,
# or the target is reached, so that only what is in flight lands.
MORE = {
    "finished": ("--budget", 0.07),
    "within": ("--target", 1.656),
    "in-flight": ("--target", 0.5),
}


@pytest.mark.parametrize("name", MORE)
def test_an_upgraded_run_continues_with_an_equal_ledger(number, name, tmp_path, invoke):
    folder = stored_run(number, name, tmp_path)
    purse = stored_file(number, "purse.sqlite", tmp_path)
    upgrade(str(purse))
    calls, charges = ledger(folder / "run.sqlite", "iteration")
    unanswered = {
        ticket
        for (ticket,) in rows(
            folder / "run.sqlite", "SELECT iteration FROM costada_call WHERE status = 'started'"
        )
    }
    [line] = [each for each in upgrade(str(folder)) if "run.sqlite:" in each]
    assert f"upgraded from format {number} to {FORMAT}" in line
    assert ledger(folder / "run.sqlite") == (calls, charges)
    dollars = sum((Decimal(cost) + Decimal(bound) for *_, cost, bound in calls), Decimal(0))
    assert load_run(folder).charged == float(dollars)
    options = (*MORE[name], "--purse", f"{purse}#team") if name == "finished" else MORE[name]
    resumed = invoke("resume", folder, *options)
    assert resumed.exit_code == 0, resumed.stderr
    now, later = ledger(folder / "run.sqlite")
    assert [each for each in now if each in calls] == calls
    assert later[: len(charges)] == charges
    assert len(later) > len(charges)
    costs = {row["iteration"]: row["step_cost"] for row in load_run(folder).steps}
    assert costs == {iteration: float(cost) for iteration, cost, _ in later}
    # Of the tickets that had begun, only a request without an answer is sent again.
    again = {each[0] for each in now if each not in calls}
    assert again & {each[0] for each in calls} <= unanswered


def test_a_resume_upgrades_the_folder_and_keeps_it_as_it_was(number, tmp_path, invoke):
    folder = stored_run(number, "within", tmp_path)
    before = {each: (folder / each).read_bytes() for each in ("run.sqlite", "settings.json")}
    assert invoke("resume", folder, "--target", 0.5).exit_code == 0
    assert format_of(folder / "run.sqlite") == [(FORMAT,)]
    assert json.loads((folder / "settings.json").read_text())["format"] == FORMAT
    backup = folder / f"run.sqlite.format-{number}"
    with closing(sqlite3.connect(backup)) as kept, closing(sqlite3.connect(":memory:")) as old:
        old.deserialize(before["run.sqlite"])
        assert [*kept.iterdump()] == [*old.iterdump()]
    kept_settings = folder / f"settings.json.format-{number}"
    assert kept_settings.read_bytes() == before["settings.json"]


def test_an_earlier_run_is_shown_without_a_change_to_its_folder(number, tmp_path, invoke):
    folder = stored_run(number, "finished", tmp_path)
    before = {each.name: each.read_bytes() for each in folder.iterdir()}
    trace = [json.loads(line) for line in (folder / "steps.jsonl").read_text().splitlines()]
    shown = json.loads(invoke("trace", folder, "--json").stdout)
    names = trace[0].keys() & shown[0].keys()
    assert [{name: row[name] for name in names} for row in shown] == [
        {name: row[name] for name in names} for row in trace
    ]
    assert len(names) > 20
    report = tmp_path / "page.html"
    assert invoke("report", folder, "--out", report).exit_code == 0
    assert report.stat().st_size > 10_000
    assert load_run(folder).state == "finished"
    assert {each.name: each.read_bytes() for each in folder.iterdir()} == before


def test_nobody_writes_to_an_earlier_run_that_may_be_running(number, tmp_path, invoke):
    folder = stored_run(number, "within", tmp_path)
    with RunFolder(folder).hold():
        pass
    again = stored_run(number, "within", tmp_path / "again")
    result = invoke("steer", again, "Use a hexagonal grid.")
    assert result.exit_code == 2
    assert "costada upgrade" in " ".join(result.stderr.split())
    assert format_of(again / "run.sqlite") == [(number,)]
    assert invoke("steer", folder, "Use a hexagonal grid.").exit_code == 0


KILLED = """
import os, signal, sys
from costada.runs.upgrade import upgrade
import costada.store.checkpoints
left = int(sys.argv[2])
def count(frame, event, function):
    global left
    if event == "c_call" and function.__name__ == "execute":
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
sys.setprofile(count)
upgrade(sys.argv[1])
"""


@pytest.mark.parametrize("statement", [10, 40, 100])
def test_a_killed_upgrade_leaves_the_old_or_the_new_file_and_is_completed(
    number, statement, tmp_path
):
    whole = stored_run(number, "in-flight", tmp_path / "whole")
    upgrade(str(whole))
    folder = stored_run(number, "in-flight", tmp_path)
    with closing(sqlite3.connect(folder / "run.sqlite")) as connection:
        before = [*connection.iterdump()]
    command = [sys.executable, "-c", KILLED, str(folder), str(statement)]
    killed = subprocess.run(command, capture_output=True, timeout=120)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    with closing(sqlite3.connect(folder / "run.sqlite")) as connection:
        left = [*connection.iterdump()]
    assert left == before
    upgrade(str(folder))
    with (
        closing(sqlite3.connect(folder / "run.sqlite")) as completed,
        closing(sqlite3.connect(whole / "run.sqlite")) as expected,
    ):
        assert [*completed.iterdump()] == [*expected.iterdump()]


def test_an_upgraded_purse_keeps_totals_and_history(number, tmp_path):
    path = stored_file(number, "purse.sqlite", tmp_path)
    accounts = rows(path, "SELECT * FROM costada_account")
    entries = rows(path, "SELECT account, cost, bound, facts FROM costada_entry ORDER BY rowid")
    backup = f"purse.sqlite.format-{number} is what it was before"
    assert upgrade(str(path)) == [f"{path}: upgraded from format {number} to {FORMAT}; {backup}"]
    with Purse.existing("team", path=path) as purse:
        ((budget, spent, committed),) = rows(
            path, "SELECT budget, spent, committed FROM costada_account WHERE parent = 0"
        )
        assert (purse.budget, purse.spent) == (Decimal(budget), Decimal(spent))
        assert purse.remaining == Decimal(budget) - Decimal(committed)
        keys = [(each.account.rpartition("/")[2], each.key) for each in purse.calls()]
        agent = purse.child("agent-1")
        agent.put("c2", cost="0.006")
        assert purse.spent == Decimal(spent) - Decimal("0.01") + Decimal("0.006")
    assert format_of(path) == [(FORMAT,)]
    assert rows(f"{path}.format-{number}", "SELECT * FROM costada_account") == accounts
    now = rows(path, "SELECT account, cost, bound, facts FROM costada_entry ORDER BY rowid")
    assert [each for each in now if each in entries] == [
        each for each in entries if each[1:3] != ("0", "0.01")
    ]
    assert {("agent-1", "c1"), ("agent-1", "c2"), ("agent-2", "c1")} <= set(keys)
    run = sorted(key for account, key in keys if len(account) == 32)
    assert run == [f"ticket {each}" for each in range(1, len(run) + 1)]


def test_a_purse_that_an_earlier_version_may_still_use_is_not_upgraded_by_opening_it(
    number, tmp_path
):
    path = stored_file(number, "purse.sqlite", tmp_path)
    kept = rows(path, "SELECT * FROM costada_entry")
    for opened in (lambda: Purse.existing("team", path=path), lambda: Purse(1, path=path)):
        with pytest.raises(ValueError, match=f"upgrade it: costada upgrade {path}"):
            opened()
    assert (format_of(path), rows(path, "SELECT * FROM costada_entry")) == ([(number,)], kept)


def test_the_journal_of_an_earlier_gateway_still_has_its_answers(number, tmp_path):
    journal = Journal(stored_file(number, "journal.sqlite", tmp_path))
    with closing(journal):
        assert journal.num_lost == 1
        assert journal.states() == [
            ("run 1 generation 1", RequestState.ANSWERED),
            ("run 2 generation 1", RequestState.REFUSED),
            ("run 3 generation 1", RequestState.LOST),
        ]
        assert journal.response(1).body == b'{"choices": []}'


def test_an_upgrade_that_fails_names_the_file_and_leaves_backups_as_they_are(number, tmp_path):
    path = stored_file(number, "purse.sqlite", tmp_path)
    backup = tmp_path / f"purse.sqlite.format-{number}"
    backup.write_text("an earlier backup")
    folder = tmp_path / "damaged"
    folder.mkdir()
    damaged = stored_file(number, "purse.sqlite", folder)
    with closing(sqlite3.connect(damaged)) as connection:
        connection.execute("ALTER TABLE costada_landing RENAME COLUMN number TO other")
    with pytest.raises(ValueError, match=rf"{damaged}: cannot be upgraded from .*no such column"):
        upgrade(str(damaged))
    assert not damaged.with_name(backup.name).exists()
    assert upgrade(str(path))[0].endswith(f"{backup.name}.2 is what it was before")
    assert backup.read_text() == "an earlier backup"
    assert format_of(f"{backup}.2") == [(number,)]


def test_the_backup_of_a_file_whose_name_sqlite_takes_for_memory_has_its_rows(
    number, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    stored_file(number, "purse.sqlite", tmp_path).rename(":memory:")
    upgrade(":memory:")
    assert format_of(tmp_path / f":memory:.format-{number}") == [(number,)]


@pytest.mark.parametrize("table", ["checkpoints", "writes", "costada_step"])
def test_no_trigger_of_a_file_fires_while_it_is_read_or_upgraded(table, number, tmp_path):
    folder = stored_run(number, "within", tmp_path)
    path = folder / "run.sqlite"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(
            f"CREATE TRIGGER fired AFTER UPDATE ON {table} BEGIN SELECT zeroblob(1); END"
        )
    for use in (load_run, upgrade):
        with pytest.raises(ValueError, match=r"run\.sqlite: .*`\w+` is not a plain table"):
            use(str(folder))
    assert format_of(path) == [(number,)]


def test_a_copy_that_is_read_has_no_larger_values_than_a_file(number, tmp_path):
    folder = stored_run(number, "within", tmp_path)
    with closing(connect_to_read(folder / "run.sqlite")) as copy:
        assert copy.getlimit(sqlite3.SQLITE_LIMIT_LENGTH) == MAX_CELL


@pytest.fixture
def newer(tmp_path):
    """A run folder as a later version may have left it."""
    folder = stored_run(EARLIER[-1], "finished", tmp_path)
    upgrade(str(folder))
    with closing(sqlite3.connect(folder / "run.sqlite")) as connection, connection:
        connection.execute("UPDATE costada_format SET version = ?", (FORMAT + 1,))
        connection.execute("ALTER TABLE costada_call ADD COLUMN colour TEXT")
    settings = json.loads((folder / "settings.json").read_text())
    settings |= {"format": FORMAT + 1, "patience": "endless"}
    (folder / "settings.json").write_text(json.dumps(settings))
    return folder


@pytest.mark.parametrize(
    "words", [("resume",), ("upgrade",), ("steer", "Use a hexagonal grid."), ("fork",)]
)
def test_a_newer_run_is_not_written(words, newer, invoke, tmp_path):
    name, *rest = words
    if name == "fork":
        rest = ["--at", 2, "--out", tmp_path / "new"]
    before = {
        each.name: each.read_bytes() for each in newer.iterdir() if "sqlite-" not in each.name
    }
    result = invoke(name, newer, *rest)
    assert result.exit_code == 2
    text = " ".join(result.stderr.split())
    assert f"(format {FORMAT + 1}, expected {FORMAT}); install that version" in text
    assert contents(newer) == before


def test_a_newer_run_is_shown_as_far_as_its_tables_are_known(newer, invoke, tmp_path):
    assert len(json.loads(invoke("trace", newer, "--json").stdout)) == 6
    assert invoke("export", newer, "--to", "csv", "--out", tmp_path / "steps.csv").exit_code == 0
    assert invoke("report", newer, "--out", tmp_path / "page.html").exit_code == 0
    with closing(sqlite3.connect(newer / "run.sqlite")) as connection, connection:
        connection.execute("ALTER TABLE costada_step RENAME COLUMN row TO line")
    result = invoke("trace", newer)
    assert result.exit_code == 2
    assert "written by another version of CostAda" in " ".join(result.stderr.split())


def test_a_format_that_is_too_old_names_the_way_out(newer, invoke):
    settings = newer / "settings.json"
    settings.write_text(json.dumps({**json.loads(settings.read_text()), "format": 3}))
    result = invoke("resume", newer)
    assert result.exit_code == 2
    assert "(format 3, expected 5); use that version for this run" in " ".join(
        result.stderr.split()
    )


@pytest.fixture
def database(number, postgres_address):
    """The address of a database with a schema of an earlier format."""
    with psycopg.connect(postgres_address, autocommit=True) as connection:
        connection.execute(stored_statements(number).encode())
    return shown_address(postgres_address)


def found(database, statement):
    with psycopg.connect(database) as connection:
        connection.execute("SET search_path TO costada")
        return connection.execute(statement.encode()).fetchall()


def test_a_database_is_upgraded_and_its_run_continues_with_an_equal_ledger(
    database, number, invoke, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    place = f"{database}#packing"
    calls, charges = found(database, CALLS.format("iteration")), found(database, CHARGES)
    totals = found(database, "SELECT name, budget, spent, committed FROM costada_account")
    refused = invoke("trace", place)
    assert refused.exit_code == 2
    assert f"costada upgrade '{database}'" in " ".join(refused.stderr.split())
    assert upgrade(database) == [f"{database}: upgraded from format {number} to {FORMAT}"]
    assert found(database, CALLS.format("ticket")) == calls
    assert found(database, "SELECT name, budget, spent, committed FROM costada_account") == totals
    with Purse.existing("team", dsn=database) as purse:
        assert {each.key for each in purse.calls()} == {"c1", "c2"}
        purse.child("agent-1").put("c2", cost="0.006")
    resumed = invoke("resume", place, "--max-iterations", 6)
    assert resumed.exit_code == 0, resumed.stderr
    later = found(database, CHARGES)
    assert (len(later), later[: len(charges)]) == (6, charges)
    now = found(database, CALLS.format("ticket"))
    assert [each for each in now if each in calls] == calls
    assert upgrade(database) == [f"{database}: is of format {FORMAT}, as this version writes it"]


def test_a_database_that_was_restored_in_part_is_refused(number, invoke, postgres_address):
    statements = stored_statements(number)
    at = {
        "the primary keys of costada_account, costada_archive": "PRIMARY KEY (id)",
        "the tables costada_format, costada_run,": "costada.costada_entry (",
    }
    for lacking, part in at.items():
        with psycopg.connect(postgres_address, autocommit=True) as connection:
            connection.execute("DROP SCHEMA IF EXISTS costada CASCADE")
            begun = statements[: statements.index(part)].rpartition(";\n")[0]
            connection.execute(begun.encode())
        refused = invoke("upgrade", shown_address(postgres_address))
        assert refused.exit_code == 2
        words = " ".join(refused.stderr.split())
        assert f"its schema 'costada' lacks {lacking}" in words
        assert words.endswith("drop the schema, and restore it from a backup")


def test_a_database_is_not_upgraded_while_a_run_is_held(database, postgres_address):
    with psycopg.connect(postgres_address, autocommit=True) as connection:
        connection.execute("SET search_path TO costada")
        connection.execute(
            "INSERT INTO costada_lease (name, epoch, host, pid, since, beat, seconds)"
            " VALUES ('thread ''packing''', 1, 'elsewhere', 7, now(), now(), 3600)"
        )
        connection.execute(f"SELECT pg_advisory_lock({LOCK}) FROM costada_lease")
        with pytest.raises(ValueError, match="process 7 on elsewhere works on thread 'packing'"):
            upgrade(database)
