"""Texts come back exactly; damaged texts and rows are refused."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from costada.store.call_log import CallKey
from costada.store.database import Database
from costada.store.rows import CallRow
from costada.store.run_store import RunStore
from costada.values.candidate import Candidate
from costada.values.program import Program

KEY = CallKey("run", 1, "generation", 1)
TEXTS = st.lists(st.text(max_size=40).map(lambda text: text * 80), max_size=8)


@given(TEXTS)
@settings(max_examples=60)
def test_every_text_comes_back_exactly_in_whatever_order(texts: list[str]) -> None:
    database, other = Database(None), Database(None)
    names = [database.put_text(text) for text in texts]
    for text in reversed(texts):
        other.put_text(text)
    assert [database.text(name) for name in names] == texts
    assert [other.text(name) for name in reversed(names)] == texts[::-1]
    database.close()
    other.close()


def test_a_text_whose_transaction_was_undone_is_stored_again(tmp_path: Path) -> None:
    database = Database(tmp_path / "run.sqlite")

    def undone() -> None:
        with database.transaction():
            database.put_text("a program")
            raise ArithmeticError

    with pytest.raises(ArithmeticError):
        undone()
    name = database.put_text("a program")
    database.close()
    assert Database(tmp_path / "run.sqlite").text(name) == "a program"


@pytest.mark.parametrize("data", [b"", b"no zlib", "text", None, b"x\x9c\x03\x00"])
def test_a_damaged_text_is_refused(tmp_path: Path, data: object) -> None:
    path = tmp_path / "run.sqlite"
    database = Database(path)
    name = database.put_text("a program")
    database.close()
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("PRAGMA ignore_check_constraints = ON")
        connection.execute("UPDATE costada_blob SET data = COALESCE(?, 1.5)", (data,))
    with pytest.raises(ValueError, match=rf"run\.sqlite: text {name} is damaged"):
        Database(path).text(name)


@pytest.mark.parametrize(
    ("damage", "read"),
    [
        ("costada_call SET facts = '{}'", lambda store: list(store.call_log.calls("run"))),
        ("""costada_call SET facts = '{"odd": 1}'""", lambda store: store.call_log.last_call(KEY)),
        ("""costada_candidate SET facts = '{"odd": 1}'""", lambda store: found(store)),
        ("costada_candidate SET facts = '[]'", lambda store: found(store)),
        ("""costada_run SET origin = '{"odd": 1}'""", lambda store: store.origin("run")),
    ],
)
def test_a_damaged_row_is_refused_in_a_line(
    tmp_path: Path, damage: str, read: Callable[[RunStore], object]
) -> None:
    path = tmp_path / "run.sqlite"
    with RunStore(path) as store:
        store.open_run("run", "costada", "toy")
        store.call_log.put_call("run", CallRow(iteration=1, role="generation", attempt=1))
        store.candidates.put("run", Candidate(id="0.1", program=Program.of("x = 1"), score=0.5))
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(f"UPDATE {damage}")
    with (
        RunStore(path, is_read_only=True) as store,
        pytest.raises(ValueError, match=r"run\.sqlite: a row in it is damaged \(.*put a copy"),
    ):
        read(store)


def found(store: RunStore) -> object:
    return store.candidates.get("run", "0.1")
