"""A file that another program keeps tables in: none of them is read, changed or dropped."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from decimal import Decimal
from pathlib import Path

import pytest
from langgraph.checkpoint.sqlite import SqliteSaver
from rows import call_row
from toy_graph import graph_of, trace

from costada.store.checkpoints import RunSaver
from costada.store.history import RunHistory
from costada.store.purse import Purse
from costada.store.run_copy import Cut, copy_file, cut_back
from costada.store.run_store import RunStore

Journal = pytest.importorskip("costada.plugins.gateway.response_journal").Journal

THREAD = {"configurable": {"thread_id": "1"}}
THEIRS = """
CREATE TABLE call (run_id, iteration, role, attempt, n, cost, prompt_hash, answer_hash, facts);
INSERT INTO call VALUES ('theirs', 1, 'generation', 1, 1, '0.5', '', '', '{}');
CREATE TABLE run (run_id TEXT PRIMARY KEY, name TEXT NOT NULL, problem TEXT NOT NULL);
INSERT INTO run VALUES ('theirs', 'a', 'b');
CREATE TABLE candidate (name TEXT);
CREATE INDEX candidate_by_iteration ON candidate (name);
CREATE TABLE step (run_id TEXT, iteration INTEGER, row TEXT);
CREATE TABLE request (number INTEGER);
PRAGMA user_version = 41;
"""


@pytest.fixture
def theirs(tmp_path: Path) -> Path:
    path = tmp_path / "theirs.sqlite"
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(THEIRS)
    return path


def contents(path: Path) -> tuple[list[str], int]:
    with closing(sqlite3.connect(path)) as connection:
        ((version,),) = connection.execute("PRAGMA user_version").fetchall()
        lines = [
            line
            for line in connection.iterdump()
            if not any(name in line for name in ("costada_", "checkpoints", '"writes"', "writes ("))
        ]
    return lines, version


def run_a_graph(path: Path) -> None:
    with SqliteSaver.from_conn_string(str(path)) as saver:
        graph, _ = graph_of(checkpointer=saver, budget=0.005)
        assert trace(graph, config=THREAD)
        assert graph.get_state(THREAD).values["stop_reason"] == "budget"


def keep_a_purse(path: Path) -> None:
    with Purse(1.0, path=path) as purse:
        purse.put("1", cost=0.25)
    with Purse(1.0, path=path) as purse:
        assert purse.spent == Decimal("0.25")


@pytest.mark.parametrize("use", [run_a_graph, keep_a_purse])
def test_tables_indexes_and_version_of_another_program_stay_as_they_are(
    theirs: Path, use: Callable[[Path], None]
) -> None:
    before = contents(theirs)
    use(theirs)
    assert contents(theirs) == before


def test_every_table_and_index_of_ours_carries_our_name(tmp_path: Path) -> None:
    run_a_graph(tmp_path / "run.sqlite")
    keep_a_purse(tmp_path / "run.sqlite")
    for _ in range(2):
        Journal(tmp_path / "journal.sqlite").close()
    for name in ("run.sqlite", "journal.sqlite"):
        assert contents(tmp_path / name) == (["BEGIN TRANSACTION;", "COMMIT;"], 0)


def test_a_copy_that_is_cut_back_keeps_what_is_not_ours(theirs: Path, tmp_path: Path) -> None:
    before, copy = contents(theirs), tmp_path / "copy.sqlite"
    with RunStore(theirs) as store:
        store.open_run("run", "costada", "toy")
        for iteration in (1, 2):
            store.put_step("run", iteration, {"iteration": iteration})
            store.call_log.put_call("run", call_row(ticket=iteration))
    copy_file(theirs, copy)
    cut_back(copy, Cut("run", 1, 1, landings=0, last_ticket=1, in_flight={}), "new")
    assert contents(copy) == before
    with RunStore(copy) as store:
        assert store.steps("new") == [{"iteration": 1}]
        assert len(list(store.call_log.calls("new"))) == 1


@pytest.mark.parametrize("read", [RunHistory, lambda path: RunStore(path, is_read_only=True)])
def test_a_reader_refuses_a_file_that_holds_only_tables_of_another_program(
    theirs: Path, read: Callable[[Path], object]
) -> None:
    with pytest.raises(ValueError, match=r"theirs\.sqlite: not a run file of CostAda: .* `call`"):
        read(theirs)


@pytest.mark.parametrize("spoil", ["DROP TABLE costada_format", "DELETE FROM costada_format"])
@pytest.mark.parametrize("opened", [RunStore, RunSaver, RunHistory])
def test_a_file_with_our_tables_and_no_format_of_ours_is_refused(
    tmp_path: Path, spoil: str, opened: Callable[[Path], object]
) -> None:
    path = tmp_path / "run.sqlite"
    RunStore(path).close()
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(spoil)
    with pytest.raises(
        ValueError, match=r"run\.sqlite: not a run file of CostAda: .* `costada_format`"
    ):
        opened(path)


def test_a_file_that_only_langgraph_has_written_to_holds_no_run_yet(tmp_path: Path) -> None:
    path = tmp_path / "run.sqlite"
    with SqliteSaver.from_conn_string(str(path)) as saver:
        saver.setup()
    with RunStore(path, is_read_only=True) as store:
        assert store.run_ids() == []
