import hypothesis.strategies as st
from hypothesis import given

from costada.prompts.edits import fenced, find_fences, unfenced


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
