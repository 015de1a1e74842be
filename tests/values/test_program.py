from hashlib import sha256
from time import process_time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costada.values.candidate import Program, text_hash
from costada.values.program_form import (
    MAX_FILES,
    ProgramForm,
    file_ending,
    invalid_files_reason,
    invalid_path_reason,
    matches,
)

TEXTS = st.text(st.characters(blacklist_categories=["Cs"]), max_size=20)
FILES = st.dictionaries(st.sampled_from(["a.py", "b.py", "c/d.py", "c/e.md"]), TEXTS, min_size=1)


@given(FILES)
def test_programs_of_the_same_files_are_equal_in_any_order(files):
    one = Program.of(files)
    other = Program.of(dict(reversed(files.items())))
    assert (one, hash(one), one.hash, one.text) == (other, hash(other), other.hash, other.text)
    assert dict(one) == files
    assert Program.of(one.source) == one


@given(FILES, FILES)
def test_programs_with_another_path_or_text_differ_in_name_and_in_value(files, others):
    one, other = Program.of(files), Program.of(others)
    assert (one == other) is (one.hash == other.hash) is (files == others)


def test_a_program_of_one_text_is_named_by_its_text_alone():
    program = Program.of("x = 1\n")
    assert program.hash == sha256(b"x = 1\n").hexdigest() == text_hash("x = 1\n")
    assert (program.source, program.text, program.is_one_text) == ("x = 1\n", "x = 1\n", True)
    assert Program.of({"program.py": "x = 1\n"}).hash != program.hash


def test_the_text_of_several_files_has_each_below_its_path():
    program = Program.of({"b.py": "y = 2\n", "a.py": "x = 1"})
    assert program.text == "==> a.py <==\nx = 1\n==> b.py <==\ny = 2\n"
    assert program["b.py"] == "y = 2\n"
    assert [program.get(path) for path in ("", "a", "a.py", "c.py")] == [None, None, "x = 1", None]


@pytest.mark.parametrize("path", ["a.py", "a/b/c.py", "with space.md", "ü.py", "a" * 200, "-o"])
def test_relative_paths_in_their_normal_form_are_accepted(path):
    assert invalid_path_reason(path) is None


@pytest.mark.parametrize(
    "path",
    [
        *("", "/etc/passwd", "../a", "a/../b", "./a", "a//b", "a/", ".env", "a/.git/config", ".."),
        *(
            "a\\b",
            "a\nb",
            "a\0b",
            "a\u202eb",
            " a",
            "a /b",
            "a" * 201,
            "ü" * 101,
            "/".join("a" * 13),
        ),
    ],
)
def test_paths_that_could_leave_the_folder_or_hide_are_refused(path):
    assert invalid_path_reason(path)


@pytest.mark.parametrize(
    ("paths", "expected"),
    [
        ([], "0 files, expected 1 to 200"),
        ([f"{n}.py" for n in range(MAX_FILES + 1)], "201 files, expected 1 to 200"),
        (["a.py", "../b.py"], "a file '../b.py', expected a relative path"),
        (["a", "a/b/c.py"], "a file 'a/b/c.py' and a file 'a', expected the latter a folder"),
    ],
)
def test_paths_that_no_folder_can_hold_together_are_refused(paths, expected):
    assert expected in str(invalid_files_reason(paths))


def test_files_of_a_package_are_the_paths_of_a_program():
    assert invalid_files_reason(["pkg/__init__.py", "pkg/a.py", "pkgs.py"]) is None


@pytest.mark.parametrize(
    ("path", "pattern", "expected"),
    [
        ("src/a.py", "src/*.py", True),
        ("src/deep/a.py", "src/*.py", False),
        ("src/deep/a.py", "src/**/*.py", True),
        ("src/a.py", "src/**/*.py", True),
        ("a/b/c.md", "**", True),
        ("src", "src/*.py", False),
        ("src/a.py", "SRC/*.py", False),
    ],
)
def test_a_star_stops_at_a_slash_and_two_stand_for_any_folders(path, pattern, expected):
    assert matches(path, pattern) is expected


def test_without_patterns_a_candidate_has_the_files_of_the_start():
    form = ProgramForm(paths=("a.py", "b.py"))
    assert [form.allows(path) for path in ("a.py", "b.py", "c.py")] == [True, True, False]


@pytest.mark.parametrize(
    ("name", "language", "ending"),
    [
        ("solver.f", "Fortran", ".f"),
        ("config.ini", "text", ".ini"),
        ("", "C++", ".cpp"),
        ("", "Python", ".py"),
        ("", "unheard of", ".txt"),
    ],
)
def test_a_program_keeps_the_ending_of_its_file(name, language, ending):
    assert file_ending(name, language) == ending


def test_many_stars_take_no_time():
    pattern, path = "/".join(["**"] * 11 + ["x"]), "/".join("abcdefghijkl")
    start = process_time()
    assert not any(matches(f"{number}{path}", pattern) for number in range(20))
    assert process_time() - start < 1.0
