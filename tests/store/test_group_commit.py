"""Commits that wait for the disk: several share one sync, and nothing else waits with them."""

import errno
import os
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
from waiting import within

from costada.store.call_log import CallKey
from costada.store.database import Database
from costada.store.rows import CallRow
from costada.store.run_store import RunStore
from costada.store.sqlite_engine import WriteAheadLog
from costada.values.numbering import TicketNumber

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(not hasattr(os, "fdatasync"), reason="the system has no fdatasync"),
]

INSERT = "INSERT INTO costada_step VALUES ('run', ?, '{}')"


class SlowDisk:
    """Lets each sync of this process wait until the test allows it, and counts them."""

    def __init__(self) -> None:
        self.num_begun, self.num_ended = 0, 0
        self._allowed = threading.Semaphore(0)
        self._real = os.fdatasync

    def fdatasync(self, descriptor: int) -> None:
        self.num_begun += 1
        self._allowed.acquire()
        self._real(descriptor)
        self.num_ended += 1

    def allow(self, number: int = 1) -> None:
        self._allowed.release(number)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[SlowDisk]:
    slow = SlowDisk()
    monkeypatch.setattr(os, "fdatasync", slow.fdatasync)
    yield slow
    slow.allow(1000)


@pytest.fixture
def database(tmp_path, disk) -> Iterator[Database]:
    with closing(Database(tmp_path / "run.sqlite")) as opened:
        yield opened
        disk.allow(1000)


def put(database: Database, number: int) -> None:
    with database.transaction(is_durable=True):
        database.write(INSERT, (number,))


def numbers(database: Database) -> set[int]:
    return {number for (number,) in database.rows("SELECT iteration FROM costada_step")}


def test_commits_that_come_during_a_sync_share_the_next_one(database, disk, monkeypatch):
    wanted, real = [], WriteAheadLog._await

    def note(log: WriteAheadLog, number: int) -> None:
        wanted.append(number)
        real(log, number)

    monkeypatch.setattr(WriteAheadLog, "_await", note)
    with ThreadPoolExecutor(8) as threads:
        first = threads.submit(put, database, 0)
        within(20, lambda: disk.num_begun == 1)
        others = [threads.submit(put, database, number) for number in range(1, 8)]
        within(20, lambda: len(wanted) == 8)
        assert numbers(database) == set(range(8))
        disk.allow()
        first.result(60)
        assert not any(each.done() for each in others)
        disk.allow()
        for each in others:
            each.result(60)
    assert disk.num_ended == 2


def test_the_file_can_be_read_and_written_while_a_commit_waits_for_the_disk(database, disk):
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(put, database, 1)
        within(20, lambda: disk.num_begun == 1)
        with database.transaction():
            database.write(INSERT, (2,))
        assert numbers(database) == {1, 2}
        assert not waiting.done()
        disk.allow()
        waiting.result()


def test_a_request_waits_for_the_disk_and_its_end_does_not(tmp_path, disk):
    call = CallRow(ticket=TicketNumber(1), role="generation", attempt=1)
    with RunStore(tmp_path / "run.sqlite") as store, ThreadPoolExecutor(1) as threads:
        sent = threads.submit(store.call_log.put_call, "run", call)
        within(20, lambda: disk.num_begun == 1)
        assert store.call_log.is_known(CallKey("run", TicketNumber(1), "generation", 1))
        assert not sent.done()
        disk.allow()
        number = sent.result()
        store.call_log.finish_call("run", number, call)
        within(20, lambda: disk.num_begun == 2)  # at once, though no other request follows
        assert disk.num_ended == 1
        disk.allow(1000)


def test_a_disk_that_failed_once_is_not_believed_again(tmp_path, monkeypatch):
    real, fails = os.fdatasync, iter([True])

    def fdatasync(descriptor: int) -> None:
        if next(fails, False):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        real(descriptor)

    monkeypatch.setattr(os, "fdatasync", fdatasync)
    path = tmp_path / "run.sqlite"
    with closing(Database(path)) as database:
        for number in (1, 2):
            with pytest.raises(OSError, match="check the disk") as caught:
                put(database, number)
            assert caught.value.errno == errno.EIO
            assert caught.value.filename == str(path)


def test_a_durable_commit_is_in_what_was_synced_of_the_log(tmp_path, monkeypatch):
    real, path = os.fdatasync, tmp_path / "run.sqlite"
    lost = tmp_path / "lost" / "run.sqlite"
    lost.parent.mkdir()

    def fdatasync(descriptor: int) -> None:
        real(descriptor)
        log = path.with_name("run.sqlite-wal").read_bytes()
        lost.with_name("run.sqlite-wal").write_bytes(log)
        lost.write_bytes(path.read_bytes())

    with closing(Database(path)) as database:
        monkeypatch.setattr(os, "fdatasync", fdatasync)
        put(database, 1)
        with database.transaction():
            database.write(INSERT, (2,))
        with closing(sqlite3.connect(lost)) as after_power_loss:
            found = after_power_loss.execute("SELECT iteration FROM costada_step").fetchall()
        monkeypatch.undo()
    assert found == [(1,)]


def test_the_first_commit_to_a_new_log_puts_its_name_on_disk_as_well(tmp_path, monkeypatch):
    real, synced = os.fsync, []

    def fsync(descriptor: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    with closing(Database(tmp_path / "run.sqlite")) as database:
        put(database, 1)
        put(database, 2)
    assert synced == [str(tmp_path)]


def test_a_commit_reaches_the_log_that_is_open_wherever_its_folder_has_gone(tmp_path, monkeypatch):
    """Also after the process has changed its own folder, for a path that was relative to that."""
    real, synced = os.fdatasync, []

    def fdatasync(descriptor: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        real(descriptor)

    (tmp_path / "runs").mkdir()
    monkeypatch.chdir(tmp_path)
    with closing(Database(Path("runs/run.sqlite"))) as database:
        monkeypatch.setattr(os, "fdatasync", fdatasync)
        monkeypatch.chdir("/")
        put(database, 1)
        (tmp_path / "runs").rename(tmp_path / "moved")
        put(database, 2)
        monkeypatch.undo()
    assert synced == [str(tmp_path / place / "run.sqlite-wal") for place in ("runs", "moved")]


def test_the_end_of_a_request_is_on_disk_also_while_the_interpreter_ends(tmp_path):
    code = """
import atexit, os, sys
from pathlib import Path
from costada.store.database import Database

def end():
    real = os.fdatasync
    os.fdatasync = lambda descriptor: (print("synced"), real(descriptor))
    with database.transaction(is_durable=True, waits=False):
        database.write("INSERT INTO costada_step VALUES ('run', 1, '{}')", ())

database = Database(Path(sys.argv[1]))
atexit.register(end)
"""
    command = [sys.executable, "-c", code, str(tmp_path / "run.sqlite")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("synced\n", "")


def test_what_was_committed_before_the_file_is_closed_is_on_disk_after_it(tmp_path, monkeypatch):
    """Also where another connection keeps SQLite from moving the log into the file."""
    real, num_synced = os.fdatasync, 0

    def fdatasync(descriptor: int) -> None:
        nonlocal num_synced
        num_synced += 1
        real(descriptor)

    path = tmp_path / "run.sqlite"
    with closing(Database(path)), closing(Database(path)) as database:
        with database.transaction():
            database.write(INSERT, (1,))
        monkeypatch.setattr(os, "fdatasync", fdatasync)
        database.close()
        assert num_synced == 1
