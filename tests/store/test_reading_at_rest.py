"""What a reader sees of a run file, and what it leaves beside it."""

import os
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from costada.store.history import Iterations, RunHistory
from costada.store.run_store import RunStore
from costada.store.sqlite_engine import connect_to_read


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "run.sqlite"
    with RunStore(file) as store:
        store.open_run("run", "costada", "toy")
        store.put_step("run", 1, {"iteration": 1})
    return file


def num_steps(store: RunStore) -> int:
    return len(store.steps("run"))


def test_a_reader_of_a_file_at_rest_leaves_it_as_it_was_and_nothing_beside_it(path: Path) -> None:
    before = path.read_bytes(), path.stat().st_mtime_ns
    with RunStore(path, is_read_only=True) as reader:
        assert num_steps(reader) == 1
    with RunHistory.of(path) as history:
        assert history.last_run() == "run"
    with closing(connect_to_read(path)) as connection:
        connection.execute("SELECT * FROM costada_step").fetchall()
    assert os.listdir(path.parent) == ["run.sqlite"]
    assert (path.read_bytes(), path.stat().st_mtime_ns) == before


def test_a_reader_of_a_file_at_rest_cannot_change_it(path: Path) -> None:
    with (
        RunStore(path, is_read_only=True) as reader,
        pytest.raises(PermissionError, match="may not be written"),
    ):
        reader.open_run("other", "costada", "toy")


def test_a_reader_that_came_first_sees_what_a_run_writes_then(path: Path) -> None:
    with RunStore(path, is_read_only=True) as reader:
        assert num_steps(reader) == 1
        with RunStore(path) as writer:
            for number in range(2, 300):
                writer.put_step("run", number, {"iteration": number, "text": "x" * 4000})
                assert num_steps(reader) == number
        assert num_steps(reader) == 299
    assert os.listdir(path.parent) == ["run.sqlite"]


def test_what_a_reader_began_to_read_stays_whole_while_a_run_rewrites_the_file(path: Path) -> None:
    with RunHistory.of(path) as history:
        assert history.steps(Iterations("run")) == [{"iteration": 1}]
        with RunStore(path) as writer:
            for number in range(1, 300):
                writer.put_step("run", number, {"iteration": number, "text": "x" * 4000})
        assert history.steps(Iterations("run")) == [{"iteration": 1}]
    with RunStore(path, is_read_only=True) as reader:
        assert num_steps(reader) == 299


@pytest.mark.parametrize("may_write_there", [True, False])
def test_a_reader_of_a_run_at_work_sees_what_only_its_log_holds(
    path: Path, may_write_there: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    with RunStore(path) as writer:
        writer.put_step("run", 2, {"iteration": 2})
        monkeypatch.setattr("os.access", lambda *_: may_write_there)
        with RunStore(path, is_read_only=True) as reader:
            assert num_steps(reader) == 2


def test_a_reader_leaves_the_log_of_a_killed_run_where_it_is(path: Path, tmp_path: Path) -> None:
    killed = tmp_path / "killed"
    killed.mkdir()
    with RunStore(path) as writer:
        writer.put_step("run", 2, {"iteration": 2})
        for file in path.parent.glob("run.sqlite*"):
            (killed / file.name).write_bytes(file.read_bytes())
    log = (killed / "run.sqlite-wal").read_bytes()
    with RunStore(killed / "run.sqlite", is_read_only=True) as reader:
        assert num_steps(reader) == 2
    assert (killed / "run.sqlite-wal").read_bytes() == log


@pytest.mark.parametrize("may_write_there", [True, False])
def test_a_reader_sees_no_half_of_a_transaction_that_a_rollback_journal_undoes(
    path: Path, may_write_there: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed = tmp_path / "killed"
    killed.mkdir()
    steps = [{"iteration": number, "text": "x" * 2000} for number in range(1, 300)]
    with RunStore(path) as store:
        for step in steps:
            store.put_step("run", int(str(step["iteration"])), step)
    with closing(sqlite3.connect(path, isolation_level=None)) as writer:
        writer.execute("PRAGMA journal_mode=DELETE")
        writer.execute("PRAGMA cache_size=1")  # pages go to the file before the transaction ends
        writer.execute("BEGIN")
        writer.execute("UPDATE costada_step SET row = replace(row, 'x', 'y')")
        for end in ("", "-journal"):
            shutil.copy(f"{path}{end}", killed)
        writer.execute("ROLLBACK")
    monkeypatch.setattr("os.access", lambda *_: may_write_there)
    if may_write_there:
        with RunHistory.of(killed / path.name, is_idle=True) as history:
            assert history.steps(Iterations("run")) == steps
    else:
        with pytest.raises(PermissionError, match="make both writable, or work on a copy"):
            RunHistory(killed / path.name, is_idle=True)
