"""Texts come back exactly, and a damaged one is refused."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from costada.store.database import Database

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
