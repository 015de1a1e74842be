import hypothesis.strategies as st
from hypothesis import given

from costada.prompts.replies import (
    complete_program,
    defined_names,
    defines,
    required_names,
    top_level_statements,
    with_definitions,
)

PARENT = """import os

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
HEAD, TAIL = PARENT.split("\nimport math")[0], "# EVOLVE-BLOCK-END\n\n\ndef run():"


def run(program: str | None) -> object:
    """What the program returns; these texts are written here, so they may be executed."""
    assert program is not None
    names: dict[str, object] = {}
    exec(program, names)
    return names["run"]()


def test_a_program_with_the_entry_point_stays_as_it_is():
    assert complete_program("run = print\n", PARENT, RUN) == "run = print\n"


def test_a_marked_block_gets_the_parents_frame():
    text = "# EVOLVE-BLOCK-START\ndef construct():\n    return 7\n# EVOLVE-BLOCK-END"
    code = complete_program(text, PARENT, RUN)
    assert code is not None
    assert code.startswith(HEAD + "\ndef construct():\n    return 7\n" + TAIL)
    assert "helper" not in code
    assert run(code) == 7


def test_a_block_that_holds_the_entry_point_itself_still_gets_the_frame():
    parent = "import math\n# EVOLVE-BLOCK-START\ndef run():\n    return 1\n# EVOLVE-BLOCK-END\n"
    text = "# EVOLVE-BLOCK-START\ndef run():\n    return math.floor(2.5)\n# EVOLVE-BLOCK-END\n"
    assert run(complete_program(text, parent, RUN)) == 2
    assert complete_program(text, "def run():\n    return 1\n", RUN) == text


def test_a_program_with_code_around_its_block_keeps_that_code():
    assert complete_program(
        PARENT.replace("import os", "import re"), PARENT, RUN
    ) == PARENT.replace("import os", "import re")


def test_one_of_the_two_markers_is_enough():
    body = "def construct():\n    return 7\n"
    for text in (f"# EVOLVE-BLOCK-START\n{body}", f"{body}# EVOLVE-BLOCK-END"):
        assert run(complete_program(text, PARENT, RUN)) == 7


def test_functions_alone_replace_those_of_the_same_name():
    code = complete_program("def helper():\n    return 5\n", PARENT, RUN)
    assert code is not None
    assert run(code) == 10
    assert "stray text" not in code
    assert "import os" in code


def test_new_functions_and_imports_come_along_with_a_replaced_one():
    text = "import cmath\n\ndef extra():\n    return 3\n\ndef construct():\n    return extra()\n"
    assert run(complete_program(text, PARENT, RUN)) == 3


def test_without_markers_in_the_parent_functions_are_still_replaced():
    parent = "def part():\n    return 1\n\n\ndef run():\n    return part()\n"
    assert run(complete_program("def part():\n    return 4\n", parent, RUN)) == 4


def test_what_shares_nothing_with_the_parent_does_not_become_a_program():
    assert complete_program("def other():\n    return 1\n", PARENT, RUN) is None
    assert complete_program("x = 1", "x = 2", RUN) is None


def test_required_is_the_entry_point_or_else_what_the_frame_defines():
    assert required_names(PARENT, "construct") == {"construct"}
    assert required_names(PARENT, None) == {"run"}
    assert required_names("def run():\n    pass\n", None) == frozenset()


def test_only_top_level_definitions_and_assignments_define():
    for code in ("def run():", "async def run (x):", "class run:", "run = 1", "run: int = 1"):
        assert defines(code, "run"), code
    for code in ("    def run():", "run()", "run == 1", "def rerun():", "def run2():", "# run = 1"):
        assert not defines(code, "run"), code


def test_names_at_the_top_level_are_found():
    assert defined_names(PARENT) == {"construct", "helper", "run"}


def test_a_comment_at_the_margin_does_not_cut_a_function():
    code = "def f():\n    x = 1\n# note\n    return x\ny = 2\n"
    assert (
        with_definitions(code, "def f():\n    return 0\n") == "def f():\n    return 0\n\n\ny = 2\n"
    )


@given(st.text(alphabet="ad '\"\n@#)", max_size=80))
def test_pieces_add_up_to_the_program(code):
    assert "\n".join(top_level_statements(code)) == code
