import hypothesis.strategies as st
import pytest
from hypothesis import given

from costada.prompts.replies import MAX_PROGRAM_CHARACTERS, Proposal, Rejection, parse_program

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


def parse(reply: str) -> Proposal | Rejection:
    return parse_program(reply, PARENT, "run")


def code_of(reply: str) -> str:
    result = parse(reply)
    assert isinstance(result, Proposal), result
    return result.code


def reason_of(reply: str) -> str:
    result = parse(reply)
    assert isinstance(result, Rejection), result
    return result.reason


def edit(search: str, replacement: str) -> str:
    return f"<<<<<<< SEARCH\n{search}\n=======\n{replacement}\n>>>>>>> REPLACE\n"


def test_an_edit_is_applied_and_summarized():
    assert parse(edit("    size = 1", "    size = 2")) == Proposal(
        code=PARENT.replace("size = 1", "size = 2"), changes="size = 1 -> size = 2"
    )


def test_windows_line_ends_do_not_matter():
    reply = edit("    size = 1", "    size = 2").replace("\n", "\r\n")
    assert code_of(reply) == PARENT.replace("size = 1", "size = 2")


def test_edits_that_match_count_even_if_others_do_not():
    reply = edit("    size = 9", "    size = 8") + edit("    size = 1", "    size = 2")
    result = parse(reply)
    assert isinstance(result, Proposal)
    assert result.changes == "size = 1 -> size = 2\nedits without a place: 1"


def test_an_edit_that_drops_the_frame_gets_it_back():
    reply = edit(PARENT.rstrip(), BLOCK.format(7))
    assert code_of(reply) == BLOCK.format(7) + FRAME


def test_a_complete_program_in_a_fence_is_taken_as_it_is():
    program = "def run():\n    return 5\n"
    assert code_of(f"Better:\n```python\n{program}```\nDone.") == program


@pytest.mark.parametrize(
    "reply",
    [
        "```python\n{}\n```\nThis helps.",
        "```\n{}\n```",
        "I rewrote it:\n{}\nThat is all.",
        "```python\n{}",
        "{}\n>>>>>>> REPLACE\n```",
        f"```python\n{BLOCK.format(0)}\n=======\n{{}}\n>>>>>>> REPLACE\n```",
    ],
)
def test_a_block_alone_is_put_into_the_parents_frame(reply):
    assert code_of(reply.format(BLOCK.format(7))) == BLOCK.format(7) + FRAME


def test_a_function_alone_replaces_the_parents():
    code = code_of("```python\ndef construct():\n    return 7\n```")
    assert "return 7" in code
    assert "size" not in code
    assert code.endswith(FRAME)


def test_the_later_of_two_blocks_is_the_correction():
    reply = f"```python\n{BLOCK.format(7)}\n```\nWait.\n```python\n{BLOCK.format(8)}\n```"
    assert code_of(reply) == BLOCK.format(8) + FRAME


def test_a_block_goes_before_a_program_and_that_before_a_part():
    part = "```python\ndef construct():\n    return 9\n```\n"
    program = "```python\ndef run():\n    return 5\n```\n"
    block = f"```python\n{BLOCK.format(7)}\n```\n"
    assert code_of(block + program + part) == BLOCK.format(7) + FRAME
    assert code_of(program + part) == "def run():\n    return 5\n"


def test_a_fence_that_is_no_program_is_passed_over():
    reply = f"```text\n26 circles\n```\n```python\n{BLOCK.format(7)}\n```\n```bash\nrun it\n```"
    assert code_of(reply) == BLOCK.format(7) + FRAME


def test_a_whole_block_counts_even_if_its_search_text_is_misquoted():
    reply = edit(BLOCK.format("siez"), BLOCK.format(7))
    assert code_of(reply) == BLOCK.format(7) + FRAME


def test_a_rewrite_is_summarized_by_its_first_definition():
    result = parse('```python\ndef run():\n    """\n    Five at once.\n    """\n```')
    assert isinstance(result, Proposal)
    assert result.changes == "rewrite of run: Five at once."


@pytest.mark.parametrize("reply", ["", " \n\t\n"])
def test_an_empty_answer_is_refused(reply):
    assert reason_of(reply) == "The answer is empty."


@pytest.mark.parametrize(
    "reply",
    [
        "I would use a hexagonal grid.",
        "```python\nprint('hello')\n```",
        "```python\n# EVOLVE-BLOCK-START\ndef construct():\n    retu",
        "```python\ndef construct():\n    retu",
    ],
)
def test_an_answer_without_a_program_is_refused(reply):
    assert reason_of(reply) == (
        "The answer holds neither a SEARCH/REPLACE block nor a complete program."
    )


def test_an_answer_that_ends_inside_its_only_block_is_refused():
    reply = f"<<<<<<< SEARCH\n{PARENT}=======\n{PARENT}"
    assert reason_of(reply) == (
        "The answer ends before its first SEARCH/REPLACE block is complete."
    )


def test_a_mismatch_is_explained_line_by_line():
    reply = (
        edit("    size = 1\n    size = 2", "    size = 3")
        + edit("    return size\n    size = 1", "    size = 4")
        + edit("", "x = 1")
    )
    assert reason_of(reply) == (
        "No SEARCH text occurs in the current program:\n"
        "- The one that begins with `    size = 1`: the program has no line `    size = 2`.\n"
        "- The one that begins with `    return size`: its lines are in the program, "
        "but not one behind the other, or more than once.\n"
        "- A SEARCH text is empty."
    )


def test_edits_without_effect_are_refused():
    assert reason_of(edit("    size = 1", "    size = 1")) == (
        "The SEARCH/REPLACE blocks leave the program as it is."
    )


def test_the_parent_repeated_is_refused():
    assert reason_of(f"```python\n{PARENT}```") == (
        "The answer repeats the current program without a change."
    )


def test_a_program_that_loses_the_entry_point_is_refused():
    reply = edit("def run():", "def go():")
    assert parse_program(reply, "def run():\n    pass\n", "run") == Rejection(
        "The program no longer defines `run` at the top level."
    )


def test_without_an_entry_point_the_frame_is_restored_all_the_same():
    reply = f"```python\n{BLOCK.format(7)}\n```"
    assert parse_program(reply, PARENT, None) == Proposal(
        BLOCK.format(7) + FRAME, "rewrite of construct"
    )


def test_without_entry_point_and_frame_a_rewrite_is_taken_as_it_is():
    parent = "def step():\n    return 1\n"
    reply = "```text\nno code\n```\n```python\ndef step():\n    return 2\n```"
    result = parse_program(reply, parent, None)
    assert isinstance(result, Proposal)
    assert result.code == "def step():\n    return 2\n"


def test_an_edit_that_only_harms_the_frame_is_refused():
    assert "without a change" in reason_of(edit("def run():", "def go():"))


def test_a_program_over_the_limit_is_refused():
    base = "def run():\n    return 5\n#"
    fits = base + "x" * (MAX_PROGRAM_CHARACTERS - len(base))
    assert code_of(f"```python\n{fits}\n```") == fits + "\n"
    assert reason_of(f"```python\n{fits}x\n```") == (
        "The program has 60001 characters; at most 60000 are allowed."
    )


FRAGMENTS = st.sampled_from(
    [
        "<<<<<<< SEARCH",
        "=======",
        ">>>>>>> REPLACE",
        "```python",
        "```",
        "def run():",
        "    return 1",
        *PARENT.split("\n"),
        "def construct():",
        '"""',
        "Prose.",
    ]
)


@given(st.lists(FRAGMENTS, max_size=30).map("\n".join) | st.text(max_size=60))
def test_any_answer_gives_a_changed_program_or_a_reason(reply):
    result = parse(reply)
    if isinstance(result, Proposal):
        assert "run" in result.code
        assert result.code != PARENT
        assert result.changes
    else:
        assert result.reason


@pytest.mark.parametrize("half", ["\ud800", chr(0xFFFD)])
def test_a_program_with_a_character_that_cannot_be_encoded_is_no_program(half):
    reason = "The program holds a character that cannot be encoded."
    assert reason_of(edit("    size = 1", f"    size = 2  # {half}")) == reason
    assert code_of(f"{half}\n{edit('    size = 1', '    size = 2')}")
    parent = PARENT.replace("size = 1", f"size = 1  # {half}")
    assert isinstance(parse_program(edit("return size", "return 2"), parent, "run"), Proposal)
