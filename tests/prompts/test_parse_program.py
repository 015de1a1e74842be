import hypothesis.strategies as st
import pytest
from hypothesis import given

from costada.prompts.changes import Change, read_change
from costada.prompts.whole_texts import (
    MAX_PROGRAM_CHARACTERS,
    Rejection,
    complete_program,
    defined_names,
    defines,
    required_names,
    top_level_statements,
    with_definitions,
)
from costada.values.candidate import Program
from costada.values.program_form import ProgramForm

PARENT = """# EVOLVE-BLOCK-START
def construct():
    size = 1
    return size


# EVOLVE-BLOCK-END


def run():
    return construct()
"""
BLOCK = "# EVOLVE-BLOCK-START\ndef construct():\n    return {}\n# EVOLVE-BLOCK-END"
FRAME = "\n\n\ndef run():\n    return construct()\n"


def parse_program(reply: str, parent: str, entry_point: str | None) -> Change | Rejection:
    return read_change(reply, Program.of(parent), ProgramForm(entry_point=entry_point))


def parse(reply: str) -> Change | Rejection:
    return parse_program(reply, PARENT, "run")


def code_of(reply: str) -> str:
    result = parse(reply)
    assert isinstance(result, Change), result
    return result.program.text


def reason_of(reply: str) -> str:
    result = parse(reply)
    assert isinstance(result, Rejection), result
    return result.reason


def edit(search: str, replacement: str) -> str:
    return f"<<<<<<< SEARCH\n{search}\n=======\n{replacement}\n>>>>>>> REPLACE\n"


CHANGED = PARENT.replace("size = 1", "size = 2")
GROW = edit("    size = 1", "    size = 2")
PART = "```python\ndef construct():\n    return 9\n```\n"
PROGRAM = "def run():\n    return 5\n"
FRAMED_SEVEN = BLOCK.format(7) + FRAME


@pytest.mark.parametrize(
    ("reply", "code"),
    [
        (GROW.replace("\n", "\r\n"), CHANGED),
        (edit(PARENT.rstrip(), BLOCK.format(7)), FRAMED_SEVEN),
        (f"Better:\n```python\n{PROGRAM}```\nDone.", PROGRAM),
        (f"```python\n{BLOCK.format(7)}\n```\nThis helps.", FRAMED_SEVEN),
        (f"```\n{BLOCK.format(7)}\n```", FRAMED_SEVEN),
        (f"I rewrote it:\n{BLOCK.format(7)}\nThat is all.", FRAMED_SEVEN),
        (f"```python\n{BLOCK.format(7)}", FRAMED_SEVEN),
        (f"{BLOCK.format(7)}\n>>>>>>> REPLACE\n```", FRAMED_SEVEN),
        (
            f"```python\n{BLOCK.format(0)}\n=======\n{BLOCK.format(7)}\n>>>>>>> REPLACE\n```",
            FRAMED_SEVEN,
        ),
        (
            f"```python\n{BLOCK.format(8)}\n```\nWait.\n```python\n{BLOCK.format(7)}\n```",
            FRAMED_SEVEN,
        ),
        (f"```python\n{BLOCK.format(7)}\n```\n```python\n{PROGRAM}```\n{PART}", FRAMED_SEVEN),
        (f"```python\n{PROGRAM}```\n{PART}", PROGRAM),
        (
            f"```text\n26 circles\n```\n```python\n{BLOCK.format(7)}\n```\n```bash\nrun it\n```",
            FRAMED_SEVEN,
        ),
        (edit(BLOCK.format("siez"), BLOCK.format(7)), FRAMED_SEVEN),
    ],
    ids=[
        "Windows line ends",
        "an edit that drops the frame gets it back",
        "a complete program",
        "a block alone",
        "a block in a fence without language",
        "a block without a fence",
        "a block in an open fence",
        "a stray end marker",
        "a forgotten SEARCH marker",
        "the later of two blocks is the correction",
        "a block goes before a program",
        "a program goes before a part",
        "a fence that is not a program is passed over",
        "a block counts even if its search text is misquoted",
    ],
)
def test_a_reply_becomes_a_program(reply: str, code: str):
    assert code_of(reply) == code


@pytest.mark.parametrize(
    ("reply", "changes"),
    [
        (GROW, "size = 1 -> size = 2"),
        (
            edit("    size = 9", "    size = 8") + GROW,
            "size = 1 -> size = 2\nedits without a place: 1",
        ),
        (
            '```python\ndef run():\n    """\n    Five at once.\n    """\n```',
            "rewrite of run: Five at once.",
        ),
    ],
)
def test_changes_are_summarized(reply: str, changes: str):
    result = parse(reply)
    assert isinstance(result, Change)
    assert result.changes == changes


NEITHER = "The answer holds neither a SEARCH/REPLACE block nor a complete program."


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        ("", "The answer is empty."),
        (" \n\t\n", "The answer is empty."),
        ("I would use a hexagonal grid.", NEITHER),
        ("```python\nprint('hello')\n```", NEITHER),
        ("```python\n# EVOLVE-BLOCK-START\ndef construct():\n    retu", NEITHER),
        ("```python\ndef construct():\n    retu", NEITHER),
        (
            f"<<<<<<< SEARCH\n{PARENT}=======\n{PARENT}",
            "The answer ends before its first SEARCH/REPLACE block is complete.",
        ),
        (
            edit("    size = 1\n    size = 2", "    size = 3")
            + edit("    return size\n    size = 1", "    size = 4")
            + edit("", "x = 1"),
            "No SEARCH text occurs in the current program:\n"
            "- The one that begins with `    size = 1`: the program has no line `    size = 2`.\n"
            "- The one that begins with `    return size`: its lines are in the program, "
            "but not one behind the other, or more than once.\n"
            "- A SEARCH text is empty.",
        ),
        (
            edit("    size = 1", "    size = 1"),
            "The SEARCH/REPLACE blocks leave the program as it is.",
        ),
        (f"```python\n{PARENT}```", "The answer repeats the current program without a change."),
        (
            edit("def run():", "def go():"),
            "The answer repeats the current program without a change.",
        ),
    ],
)
def test_a_reply_without_a_changed_program_is_refused_with_a_reason(reply: str, reason: str):
    assert reason_of(reply) == reason


def test_a_program_that_loses_the_entry_point_is_refused():
    result = parse_program(edit("def run():", "def go():"), "def run():\n    pass\n", "run")
    assert result == Rejection("The program no longer defines `run` at the top level.")


def test_without_an_entry_point_the_frame_is_restored_all_the_same():
    result = parse_program(f"```python\n{BLOCK.format(7)}\n```", PARENT, None)
    assert result == Change(Program.of(FRAMED_SEVEN), "rewrite of construct")


def test_without_entry_point_and_frame_a_rewrite_is_taken_as_it_is():
    reply = "```text\nno code\n```\n```python\ndef step():\n    return 2\n```"
    result = parse_program(reply, "def step():\n    return 1\n", None)
    assert isinstance(result, Change)
    assert result.program.text == "def step():\n    return 2\n"


def test_a_program_over_the_limit_is_refused():
    base = "def run():\n    return 5\n#"
    fits = base + "x" * (MAX_PROGRAM_CHARACTERS - len(base))
    assert code_of(f"```python\n{fits}\n```") == fits + "\n"
    assert reason_of(f"```python\n{fits}x\n```") == (
        "The program has 60001 characters; at most 60000 are allowed."
    )


FRAGMENTS = st.sampled_from(
    [
        *("<<<<<<< SEARCH", "=======", ">>>>>>> REPLACE", "```python", "```", '"""', "Prose."),
        *("def run():", "    return 1", "def construct():", *PARENT.split("\n")),
    ]
)


@given(st.lists(FRAGMENTS, max_size=30).map("\n".join) | st.text(max_size=60))
def test_any_answer_gives_a_changed_program_or_a_reason(reply):
    result = parse(reply)
    if isinstance(result, Change):
        assert "run" in result.program.text
        assert result.program.text != PARENT
        assert result.changes
    else:
        assert result.reason


@pytest.mark.parametrize("half", ["\ud800", chr(0xFFFD)])
def test_a_program_with_a_character_that_cannot_be_encoded_is_no_program(half):
    reason = "The program holds a character that cannot be encoded."
    assert reason_of(edit("    size = 1", f"    size = 2  # {half}")) == reason
    assert code_of(f"{half}\n{edit('    size = 1', '    size = 2')}")
    parent = PARENT.replace("size = 1", f"size = 1  # {half}")
    assert isinstance(parse_program(edit("return size", "return 2"), parent, "run"), Change)


FRAMED = """import os

# EVOLVE-BLOCK-START
import math

SCALE = 2


def construct():
    return helper() * SCALE


@staticmethod
def helper():
    text = '''
stray text at the margin
'''
    return 1


# EVOLVE-BLOCK-END


def run():
    return construct()
"""
RUN = frozenset({"run"})
HEAD, TAIL = FRAMED.split("\nimport math")[0], "# EVOLVE-BLOCK-END\n\n\ndef run():"


def run(program: str | None) -> object:
    """What the program returns; these texts are written here, so they may be executed."""
    assert program is not None
    names: dict[str, object] = {}
    exec(program, names)
    return names["run"]()


def test_a_marked_block_gets_the_parents_frame():
    text = "# EVOLVE-BLOCK-START\ndef construct():\n    return 7\n# EVOLVE-BLOCK-END"
    code = complete_program(text, FRAMED, RUN)
    assert code is not None
    assert code.startswith(HEAD + "\ndef construct():\n    return 7\n" + TAIL)
    assert "helper" not in code
    assert run(code) == 7


def test_a_block_that_holds_the_entry_point_itself_still_gets_the_frame():
    parent = "import math\n# EVOLVE-BLOCK-START\ndef run():\n    return 1\n# EVOLVE-BLOCK-END\n"
    text = "# EVOLVE-BLOCK-START\ndef run():\n    return math.floor(2.5)\n# EVOLVE-BLOCK-END\n"
    assert run(complete_program(text, parent, RUN)) == 2
    assert complete_program(text, "def run():\n    return 1\n", RUN) == text


@pytest.mark.parametrize("lost", ["# EVOLVE-BLOCK-START\n", "# EVOLVE-BLOCK-END\n"])
def test_a_block_that_lost_one_of_its_lines_gets_both_back(lost):
    whole = "# EVOLVE-BLOCK-START\ndef run():\n    return {}\n# EVOLVE-BLOCK-END\n"
    reply, parent = whole.format(2), whole.format(1)
    assert complete_program(reply.replace(lost, ""), parent, RUN) == reply


def test_a_program_with_code_around_its_block_keeps_that_code():
    assert complete_program(
        FRAMED.replace("import os", "import re"), FRAMED, RUN
    ) == FRAMED.replace("import os", "import re")


def test_one_of_the_two_markers_is_enough():
    body = "def construct():\n    return 7\n"
    for text in (f"# EVOLVE-BLOCK-START\n{body}", f"{body}# EVOLVE-BLOCK-END"):
        assert run(complete_program(text, FRAMED, RUN)) == 7


def test_functions_alone_replace_those_of_the_same_name():
    code = complete_program("def helper():\n    return 5\n", FRAMED, RUN)
    assert code is not None
    assert run(code) == 10
    assert "stray text" not in code
    assert "import os" in code


def test_new_functions_and_imports_come_along_with_a_replaced_one():
    text = "import cmath\n\ndef extra():\n    return 3\n\ndef construct():\n    return extra()\n"
    assert run(complete_program(text, FRAMED, RUN)) == 3


def test_without_markers_in_the_parent_functions_are_still_replaced():
    parent = "def part():\n    return 1\n\n\ndef run():\n    return part()\n"
    assert run(complete_program("def part():\n    return 4\n", parent, RUN)) == 4


def test_what_shares_nothing_with_the_parent_does_not_become_a_program():
    assert complete_program("def other():\n    return 1\n", FRAMED, RUN) is None
    assert complete_program("x = 1", "x = 2", RUN) is None


def test_required_is_the_entry_point_or_else_what_the_frame_defines():
    assert required_names(FRAMED, "construct") == {"construct"}
    assert required_names(FRAMED, None) == {"run"}
    assert required_names("def run():\n    pass\n", None) == frozenset()


def test_only_top_level_definitions_and_assignments_define():
    for code in ("def run():", "async def run (x):", "class run:", "run = 1", "run: int = 1"):
        assert defines(code, "run"), code
    for code in ("    def run():", "run()", "run == 1", "def rerun():", "def run2():", "# run = 1"):
        assert not defines(code, "run"), code


def test_names_at_the_top_level_are_found():
    assert defined_names(FRAMED) == {"construct", "helper", "run"}


def test_a_comment_at_the_margin_does_not_cut_a_function():
    code = "def f():\n    x = 1\n# note\n    return x\ny = 2\n"
    assert (
        with_definitions(code, "def f():\n    return 0\n") == "def f():\n    return 0\n\n\ny = 2\n"
    )


@given(st.text(alphabet="ad '\"\n@#)", max_size=80))
def test_pieces_add_up_to_the_program(code):
    assert "\n".join(top_level_statements(code)) == code
