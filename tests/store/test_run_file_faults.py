"""Run files that cannot be used as they are: one line says what is wrong and what to do."""

import errno
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import zlib
from contextlib import closing
from hashlib import sha256
from pathlib import Path

import pytest
from langgraph.checkpoint.base import empty_checkpoint

from costada.store.checkpoints import RunSaver
from costada.store.history import RunHistory
from costada.store.run_copy import Cut, copy_file, cut_back
from costada.store.run_store import RunStore
from costada.store.schema import FORMAT
from costada.store.sqlite_engine import explaining

TESTS = Path(__file__).parents[1]
IN_A_NAMESPACE = ("unshare", "--mount") if os.geteuid() == 0 else ("unshare", "-Urm")
MOUNT = "mount -t tmpfs -o size=4m tmpfs"
AS_NOBODY = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=-all")

FILLING = """
import json, sys
from pathlib import Path
from fakes import ScriptedModel, evaluate_value, hashed_answer, toy_problem
from costada.runs.discovery import discover

folder = Path(sys.argv[1])
filler = folder / "filler"
judged = []

def filling(code):
    judged.append(code)
    if len(judged) == 5:
        with filler.open("wb", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(512))
            except OSError:
                pass
    return evaluate_value(code)

def found(evaluate, **options):
    model = ScriptedModel(answer=hashed_answer)
    problem = toy_problem(evaluate=evaluate)
    return discover(problem, model, budget=0.02, price="1,2", **options)

try:
    found(filling, out=folder / "run")
    reported = "nothing"
except OSError as error:
    reported = f"{error.filename}: {error.strerror}"
filler.unlink()
resumed = found(filling, out=folder / "run", resume=True)
whole = found(evaluate_value)
same = ("best_program", "best_score", "spent", "iterations", "stop_reason")
print(json.dumps({
    "reported": reported,
    "resumed": [getattr(resumed, name) for name in same],
    "whole": [getattr(whole, name) for name in same],
    "steps": [json.loads(line)["iteration"] for line in open(folder / "run" / "steps.jsonl")],
}))
"""
READING = """
import sys
from costada.store.run_store import RunStore
try:
    RunStore(sys.argv[1])
except OSError as error:
    print(f"{error.filename}: {error.strerror}")
"""


def run_file(folder):
    path = folder / "run.sqlite"
    with RunStore(path) as store:
        store.open_run("run", "costada", "toy")
        for number in range(200):
            store.put_step("run", number, {"iteration": number, "text": "x" * 200})
    return path


def test_a_run_file_carries_the_number_of_its_format(tmp_path):
    with closing(sqlite3.connect(run_file(tmp_path))) as connection:
        assert connection.execute("SELECT version FROM costada_format").fetchall() == [(FORMAT,)]


@pytest.mark.parametrize("opened", [RunStore, RunSaver])
def test_a_file_of_a_newer_version_is_read_and_never_written(tmp_path, opened):
    path = run_file(tmp_path)
    spoil(path, "UPDATE costada_format SET version = version + 1")
    before = path.read_bytes()
    expected = (
        rf"run\.sqlite: written by another version .* \(format {FORMAT + 1}, expected {FORMAT}\)"
    )
    with pytest.raises(ValueError, match=expected):
        opened(path)
    with RunStore(path, is_read_only=True) as store:
        assert len(store.steps("run")) == 200
    assert path.read_bytes() == before


def test_a_damaged_file_is_named_with_the_ways_out(tmp_path):
    path = with_zeros(run_file(tmp_path))
    with pytest.raises(ValueError, match=r"run\.sqlite: is damaged .* restore it from a backup"):
        with_steps(path)


def with_steps(path):
    with RunStore(path) as store:
        return store.steps("run")


def test_a_damaged_text_is_named(tmp_path):
    path = tmp_path / "run.sqlite"
    with RunStore(path) as store:
        name = store.put_text("x = 1\n" * 100)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE costada_blob SET data = x'00ff00'")
    with RunStore(path) as store, pytest.raises(ValueError, match=f"text {name} is damaged"):
        store.text(name)


def test_a_text_of_other_bytes_than_utf_8_is_named(tmp_path):
    path, data = tmp_path / "run.sqlite", b"x = '\xff'\n"
    name = sha256(data).hexdigest()
    RunStore(path).close()
    spoil(path, "INSERT INTO costada_blob VALUES (?, ?)", name, zlib.compress(data))
    with RunStore(path) as store, pytest.raises(ValueError, match=rf"run\.sqlite: text {name} is"):
        store.text(name)


def spoil(path, statement, *values):
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(statement, values)


def test_a_column_that_is_no_text_any_more_is_named(tmp_path):
    path = run_file(tmp_path)
    spoil(path, "UPDATE costada_step SET row = CAST(x'7bc822' AS TEXT) WHERE iteration = 7")
    with pytest.raises(ValueError, match=r"run\.sqlite: is damaged \(a text in it is not UTF-8\)"):
        with_steps(path)


def test_a_message_of_sqlite_that_is_no_text_any_more_is_reported_as_damage(tmp_path):
    path = run_file(tmp_path)
    data = path.read_bytes()
    spoilt = data.replace(b"costada_stepcostada_step", b"costada_s\xc8epcostada_s\xc8ep").replace(
        b"TABLE costada_step", b"TABLX costada_step"
    )
    path.write_bytes(spoilt)
    with pytest.raises(ValueError, match=r"run\.sqlite: is damaged \(a text in it is not UTF-8\)"):
        with_steps(path)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE checkpoints SET checkpoint = x'81a2c8c801'",
        "UPDATE checkpoints SET metadata = CAST('{' AS BLOB)",
    ],
)
def test_a_damaged_checkpoint_is_named(tmp_path, statement):
    path = tmp_path / "run.sqlite"
    place = {"configurable": {"thread_id": "run", "checkpoint_ns": ""}}
    with closing(RunSaver(path)) as saver:
        saver.put(place, empty_checkpoint(), {}, {})
    spoil(path, statement)
    reported = r"run\.sqlite: a checkpoint in it is damaged \(.*\); restore it from a backup"
    with closing(RunSaver(path)) as saver:
        with pytest.raises(ValueError, match=reported):
            saver.get_tuple(place)
        with pytest.raises(ValueError, match=reported):
            list(saver.list(place))


def test_a_file_in_a_folder_that_is_not_there_cannot_be_opened(tmp_path):
    with pytest.raises(PermissionError, match="cannot be opened; expected a file in a folder"):
        RunStore(tmp_path / "none" / "run.sqlite")


def test_a_lock_that_another_program_keeps_is_reported(tmp_path):
    path = tmp_path / "run.sqlite"
    with closing(sqlite3.connect(path)) as holder, closing(sqlite3.connect(path)) as other:
        other.execute("PRAGMA busy_timeout = 0")
        holder.execute("CREATE TABLE t (x)")
        holder.execute("BEGIN EXCLUSIVE")
        with pytest.raises(OSError, match="another program keeps it locked"), explaining(path):
            other.execute("INSERT INTO t VALUES (1)")


def test_a_full_disk_undoes_the_transaction_and_the_next_one_works(tmp_path):
    path = tmp_path / "run.sqlite"
    with closing(RunSaver(path)) as saver:
        saver.setup()
        ((pages,),) = saver.conn.execute("PRAGMA page_count").fetchall()
        saver.conn.execute(f"PRAGMA max_page_count = {pages}")
        with (
            pytest.raises(OSError, match="no room left to write to") as caught,
            saver.cursor() as c,
        ):
            c.execute("INSERT INTO checkpoints VALUES ('1', '', '', '', '', zeroblob(99999), '')")
        assert (caught.value.errno, caught.value.filename) == (errno.ENOSPC, str(path))
        saver.conn.execute(f"PRAGMA max_page_count = {pages + 1000}")
        assert saver.get_tuple({"configurable": {"thread_id": "1"}}) is None
        saver.delete_thread("1")


def test_an_error_that_is_no_fault_of_the_file_stays_what_it_is(tmp_path):
    with (
        closing(sqlite3.connect(":memory:")) as connection,
        pytest.raises(sqlite3.OperationalError, match="no such table"),
        explaining(tmp_path),
    ):
        connection.execute("SELECT * FROM somewhere")


def may(*command):
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


@pytest.mark.process
def test_a_run_that_met_a_full_disk_continues_when_there_is_room(tmp_path):
    if not may(*IN_A_NAMESPACE, "sh", "-c", f"{MOUNT} {tmp_path}"):
        pytest.skip(
            "no disk can be mounted in a user namespace here: run it as root with CAP_SYS_ADMIN"
        )
    script = f'{MOUNT} "$1" && exec "$2" -c "$3" "$1"'
    done = subprocess.run(
        [*IN_A_NAMESPACE, "sh", "-c", script, "sh", str(tmp_path), sys.executable, FILLING],
        env={**os.environ, "PYTHONPATH": str(TESTS)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert str(tmp_path / "run") in report["reported"]
    assert report["resumed"] == report["whole"]
    assert report["steps"] == list(range(1, report["whole"][3] + 1))


@pytest.mark.process
def test_a_run_file_in_a_folder_that_may_not_be_written_says_so():
    folder = Path(subprocess.check_output(["mktemp", "-d"], text=True).strip())
    try:
        path = run_file(folder)
        folder.chmod(0o555)
        done = subprocess.run(
            [*(AS_NOBODY if os.geteuid() == 0 else ()), sys.executable, "-c", READING, str(path)],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            pytest.skip(f"no ordinary user can start this Python: {done.stderr[-200:]}")
        assert done.stdout.startswith(f"{path}: ")
        assert "writ" in done.stdout
    finally:
        folder.chmod(0o755)
        shutil.rmtree(folder)


def with_zeros(path):
    data = bytearray(path.read_bytes())
    data[4096:] = bytes(len(data) - 4096)
    path.write_bytes(data)
    return path


def test_a_damaged_file_is_neither_copied_nor_cut(tmp_path):
    path = with_zeros(run_file(tmp_path))
    with pytest.raises(ValueError, match=r"run\.sqlite: is damaged \("):
        copy_file(path, tmp_path / "copy.sqlite")
    with pytest.raises(ValueError, match=r"run\.sqlite: is damaged \("):
        cut_back(path, Cut("run", 1, 1, landings=0, last_ticket=1, in_flight={}), "new")


def test_a_copy_into_a_folder_that_is_not_there_names_the_copy(tmp_path):
    with pytest.raises(
        PermissionError, match="cannot be opened; expected a file in a fol"
    ) as reported:
        copy_file(run_file(tmp_path), tmp_path / "none" / "copy.sqlite")
    assert reported.value.filename == str(tmp_path / "none" / "copy.sqlite")


def test_a_file_that_is_no_run_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "run.sqlite"
    path.write_bytes(b"something else" * 100)
    with pytest.raises(ValueError, match="not a run file"), RunHistory.of(path):
        pass
