"""Answers that name a function: which lines its new text replaces, and what is refused."""

import ast
from textwrap import dedent

import pytest

from costada.prompts.changes import Change, read_change
from costada.prompts.function_edits import changed_parts
from costada.prompts.whole_texts import Rejection
from costada.values.candidate import Program
from costada.values.program_form import ProgramForm

TREE = '''"""Trees."""

import functools


class Tree:
    """A tree."""

    depth = 0

    @property
    @functools.lru_cache(
        maxsize=4,
    )
    def size(self):
        """Its size."""
        return 1

    def walk(self):
        text = """
two lines
"""
        return [text]

    class Node:
        def walk(self): return []


async def fetch(tree,
                url=")"):
    def inner():
        return 1
    return inner  # def fetch


if functools:
    def either():
        return 1
else:
    def either():
        return 2
'''
START = Program.of({"src/tree.py": TREE, "src/other.py": "def fetch():\n    return 0\n"})
FORM = ProgramForm(paths=tuple(START), patterns=("src/*.py",))


def reply(name: str, text: str) -> str:
    return f"Better.\n\nFILE: {name}\n```python\n{text}```\n"


def changed(answer: str, start: Program = START, form: ProgramForm = FORM) -> str:
    read = read_change(answer, start, form)
    assert isinstance(read, Change), read
    return read.program["src/tree.py"]


def refusal(answer: str, start: Program = START, form: ProgramForm = FORM) -> str:
    read = read_change(answer, start, form)
    assert isinstance(read, Rejection), read
    return read.reason


NEW_FETCH = "async def fetch(tree, url=')'):\n    return 2\n"
OLD_FETCH = TREE[TREE.index("async def") : TREE.index("\n\n\nif functools")] + "\n"


@pytest.mark.parametrize(
    "answer",
    [
        reply("src/tree.py::fetch", NEW_FETCH),
        reply("src/tree.py::fetch()", NEW_FETCH),
        reply("tree.py::fetch", NEW_FETCH),
        reply("src/tree.py::fetch", "\n    ".join(["", *NEW_FETCH.splitlines()]) + "\n"),
        f"### `src/tree.py::fetch`\n\n```python\n{NEW_FETCH}```\n",
        f"```python src/tree.py::fetch\n{NEW_FETCH}```\n",
        "FILE: src/tree.py::fetch\n<<<<<<< SEARCH\n"
        f"{OLD_FETCH}=======\n{NEW_FETCH}>>>>>>> REPLACE\n",
    ],
)
def test_a_named_function_is_replaced_in_each_form(answer):
    assert changed(answer) == TREE.replace(OLD_FETCH, NEW_FETCH)


SIZE = TREE[TREE.index("    @property") : TREE.index("    def walk")].rstrip() + "\n"
NEW_SIZE = "@property\ndef size(self):\n    return 2\n"
INDENTED = "    @property\n    def size(self):\n        return 2\n"


@pytest.mark.parametrize("name", ["Tree.size", "Tree::size"])
@pytest.mark.parametrize("text", [NEW_SIZE, INDENTED, f"class Tree:\n    depth = 0\n\n{INDENTED}"])
def test_a_method_is_replaced_with_its_decorators_and_indented_as_it_was(name, text):
    assert changed(reply(f"src/tree.py::{name}", text)) == TREE.replace(SIZE, INDENTED)


def test_lines_inside_of_strings_keep_their_indentation():
    new = 'def walk(self):\n    text = """\nthree\n"""\n    return [text]\n'
    expected = TREE.replace("two lines", "three")
    assert changed(reply("src/tree.py::Tree.walk", new)) == expected


def test_helpers_may_stand_beside_the_function_and_classes_are_replaced_whole():
    new = "LIMIT = 3\n\n\ndef helper():\n    return LIMIT\n\n\n" + NEW_FETCH
    assert changed(reply("src/tree.py::fetch", new)) == TREE.replace(OLD_FETCH, new)
    node = "class Node:\n    def walk(self):\n        return [1]\n"
    text = changed(reply("src/tree.py::Tree.Node", node))
    assert "        def walk(self):\n            return [1]\n" in text
    assert "return []" not in text
    ast.parse(text)


WALK = "    def walk(self, text=1):\n        return self._leaves(heapq.nlargest(1, text))\n"
LEAVES = "    @functools.cache\n    def _leaves(self, found):\n        return found\n"
BARE = dedent(f"{WALK}\n{LEAVES}")
OLD_WALK = TREE[TREE.index("    def walk(self):\n        text") : TREE.index("    class Node")]


@pytest.mark.parametrize(
    "text",
    [
        f"import functools\nimport heapq\n\n\nclass Tree:\n    depth = 0\n\n{WALK}\n{LEAVES}",
        f"import heapq\n\n{BARE}",
        f"import heapq\n\n\nclass Tree:\n    ...\n\n{WALK}\n{LEAVES}",
    ],
)
def test_new_methods_go_beside_a_method_and_imports_to_those_of_the_file(text):
    expected = TREE.replace("import functools\n", "import functools\nimport heapq\n")
    expected = expected.replace(OLD_WALK, f"{WALK}\n{LEAVES}\n")
    assert changed(reply("src/tree.py::Tree.walk", text)) == expected


def test_constants_of_a_class_around_a_method_go_into_the_class():
    text = f"class Tree:\n    SCALE = 3\n\n{WALK}"
    expected = TREE.replace(OLD_WALK, f"    SCALE = 3\n\n{WALK}\n")
    assert changed(reply("src/tree.py::Tree.walk", text)) == expected


def test_imports_of_a_method_stand_first_in_a_file_without_imports():
    start = Program.of({**START, "src/tree.py": '"""Doc."""\n\nclass A:\n    def f(self): pass\n'})
    text = "import heapq\n\ndef f(self):\n    return heapq\n"
    assert changed(reply("src/tree.py::A.f", text), start) == (
        '"""Doc."""\n\nimport heapq\nclass A:\n    def f(self):\n        return heapq\n'
    )


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("fetch", f"{NEW_FETCH}\n\nclass Tree:\n    pass\n", ["`Tree`", "py::Tree`"]),
        ("fetch", f"class Tree:\n    depth = 1\n\n{NEW_FETCH}", ["`Tree`", "its own"]),
        ("fetch", f"{NEW_FETCH}\n\nif __name__ == '__main__':\n    fetch(1)\n", ["if __name__"]),
        ("fetch", f"from __future__ import annotations\n{NEW_FETCH}", ["from __future__"]),
        ("Tree.size", f"{NEW_SIZE}\ndef walk(self):\n    pass\n", ["py::Tree.walk`"]),
        ("Tree.size", f"LIMIT = 3\n\n{NEW_SIZE}", ["`LIMIT = 3`", "SEARCH/REPLACE"]),
        ("Tree.size", f"{NEW_SIZE}\ndef count(tree):\n    return 1\n", ["`def count(tree):`"]),
        ("Tree.size", f"LIMIT = 3\n\n\nclass Tree:\n{INDENTED}", ["`LIMIT = 3`"]),
        ("Tree.size", f"class Tree:\n    depth = 1\n\n{INDENTED}", ["`depth = 1`"]),
    ],
)
def test_what_a_block_cannot_add_beside_its_function_is_refused(name, text, words):
    reason = refusal(reply(f"src/tree.py::{name}", text))
    assert [each for each in words if each not in reason] == []


def test_line_ends_and_several_functions_of_an_answer_are_kept():
    windows = Program.of({**START, "src/tree.py": TREE.replace("\n", "\r\n")})
    answer = reply("src/tree.py::fetch", NEW_FETCH) + reply("src/tree.py::Tree.size", NEW_SIZE)
    expected = TREE.replace(OLD_FETCH, NEW_FETCH).replace(SIZE, INDENTED)
    assert changed(answer) == expected
    assert changed(answer, windows) == expected.replace("\n", "\r\n")


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("src/tree.py::fetsh", NEW_FETCH, ["`src/tree.py::fetsh` does not exist", "`fetch`"]),
        ("src/tree.py::size", NEW_SIZE, ["`src/tree.py::size` does not exist", "`Tree.size`"]),
        ("src/tree.py::either", "def either():\n    pass\n", ["defined 2 times", "SEARCH"]),
        ("src/tree.py::fetch", "def walk():\n    pass\n", ["defines `walk`", "`fetch`"]),
        ("src/tree.py::fetch", "    return 2\n", ["defines no function", "`fetch`"]),
        ("src/tree.py::fetch", "def fetch(:\n    return (\n", ["not complete Python"]),
        ("src/none.py::fetch", NEW_FETCH, ["no file `src/none.py`"]),
    ],
)
def test_a_refusal_names_the_function_and_the_nearest_ones(name, text, words):
    assert [each for each in words if each not in refusal(reply(name, text))] == []


def test_a_cut_answer_and_the_deletion_of_a_function_are_refused():
    cut = f"FILE: src/tree.py::fetch\n```python\n{NEW_FETCH}"
    assert "ends before `src/tree.py::fetch`" in refusal(cut)
    assert "is a function, not a file" in refusal("DELETE: src/tree.py::fetch\n")


def test_the_function_of_the_entry_point_stays_defined():
    form = ProgramForm(paths=tuple(START), entry_point="src.tree:fetch")
    method = "class A:\n    def fetch(self):\n        return 1\n"
    inside = f"if True:\n    {NEW_FETCH.replace(chr(10), chr(10) + '    ').rstrip()}\n"
    assert "no longer defines `fetch`" in refusal(reply("src/tree.py::fetch", inside), form=form)
    assert changed(reply("src/tree.py::fetch", method), form=form).count("class A") == 0


def test_the_parts_that_differ_are_functions_and_other_lines():
    walk = "    def walk(self):\n        return []"
    new = TREE.replace(TREE[TREE.index("    def walk") : TREE.index("\n\n    class Node")], walk)
    assert changed_parts(new, TREE, "a.py") == {"a.py::Tree.walk": walk}
    more = f"import re\n{TREE}\n\ndef more():\n    pass\n"
    assert changed_parts(more, TREE, "a.py") == {
        "a.py::more": "def more():\n    pass",
        "a.py, outside of functions": "@@ -0,0 +1 @@\n+import re",
    }
    assert changed_parts("def f(:\n'''", TREE, "a.py") == {"a.py": "def f(:\n'''"}


def test_a_file_beyond_the_limit_may_grow_a_little():
    start = Program.of({**START, "src/tree.py": TREE + "# long\n" * 20_000})
    assert "def fetch(tree, url=')')" in changed(reply("src/tree.py::fetch", NEW_FETCH), start)
    longer = f"{NEW_FETCH}{'# more' * 2000}\n"
    assert "are allowed" in refusal(reply("src/tree.py::fetch", longer), start)
