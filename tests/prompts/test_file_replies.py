"""Replies that change programs of several files, in the forms in which models write them."""

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from costada.prompts.changes import Change, read_change
from costada.prompts.whole_texts import Rejection
from costada.values.candidate import Program
from costada.values.program_form import ProgramForm, invalid_path_reason

SOLVER = "import math\n\n\ndef solve(n):\n    step = 0.1\n    return step * n\n"
SHAPES = "def area(r):\n    return 3 * r * r\n"
HINTS = "# Hints\n\nTry circles first.\n"
START = Program.of({"src/solver.py": SOLVER, "src/shapes.py": SHAPES, "prompts/hints.md": HINTS})
FORM = ProgramForm(
    paths=tuple(START), patterns=("src/*.py", "prompts/*.md"), entry_point="src.solver:solve"
)
FIXED = ProgramForm(paths=tuple(START))
GROW = "<<<<<<< SEARCH\n    step = 0.1\n=======\n    step = 0.2\n>>>>>>> REPLACE\n"
GROWN = SOLVER.replace("0.1", "0.2")
ROUND = "def area(r):\n    return 3.14 * r * r\n"


def change_of(reply: str, form: ProgramForm = FORM) -> Change:
    read = read_change(reply, START, form)
    assert isinstance(read, Change), read
    return read


def changed(reply: str, form: ProgramForm = FORM) -> dict[str, str | None]:
    """The files that differ from the start's; None for one that is gone."""
    program = change_of(reply, form).program
    paths = [*START, *(path for path in program if path not in START)]
    return {path: program.get(path) for path in paths if program.get(path) != START.get(path)}


def reason_of(reply: str, form: ProgramForm = FORM) -> str:
    read = read_change(reply, START, form)
    assert isinstance(read, Rejection), read
    return read.reason


@pytest.mark.parametrize(
    "reply",
    [
        f"Larger steps.\n\nFILE: src/solver.py\n{GROW}",
        f"### src/solver.py\n\n{GROW}",
        f"### `src/solver.py`:\n```python\n{GROW}```\n",
        f"**src/solver.py**\n{GROW}",
        f"**File: `src/solver.py`**\n\n{GROW}",
        f"1. `src/solver.py` (modified):\n{GROW}",
        f"==> src/solver.py <==\n{GROW}",
        f"src/solver.py\n```python\n{GROW}```\n",
        f"```python src/solver.py\n{GROW}```\n",
        f"```python:src/solver.py\n{GROW}```\n",
        f'```python title="src/solver.py"\n{GROW}```\n',
        f"```src/solver.py\n{GROW}```\n",
        GROW.replace("SEARCH", "SEARCH src/solver.py"),
        f"In `src/solver.py`, I double the step:\n{GROW}",
        f"I change src/shapes.py and `src/solver.py`.\n\nFILE: solver.py\n{GROW}",
        f"FILE: ./src/solver.py\n{GROW}",
        f"FILE: project/src/solver.py\n{GROW}",
        GROW,
        f"```\nFILE: src/solver.py\n{GROW}```\n".replace("\n", "\r\n"),
        f"FILE: src/solver.py\n```python\n{GROWN}```\n",
        f"FILE: src/solver.py\n```\n{GROWN}```\n",
        f"### src/solver.py\n\nThe complete file:\n\n```py\n{GROWN}```\nDone.",
        f"```python src/solver.py\n{GROWN}```\n",
        f"```python\n# src/solver.py\n{GROWN}```\n",
        f"FILE: src/solver.py\n```python\n# src/solver.py\n{GROWN}```\n",
        f"FILE: src/solver.py\n{GROW}\nRun it with src/solver.py:\n```bash\npython run.py\n```\n",
    ],
)
def test_the_path_of_a_change_is_found_in_every_usual_form(reply):
    assert changed(reply) == {"src/solver.py": GROWN}


def test_one_reply_edits_adds_and_deletes_files():
    reply = (
        f"FILE: src/solver.py\n{GROW}\n"
        f"FILE: src/shapes.py\n```python\n{ROUND}```\n\n"
        "FILE: src/grid.py\n```python\nSIZE = 4\n```\n\n"
        "DELETE: prompts/hints.md\n"
    )
    assert changed(reply) == {
        "src/solver.py": GROWN,
        "src/shapes.py": ROUND,
        "src/grid.py": "SIZE = 4\n",
        "prompts/hints.md": None,
    }
    assert change_of(reply).changes == (
        "src/solver.py: step = 0.1 -> step = 0.2\n"
        "src/shapes.py: rewrite of area\n"
        "src/grid.py: added, 1 line\n"
        "prompts/hints.md: deleted"
    )


def test_a_path_holds_for_all_blocks_up_to_the_next():
    second = GROW.replace("    step = 0.1", "import math").replace("    step = 0.2", "import cmath")
    third = "<<<<<<< SEARCH\nTry circles first.\n=======\nTry squares.\n>>>>>>> REPLACE\n"
    reply = f"FILE: src/solver.py\n{GROW}Then:\n{second}\n**prompts/hints.md**\n{third}"
    assert changed(reply) == {
        "src/solver.py": GROWN.replace("import math", "import cmath"),
        "prompts/hints.md": "# Hints\n\nTry squares.\n",
    }


@pytest.mark.parametrize(
    "line",
    [
        *("DELETE prompts/hints.md", "- **DELETE:** `prompts/hints.md`"),
        *("### Delete: `prompts/hints.md`", "Delete file: prompts/hints.md"),
    ],
)
def test_a_line_deletes_a_file(line):
    assert changed(f"It is not needed.\n\n{line}\n") == {"prompts/hints.md": None}


@pytest.mark.parametrize(
    "line",
    [
        *("- Remove `prompts/hints.md`", "1. Delete the file `prompts/hints.md`"),
        *("- Delete prompts/hints.md", "Remove: `prompts/hints.md`"),
    ],
)
def test_an_idea_in_prose_deletes_no_file(line):
    reply = f"Two ways come to mind:\n\n{line}\n- Take longer steps\n\nFILE: src/solver.py\n{GROW}"
    assert changed(reply) == {"src/solver.py": GROWN}


def test_a_file_is_added_by_a_block_with_an_empty_search():
    reply = "FILE: src/new.py\n<<<<<<< SEARCH\n=======\nX = 1\n>>>>>>> REPLACE\n"
    assert changed(reply) == {"src/new.py": "X = 1\n"}


def test_an_empty_file_can_be_added():
    assert changed("FILE: src/__init__.py\n```python\n```\n") == {"src/__init__.py": ""}


def test_a_markdown_file_may_hold_fences():
    text = "# Hints\n\n```python\nx = 1\n```\n\nThat is all.\n"
    reply = f"FILE: prompts/hints.md\n```markdown\n{text}```\n"
    assert changed(reply) == {"prompts/hints.md": text}
    longer = f"FILE: prompts/hints.md\n````markdown\n{text}````\n"
    assert changed(longer) == {"prompts/hints.md": text}


def test_a_file_that_is_written_anew_keeps_its_line_ends():
    start = Program.of({"a.txt": "one\r\ntwo\r\n", "b.txt": "x\n"})
    form = ProgramForm(paths=tuple(start))
    read = read_change("FILE: a.txt\n```\none\n2\n```\n", start, form)
    assert isinstance(read, Change), read
    assert dict(read.program) == {"a.txt": "one\r\n2\r\n", "b.txt": "x\n"}
    same = read_change("FILE: a.txt\n```\none\ntwo\n```\n", start, form)
    assert isinstance(same, Rejection)
    assert same.reason == "The answer leaves the program as it is."


def test_line_ends_and_a_missing_last_one_stay():
    start = Program.of({"a.txt": "one\r\ntwo\r\nthree", "b.txt": "x\n"})
    reply = "FILE: a.txt\n<<<<<<< SEARCH\ntwo\n=======\n2\n>>>>>>> REPLACE\n"
    read = read_change(reply, start, ProgramForm(paths=tuple(start)))
    assert isinstance(read, Change)
    assert dict(read.program) == {"a.txt": "one\r\n2\r\nthree", "b.txt": "x\n"}


FILES = "The files are `prompts/hints.md`, `src/shapes.py`, `src/solver.py`."


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (f"FILE: src/solvr.py\n{GROW}", f"There is no file `src/solvr.py`. {FILES}"),
        ("FILE: bench/x.py\n```python\nX = 1\n```\n", "There is no file `bench/x.py`."),
        ("FILE: ../x.py\n```python\nX = 1\n```\n", "expected a relative path without '.', '..'"),
        ("FILE: src/../../x.py\n```python\nX = 1\n```\n", "expected a relative path without"),
        ("FILE: /etc/cron.d/x.py\n```python\nX = 1\n```\n", "expected a relative path without"),
        ("FILE: src/.ssh/x.py\n```python\nX = 1\n```\n", "without hidden parts"),
        ("DELETE: src/none.py", "There is no file `src/none.py`."),
        ("FILE: src/new.py\n```python\nX = 1\n", "The answer ends before `src/new.py` is complete"),
        ("DELETE: src/solver.py", "The entry point `src.solver:solve` needs `src/solver.py`."),
        (
            "FILE: src/solver.py\n<<<<<<< SEARCH\ndef solve(n):\n=======\ndef run(n):\n"
            ">>>>>>> REPLACE\n",
            "`src/solver.py` no longer defines `solve` at the top level.",
        ),
        (
            "FILE: src/solver.py\n```python\nX = 1\n```\n",
            "`src/solver.py` no longer defines what is used of it at the top level.",
        ),
        (
            f"FILE: src/shapes.py\n{GROW}",
            "the program has no line `    step = 0.1`. (src/shapes.py)",
        ),
        (
            GROW.replace("    step = 0.1", "step = 9"),
            "The one that begins with `step = 9`: no line `FILE: path` above it",
        ),
        ("```python\nX = 1\n```\n", "A fence has no line `FILE: path` above it."),
        ("I would not change a thing.", f"a fence with the complete file. {FILES}"),
        ("", "The answer is empty."),
        (f"FILE: src/shapes.py\n```python\n{SHAPES}```\n", "The answer leaves the program"),
        ("FILE: src/solver.py\n<<<<<<< SEARCH\n    step = 0.1\n=======\n", "The answer ends"),
        (
            "FILE: src/solver.py/x.py\n```python\nX = 1\n```\n",
            "There is no file `src/solver.py/x.py`.",
        ),
    ],
)
def test_a_reply_without_an_allowed_change_is_refused_with_a_reason(reply, reason):
    assert reason in reason_of(reply)


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        ("FILE: src/new.py\n```python\nX = 1\n```\n", "There is no file `src/new.py`."),
        ("DELETE: prompts/hints.md", "`prompts/hints.md` cannot be deleted"),
    ],
)
def test_without_patterns_files_are_neither_added_nor_deleted(reply, reason):
    assert reason in reason_of(reply, FIXED)


def test_an_example_without_a_path_is_no_edit_without_a_place():
    wrong = GROW.replace("    step = 0.1", "    step = 7")
    reply = f"FILE: src/solver.py\n{GROW}{wrong}\nFor example:\n```python\nsolve(3)\n```\n"
    assert change_of(reply).changes == (
        "src/solver.py: step = 0.1 -> step = 0.2\nedits without a place: 1"
    )


def test_a_program_cannot_get_more_files_than_allowed():
    reply = "".join(f"FILE: src/a{n}.py\n```python\nX = {n}\n```\n" for n in range(198))
    assert reason_of(reply) == "The program has 201 files, expected 1 to 200."


def test_a_shell_command_below_a_path_is_no_file():
    reply = f"- src/shapes.py\n```bash\npython src/shapes.py\n```\nFILE: src/solver.py\n{GROW}"
    assert changed(reply) == {"src/solver.py": GROWN}


@pytest.mark.parametrize("fence", ["```\n1 2 3\n```\n", "```python\nprint(step)\n```\n"])
def test_an_example_below_a_sentence_about_a_file_is_not_that_file(fence):
    reply = f"FILE: src/solver.py\n{GROW}\nThe output of `src/shapes.py` is now:\n\n{fence}"
    assert changed(reply) == {"src/solver.py": GROWN}
    reply = f"The line of `prompts/hints.md` in question:\n\n{fence}\nFILE: src/solver.py\n{GROW}"
    assert changed(reply) == {"src/solver.py": GROWN}


def test_a_difference_in_a_fence_is_no_file():
    reply = "FILE: src/shapes.py\n```diff\n-    return 3 * r * r\n+    return 4 * r * r\n```\n"
    assert "a fence with the complete file" in reason_of(reply)


PIECES = st.sampled_from(
    [
        *("FILE: src/solver.py", "FILE: ../up.py", "FILE: /etc/passwd", "### src/new.py", "DELETE"),
        *("DELETE: src/shapes.py", "DELETE ../x", "**bench/x.py**", "```python", "```", "```bash"),
        *("```python ../../x.py", "# src/shapes.py", "x = 1", "def solve(n):", "prompts/a/b.md"),
        *GROW.rstrip().split("\n"),
        *("<<<<<<< SEARCH ../a.py", "C:\\x.py", "FILE: src/.git/x.py", "FILE: src/new.py"),
    ]
)


@settings(max_examples=300)
@given(st.lists(PIECES, max_size=25).map("\n".join) | st.text(max_size=80), st.booleans())
def test_no_reply_writes_outside_of_the_form(reply, is_fixed):
    form = FIXED if is_fixed else FORM
    read = read_change(reply, START, form)
    if isinstance(read, Rejection):
        assert read.reason
        return
    assert read.program != START
    assert read.changes
    for path in read.program:
        assert invalid_path_reason(path) is None
        assert path in START or form.allows(path)
    if is_fixed:
        assert set(read.program) == set(START)


LINES = st.lists(st.sampled_from(["a = 1", "b = 2", "", "    c = 3", "# d"]), max_size=10)


@given(LINES, LINES, LINES)
def test_blocks_and_whole_files_turn_one_program_into_another(old, new, other):
    start = Program.of({"a.py": "\n".join(["first", *old, "last\n"]), "b.py": "x\n"})
    wanted = "\n".join(["first", *new, "last\n"])
    added = "\n".join(["top", *other, "end\n"])
    offline = pytest.importorskip("costada.plugins.offline.answers")
    blocks = offline.replace_blocks(start["a.py"], wanted)
    if blocks is None or wanted == start["a.py"]:
        blocks, wanted = "", start["a.py"]
    reply = f"FILE: a.py\n{blocks}\n\nFILE: c.py\n```python\n{added}```\n\nDELETE: b.py\n"
    read = read_change(reply, start, ProgramForm(paths=tuple(start), patterns=("*.py",)))
    assert isinstance(read, Change)
    assert dict(read.program) == {"a.py": wanted, "c.py": added}


def test_a_new_file_may_have_a_blank_in_its_name_behind_the_sign_for_files():
    program = Program.of({"src/a.py": "x = 1\n"})
    form = ProgramForm(paths=("src/a.py",), patterns=("src/*.py",))
    read = read_change("**FILE: src/ü b.py**\n```python\nx = 2\n```\n", program, form)
    assert read.program == Program.of({"src/a.py": "x = 1\n", "src/ü b.py": "x = 2\n"})
    read = read_change("FILE: lib/a b.py\n```python\nx = 2\n```\n", program, form)
    assert "There is no file `lib/a b.py`" in read.reason
    read = read_change("FILE: src/a.py\n```python\nx = '\0'\n```\n", program, form)
    assert read.reason == "The answer holds a NUL character, which no file can have."
