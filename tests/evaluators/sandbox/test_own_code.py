"""Inline code is the evaluator's only if its text is in the evaluator's code."""

import pytest
from own_evaluator import loaded

from costada.evaluators.sandbox.inside.own_code import is_own_code

EVALUATOR = '''
from textwrap import dedent
HEADER = "import math\\n"
HARNESS = """
    import sys
    sys.path.insert(0, {folder!r})
    print(run({seed}, '{path}'))
"""
def fill(folder, path, seed):
    code = dedent(HARNESS.format(folder=folder, seed=seed, path=path))
    return run(code)
def run(code):
    return Popen("python", "-c", code)
def literal():
    return Popen("import json; print(json.dumps(1))")
def number(seed):
    return Popen(HEADER + "print(math.sqrt(%d))" % seed)
def lines(values):
    return Popen("\\n".join(["import sys", f"values = {values!r}", "print(sum(values))"]))
def replaced(path):
    return Popen("print(open('PATH').read())".replace("PATH", path))
def extended(part):
    code = HEADER + part
    return run(code)
def commented(part):
    return Popen(f"# don't stop\\nx = {part}")
def given(part):
    return run(part)
def shell(folder, log):
    return Popen(f"cd {folder} && ./check.sh | tee {log}")
'''
THEIRS = "print(open('data/answers.txt').read())"


@pytest.fixture
def module(tmp_path):
    def judge(words, reached):
        return is_own_code(words[-1], reached, is_shell="tee" in words[-1])

    with loaded(tmp_path, EVALUATOR, judge) as module:
        yield module


def test_code_of_the_evaluator_with_plain_values_filled_in_is_its_own(module):
    assert module.literal()
    assert module.number(7)
    for value in ("/tmp/a b", "", "it's"):
        assert module.fill(value, "/x/a b.py", -1.5e3)
    for values in ([1, -2.5e3], {"a": (None, True)}, ["it's", 'a "word"']):
        assert module.lines(values)
    assert module.replaced("/x/y.txt")
    assert module.shell("/x", "../home/log.txt")


@pytest.mark.parametrize("part", [THEIRS, "x = 1", "answers"])
def test_code_with_a_part_of_the_candidate_is_not(module, part):
    assert not any(function(part) for function in (module.extended, module.given, module.commented))


def test_code_that_only_looks_like_another_text_of_the_evaluator_is_not_its_own(module):
    assert module.replaced("data/answers.txt")
    assert not module.given(THEIRS)


@pytest.mark.parametrize(
    "value",
    [
        "__import__('answers')",
        "x\nimport answers",
        "answers.VALUES",
        "lambda: 0",
        "1 if answers else 2",
        'f"{open(1)}"',
    ],
)
def test_no_statement_and_no_expression_is_a_plain_value(module, value):
    assert not module.fill("/x", "/y", value)
    assert not module.commented(value)


@pytest.mark.parametrize("value", ["'); print(open(1).read()); ('", "x\\", "{open(1)}", "x\ny"])
def test_a_text_that_leaves_its_quotes_is_not_plain(module, value):
    assert not module.fill("/x", value, 1)


@pytest.mark.parametrize("value", ["x; cat data/answers.txt", "x y", "'cat' 'x'", "$HOME", "x\ny"])
def test_what_is_filled_in_in_a_shells_text_is_a_part_of_one_word(module, value):
    assert not module.shell("/x", value)
