import hypothesis.strategies as st
import pytest
from hypothesis import given

from costada.prompts.reply_parts import (
    Edit,
    apply_edits,
    fenced,
    find_edits,
    find_fences,
    has_unfinished_edit,
    patch_summary,
    unfenced,
    with_markers_on_own_lines,
)


@given(st.text(alphabet="ab`~ \n", max_size=60))
def test_whatever_is_fenced_is_read_back_whole(text):
    (fence,) = find_fences("before\n" + fenced(text, "python") + "\nbehind")
    assert (fence.language, fence.text, fence.is_closed) == ("python", text.strip("\n"), True)


def test_a_fence_grows_beyond_the_backticks_inside():
    assert fenced("a\n```\nb", "text") == "````text\na\n```\nb\n````"


def test_fences_are_found_in_order_with_their_language():
    fences = find_fences("x\n```Python\na\n```\ny\n```\nb\n```")
    assert [(fence.language, fence.text) for fence in fences] == [("python", "a"), ("", "b")]


def test_an_indented_fence_in_a_docstring_does_not_close_the_outer_one():
    program = 'def f():\n    """Draw.\n\n    ```\n    o o\n    ```\n    """'
    (fence,) = find_fences(f"```python\n{program}\n```")
    assert fence.text == program


def test_a_fence_that_is_never_closed_says_so():
    (fence,) = find_fences("```python\nx = 1")
    assert not fence.is_closed


def test_only_a_fence_around_the_whole_text_is_taken_off():
    assert unfenced("```python\nx = 1\n```\n") == "x = 1"
    assert unfenced("x = 1\n```\ny\n```") == "x = 1\n```\ny\n```"
    assert unfenced("```\na\n```\n```\nb\n```") == "```\na\n```\n```\nb\n```"


PROGRAM = "import math\n\n\ndef area(r):\n    x = r\n    return math.pi * x\n\n\nx = 1\nx = 1\n"


def block(search: str, replacement: str) -> str:
    return f"<<<<<<< SEARCH\n{search}\n=======\n{replacement}\n>>>>>>> REPLACE"


def edited(search: str, replacement: str, program: str = PROGRAM) -> str:
    return apply_edits(program, (Edit(search, replacement),)).code


def test_all_blocks_are_found_in_order_and_taken_out_of_the_rest():
    reply = f"First.\n{block('a', 'b')}\nThen.\n{block('c', 'd')}\nDone."
    edits = find_edits(reply)
    assert edits.complete == (Edit("a", "b"), Edit("c", "d"))
    assert edits.rest == "First.\n\nThen.\n\nDone."


@pytest.mark.parametrize(
    "reply",
    [
        "```python\n<<<<<<< SEARCH\na\n=======\nb\n>>>>>>> REPLACE\n```",
        "```diff\n<<<<<<< SEARCH\na\n=======\nb\n>>>>>>> REPLACE REPLACE\n```",
        "Here it is:<<<<<<< SEARCH\na\n=======\nb\n>>>>>>> REPLACE",
        "```<<<<<<< SEARCH\na=======\nb>>>>>>> REPLACE\n```",
        "<<<<<<< SEARCH  \n```python\na\n```\n======= \n```python\nb\n```\n>>>>>>> REPLACE",
        "<<<<<<< SEARCH\nold start\n<<<<<<< SEARCH\na\n=======\nb\n>>>>>>> REPLACE",
        "<<<<<<< SEARCH\na   \n\n=======\nb  \n\n\n>>>>>>> REPLACE",
    ],
)
def test_markers_are_recognized_as_models_write_them(reply):
    assert find_edits(with_markers_on_own_lines(reply)).complete == (Edit("a", "b"),)


def test_underlines_in_a_replacement_do_not_divide_it():
    edits = find_edits(block("a", '"""\nTitle\n=======\n"""'))
    assert edits.complete == (Edit("a", '"""\nTitle\n=======\n"""'),)


def test_comment_rules_of_equal_signs_are_left_alone():
    text = "# =======\n#=======\nx = 1  # ==========\n"
    assert with_markers_on_own_lines(text) == text


def test_a_block_in_which_the_reply_ends_is_not_complete():
    edits = find_edits("<<<<<<< SEARCH\na\n=======\nb\n")
    assert edits.complete == ()
    assert has_unfinished_edit(edits.rest)


def test_the_first_place_of_several_equal_ones_is_replaced():
    assert edited("x = 1", "x = 2").endswith("x = 2\nx = 1\n")


def test_only_whole_lines_match():
    patched = apply_edits(PROGRAM, (Edit("return math.pi", "return 3"),))
    assert (patched.code, len(patched.unmatched)) == (PROGRAM, 1)


def test_an_empty_replacement_deletes_the_lines():
    assert edited("    x = r\n    return math.pi * x", "    return r").count("x = r") == 0
    assert edited("import math", "") == PROGRAM.removeprefix("import math\n")


def test_each_edit_sees_what_the_ones_before_left():
    patched = apply_edits("a\n", (Edit("a", "b"), Edit("b", "c"), Edit("a", "d")))
    assert patched.code == "c\n"
    assert patched.unmatched == (Edit("a", "d"),)


def test_trailing_blanks_and_blank_lines_may_differ_at_a_single_place():
    search = "import math\ndef area(r):   \n    x = r"
    assert edited(search, "def area(r):\n    x = 2").startswith("def area(r):\n    x = 2\n    ret")
    assert edited("\nx = 1\n\nx = 1", "x = 3").endswith("\n\nx = 3\n")


def test_a_uniform_indentation_shift_moves_the_replacement_too():
    assert "    y = r\n    if y:\n        return 0\n" in edited(
        "x = r\nreturn math.pi * x", "y = r\nif y:\n    return 0"
    )
    assert "    y = r\n    return 2\n" in edited(
        "        x = r\n        return math.pi * x", "        y = r\n        return 2"
    )


def test_an_uneven_shift_or_a_replacement_that_cannot_follow_is_no_match():
    assert edited("    x = r\nreturn math.pi * x", "pass") == PROGRAM
    assert edited("        x = r\n        return math.pi * x", "pass") == PROGRAM


def test_a_loose_match_must_be_the_only_one():
    assert edited(" x = 1", " x = 2") == PROGRAM
    program = "    y = 0\n\n\n    y = 0\n"
    assert edited("y = 0", "y = 1", program) == program


def test_an_empty_search_matches_nothing():
    assert apply_edits(PROGRAM, (Edit("", "x"),)).unmatched == (Edit("", "x"),)


LINES = st.lists(st.sampled_from(["a", "b", "  a", "", "\tb"]), min_size=1, max_size=8)


@given(LINES, st.data())
def test_lines_quoted_from_a_program_are_replaced_where_they_first_occur(lines, data):
    start = data.draw(st.integers(0, len(lines) - 1))
    end = data.draw(st.integers(start + 1, len(lines)))
    quoted = lines[start:end]
    if not "".join(quoted).strip():
        return
    first = next(i for i in range(len(lines)) if lines[i : i + len(quoted)] == quoted)
    expected = [*lines[:first], "new", *lines[first + len(quoted) :]]
    assert edited("\n".join(quoted), "new", "\n".join(lines)) == "\n".join(expected)


def test_the_summary_says_what_each_edit_did():
    patched = apply_edits(
        "a\nb = 1\nc\nd\ne\n",
        (
            Edit("a", 'def f(\n    x: int,\n) -> int:\n    """Grow the radii.\n\n    More."""'),
            Edit("b = 1", "b = 2"),
            Edit("c\nd", "c"),
            Edit("e", "class Box:\n    pass"),
            Edit("nowhere", "x"),
        ),
    )
    assert patch_summary(patched).split("\n") == [
        "f: Grow the radii.",
        "b = 1 -> b = 2",
        "2 lines -> 1 line",
        "Box",
        "edits without a place: 1",
    ]
