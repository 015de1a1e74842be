import pytest
from hypothesis import given
from hypothesis import strategies as st

from costada.controller.archive import code_distance, features, jaccard_distance, length_distance


def test_equal_texts_have_no_distance() -> None:
    assert code_distance("def f(): pass", "def f(): pass") == 0.0


def test_tokens_weigh_one_half() -> None:
    assert code_distance("import os\nx1 = 10\n", "import os\ny2 = 10\n") == pytest.approx(
        0.5 * 2 / 5
    )


def test_structure_weighs_three_tenths() -> None:
    tokens_apart = 0.5 * 2 / 2
    assert code_distance("import os", "import re") == pytest.approx(0.5 * 2 / 3 + 0.3)
    assert code_distance("aa", "bb") == pytest.approx(tokens_apart)


def test_length_weighs_two_tenths() -> None:
    assert code_distance("aa aa", "aa") == pytest.approx(0.2 * 3 / 5)


def test_tokens_are_names_and_numbers_of_two_characters_or_more() -> None:
    assert features("a + bb * 3 - 14 / 2.5  # cc").tokens == {"bb", "14", "2.5", "cc"}


def test_structure_holds_imports_definitions_calls_and_keywords() -> None:
    code = (
        "import numpy as np, os.path\n"
        "from scipy.optimize import minimize\n"
        "class Search(Base):\n"
        "    async def run(self):\n"
        "        with np.random.seed (3):\n"
        "            plain(3)\n"
    )
    assert features(code).structure == {
        ("import", "numpy"),
        ("import", "os.path"),
        ("import", "scipy.optimize"),
        ("class", "Search"),
        ("def", "run"),
        ("call", "np.random.seed"),
        ("keyword", "async"),
        ("keyword", "with"),
    }


def test_a_program_that_does_not_parse_is_read_all_the_same() -> None:
    assert features("def broken(:\n  for\n").structure == {("def", "broken"), ("keyword", "for")}


@pytest.mark.parametrize("piece", ["a.", "a", " ", "import ", "from a.", "def ", "1.", "a.b "])
def test_long_repetitive_texts_take_linear_time(piece: str) -> None:
    text = piece * (200_000 // len(piece))
    assert features(text).length == len(text)


def test_jaccard_distance_is_the_share_not_in_common() -> None:
    assert jaccard_distance(frozenset("abc"), frozenset("bcd")) == 0.5
    assert jaccard_distance(frozenset(), frozenset()) == 0.0


def test_length_distance_is_relative_to_the_longer_text() -> None:
    assert length_distance(30, 40) == 0.25
    assert length_distance(0, 0) == 0.0


@given(st.text(max_size=60), st.text(max_size=60))
def test_distance_is_symmetric_and_at_most_one(code: str, other: str) -> None:
    distance = code_distance(code, other)
    assert distance == code_distance(other, code)
    assert 0.0 <= distance <= 1.0
