"""How far apart two programs are."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costada.controller.archive import (
    distance,
    features,
    jaccard_distance,
    length_distance,
    program_features,
)
from costada.values.candidate import Program

FILES = st.dictionaries(
    st.sampled_from(["a.py", "b.py", "c/d.py"]), st.text("ab1. \n", max_size=9), min_size=1
)


def code_distance(code: str, other: str) -> float:
    return distance(Program.of(code), Program.of(other))


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


@given(st.lists(st.sampled_from([*"ab_1. \t\n(é²", "for", "x.y(", "1.5", "np."]), max_size=14))
def test_calls_and_keywords_are_found_as_plain_patterns_find_them(pieces: list[str]) -> None:
    code = "".join(pieces)
    calls = re.findall(r"(?<![\w.])([^\W\d]\w*(?:\.\w+)+)[ \t]*\(", code)
    expected = {("call", name) for name in calls}
    if re.search(r"\bfor\b", code):
        expected.add(("keyword", "for"))
    assert features(code).structure == expected


@pytest.mark.parametrize(
    "piece", ["a.(", "for", ".", ". ", "a.", "a", " ", "import ", "from a.", "def ", "1.", "a.b "]
)
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
    found = code_distance(code, other)
    assert found == code_distance(other, code)
    assert 0.0 <= found <= 1.0


@given(FILES, FILES)
def test_the_distance_of_several_files_is_symmetric_and_none_for_equal_files_in_any_order(
    files: dict[str, str], others: dict[str, str]
) -> None:
    one, other = Program.of(files), Program.of(others)
    assert distance(one, other) == distance(other, one)
    assert 0.0 <= distance(one, other) <= 1.0
    assert distance(one, Program.of(dict(reversed(files.items())))) == 0.0


def test_the_features_of_several_files_are_those_of_each_and_their_paths() -> None:
    found = program_features(Program.of({"a.py": "import os\nx1 = 10\n", "b.md": "x1 def"}))
    assert found.tokens == {"import", "os", "x1", "10", "def"}
    assert found.structure == {("import", "os"), ("file", "a.py"), ("file", "b.md")}
    assert found.length == 24


def test_a_file_of_another_name_counts_as_structure() -> None:
    one, other = Program.of({"a.py": "xx"}), Program.of({"b.py": "xx"})
    assert distance(one, other) == pytest.approx(0.3)


def test_a_change_of_one_file_costs_no_look_at_the_others() -> None:
    shared = {f"{number}.py": f"value_{number} = 1\n" for number in range(200)}
    distance(Program.of(shared), Program.of({**shared, "0.py": "a_a = 0\n"}))
    before = features.cache_info().misses
    for number in range(20):
        changed = Program.of({**shared, "0.py": f"b_b = {number}\n"})
        distance(Program.of(shared), changed)
    assert features.cache_info().misses - before == 20
