import subprocess

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from costada.reports.patch import MAX_DIFF, patch
from costada.values.program_form import invalid_files_reason

pytestmark = pytest.mark.process

LINE = st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\n"), max_size=4)
TEXT = st.one_of(
    st.lists(st.sampled_from(["a\n", "b\n", "\n", "c"]), max_size=12).map("".join),
    st.lists(LINE, max_size=4).map("\n".join),
)
PATHS = ("a.py", "pkg/b.py", "with space/c d.md", 'quo"te.txt', "ünï/code.py", "-o", "pkg/deep/e")
FILES = st.dictionaries(st.sampled_from(PATHS), TEXT)


def applied(folder, before, text):
    """What `git apply` makes of files, each text by its path."""
    folder.mkdir()
    for path, content in before.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content.encode())
    command = ["git", "apply", "--unsafe-paths", "--whitespace=nowarn", f"--directory={folder}"]
    done = subprocess.run(
        command, input=text.encode(), cwd=folder, capture_output=True, timeout=60, check=False
    )
    assert done.returncode == 0, (done.stderr, text)
    found = (file for file in folder.rglob("*") if file.is_file())
    return {str(file.relative_to(folder)): file.read_bytes().decode() for file in found}


@settings(max_examples=60)
@given(before=FILES, after=FILES)
@example(before={"a.py": ""}, after={"pkg/b.py": ""})
@example(before={"a.py": "x"}, after={"a.py": "x\n"})
@example(before={"a.py": "x\n"}, after={"a.py": ""})
@example(before={"a.py": "x\r\ny\r\n"}, after={"a.py": "x\r\nz\x0c\r"})
@example(before={"-o": "-- a\n"}, after={"-o": "++ b\n"})
def test_git_makes_of_the_first_files_the_second_ones(tmp_path_factory, before, after):
    text = patch(before, after)
    assert (text == "") is (before == after)
    if text:
        assert applied(tmp_path_factory.mktemp("git") / "folder", before, text) == after


def test_a_change_keeps_three_lines_around_it():
    before = {"a.py": "".join(f"{n}\n" for n in range(20))}
    after = {"a.py": before["a.py"].replace("10\n", "ten\n")}
    assert patch(before, after) == (
        "diff --git a/a.py b/a.py\n--- a/a.py\n+++ b/a.py\n@@ -8,7 +8,7 @@\n"
        " 7\n 8\n 9\n-10\n+ten\n 11\n 12\n 13\n"
    )


@pytest.mark.parametrize("is_new", [True, False])
def test_files_too_long_to_compare_are_replaced_as_a_whole(tmp_path, is_new):
    before = {} if is_new else {"a.py": "x\n" * MAX_DIFF}
    after = {"a.py": "y\n" * MAX_DIFF + "z"}
    assert applied(tmp_path / "folder", before, patch(before, after)) == after


def test_all_paths_of_these_tests_are_paths_of_a_program():
    assert invalid_files_reason(PATHS) is None
