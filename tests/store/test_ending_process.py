"""A process that ends while its threads use a run file."""

import os
import subprocess
import sys

import pytest

from costada.store.database import Database

pytestmark = pytest.mark.process

PATIENCE = 60

WRITING = """
import atexit, sys
from pathlib import Path
from threading import Event, Thread
from costada.store.database import Database

COUNT = ("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 3000000)"
         " SELECT count(*) FROM n")
database = Database(Path(sys.argv[1]))
began, ends = Event(), Event()

def write():
    with database.transaction(is_durable=True):
        began.set()
        ends.wait()
        for _ in range(3):
            database.rows(COUNT)
        database.write("INSERT INTO costada_blob VALUES (?, ?)", ("ab", b"written"))

atexit.register(ends.set)  # is called before the connection is closed
Thread(target=write, daemon=True).start()
began.wait()
"""

FORKING = """
import os, sys
from pathlib import Path
from threading import Event, Thread
from costada.store.database import Database

database = Database(Path(sys.argv[1]))
began, parent_ends = Event(), Event()

def hold():
    with database.transaction():
        began.set()
        parent_ends.wait()

thread = Thread(target=hold, daemon=True)
thread.start()
began.wait()
child = os.fork()
if not child:
    sys.exit(7)
status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
parent_ends.set()
thread.join()
database.write("INSERT INTO costada_blob VALUES (?, ?)", ("ab", b"written"))
sys.exit(status)
"""


def executed(script, path):
    """Execute a script with the path of a run file."""
    return subprocess.run(
        [sys.executable, "-c", script, os.fspath(path)],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


def written(path):
    """What a script has written into a run file."""
    database = Database(path, is_read_only=True)
    try:
        return database.rows("SELECT hash, data FROM costada_blob")
    finally:
        database.close()


def test_a_transaction_of_a_thread_ends_before_the_file_is_closed(tmp_path):
    path = tmp_path / "run.sqlite"
    ended = executed(WRITING, path)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert written(path) == [("ab", b"written")]


def test_a_forked_process_ends_while_a_thread_of_its_parent_writes(tmp_path):
    path = tmp_path / "run.sqlite"
    ended = executed(FORKING, path)
    assert (ended.returncode, ended.stderr) == (7, "")
    assert written(path) == [("ab", b"written")]
