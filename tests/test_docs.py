"""Every code block of `docs/` runs, and prints what the page says it prints."""

import pytest
from doc_blocks import (
    ROOT,
    blocks_of,
    is_as_printed,
    is_shown_by,
    locked_for_oldest_python,
    output_of_line,
    said_by,
)

PAGES = sorted((ROOT / "docs").rglob("*.md"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_block_of_a_page_is_of_a_kind_that_is_run(page):
    assert [block.language for block in blocks_of(page) if not block.is_known] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_blocks_of_a_page_run_in_their_order_and_print_what_it_shows(page, tmp_path):
    for expected, said in said_by(blocks_of(page), tmp_path):
        assert not is_as_printed() or is_shown_by(expected, said), f"{expected}\n---\n{said}"


def test_dots_stand_for_what_may_differ_and_everything_else_is_compared():
    assert is_shown_by("a\n...\nc ... e", "\na\nb\nb\nc d e\n\n")
    assert is_shown_by("a 0.5", " \na 0.5   \n")
    assert not is_shown_by("a 0.5", "a 0x5")
    assert not is_shown_by("a", "a\nb")


def test_pages_are_compared_where_the_oldest_python_has_the_locked_versions():
    lock = """
numpy==2.4.6 ; python_full_version < '3.12' \\
    --hash=sha256:0
numpy==2.5.5 ; python_full_version >= '3.12' \\
scipy==1.17.1 \\
"""
    assert locked_for_oldest_python(lock) == {"numpy": "2.4.6", "scipy": "1.17.1"}


def test_a_command_that_fails_is_told_apart_from_one_whose_exit_code_is_asked_for(tmp_path):
    for command in ("costada trace nowhere", "ls nowhere"):
        with pytest.raises(AssertionError, match="nowhere"):
            output_of_line(command, tmp_path)
        said = output_of_line(f'{command} || echo "exit code $?"', tmp_path)
        assert said.endswith("exit code 2\n")
    assert output_of_line('true || echo "exit code $?"', tmp_path) == ""
