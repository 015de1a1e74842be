"""Texts come back exactly, in little room when they resemble an earlier one."""

import random
from contextlib import closing, suppress
from hashlib import sha256

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from store_backends import SHARED

from costada.store.database import AGAINST_ANOTHER, MIN_BASE, Database, Packer, unpack
from costada.store.run_store import RunStore

TEXTS = st.lists(st.text(max_size=40).map(lambda text: text * 80), max_size=8)


def program(seed: int, lines: int = 150) -> str:
    rng = random.Random(seed)
    return "".join(f"x_{rng.randrange(10**6)} = {rng.random()}\n" for _ in range(lines))


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


def test_a_text_like_an_earlier_one_takes_little_room_and_needs_it() -> None:
    packer, base = Packer(), program(1).encode()
    name = sha256(base).hexdigest()
    alone = packer.pack(base)
    assert unpack(alone, lambda _: b"") == base
    packer.offer_base(name, base, alone)
    like = b"# a change\n" + base
    packed = packer.pack(like)
    assert len(packed) < len(alone) / 10
    assert packed.startswith(AGAINST_ANOTHER)
    assert unpack(packed, {name: base}.__getitem__) == like


def test_a_text_unlike_the_earlier_one_stands_alone() -> None:
    packer, base = Packer(), program(1).encode()
    packer.offer_base(sha256(base).hexdigest(), base, packer.pack(base))
    assert not packer.pack(program(2).encode()).startswith(AGAINST_ANOTHER)
    assert not packer.pack(b"short").startswith(AGAINST_ANOTHER)


def test_nothing_is_compared_with_a_text_that_is_short_or_does_not_stand_alone() -> None:
    packer, short = Packer(), program(1).encode()[: MIN_BASE - 1]
    packer.offer_base("00" * 32, short, packer.pack(short))
    assert not packer.pack(short).startswith(AGAINST_ANOTHER)
    packer.offer_base("00" * 32, program(1).encode(), AGAINST_ANOTHER)
    assert not packer.pack(program(1).encode()).startswith(AGAINST_ANOTHER)


def test_a_text_whose_transaction_was_undone_is_no_base_for_later_ones(tmp_path) -> None:
    path = tmp_path / "run.sqlite"
    database = Database(path)

    def undone() -> None:
        with database.transaction():
            database.put_text(program(1))
            raise ArithmeticError

    with pytest.raises(ArithmeticError):
        undone()
    name = database.put_text("# a change\n" + program(1))
    database.close()
    with RunStore(path) as store:
        assert store.text(name) == "# a change\n" + program(1)


def test_a_text_of_a_transaction_is_known_once_that_is_committed(tmp_path):
    database = Database(tmp_path / "run.sqlite")
    with suppress(KeyError), database.transaction():
        database.put_text("undone")
        raise KeyError
    with database.transaction():
        database.put_text("kept")
    statements = []
    database.engine._connection.set_trace_callback(statements.append)
    assert database.text(database.put_text("kept")) == "kept"
    assert statements == []
    name = database.put_text("undone")
    database.close()
    assert Database(tmp_path / "run.sqlite").text(name) == "undone"


@pytest.mark.parametrize("address", SHARED, indirect=True)
def test_a_text_that_another_client_has_packed_is_no_base(address) -> None:
    base, likeness, third = (program(1) + f"# {number}\n" for number in range(3))
    with closing(Database(address)) as first:
        for text in (base, likeness):
            first.put_text(text)
    with closing(Database(address)) as second:
        names = [second.put_text(text) for text in (likeness, third)]
    with closing(Database(address)) as reader:
        assert [reader.text(name) for name in names] == [likeness, third]
