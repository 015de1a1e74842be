"""Whatever program it is shown, the offline model answers."""

import ast
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from offline_programs import generation, scene

from costada.models.offline.answers import USUAL_EDITS, answer
from costada.models.offline.ideas import IDEAS
from costada.models.offline.search_edits import shrink_step

NAMES = st.sampled_from(["x", "y", "n", "np", "points", "best", "loss", "_", "f", "evaluations"])
NUMBERS = st.sampled_from(["0", "1", "-3", "0.5", "1e308", "10**40", "True", "2j", "'a'", "None"])


def calls_of(inner):
    """Calls of what the offline model looks for, with any number of arguments of any kind."""
    called = st.sampled_from(
        [
            *("range", "reversed", "np.asarray", "np.zeros", "np.random.default_rng", "rng.normal"),
            *("uniform", "sum", "np.linalg.norm", "np.clip", "tolist", "row_search", "f", "float"),
            *("np.arange", "enumerate", "len", "sorted", "minimize", "compass_search"),
        ]
    )
    keyword = st.tuples(
        st.sampled_from(["evaluations", "seed", "axis", "step", "size"]), inner
    ).map("=".join)
    starred = inner.map("*{}".format)
    return st.tuples(called, st.lists(inner | keyword | starred, max_size=4)).map(
        lambda pair: f"{pair[0]}({', '.join(sorted(pair[1], key=lambda each: '=' in each))})"
    )


def compound(inner):
    """Expressions made of others."""
    pair = st.tuples(inner, inner)
    operator = st.sampled_from(["+", "-", "*", "/", "**", "%", "<", "@", "and", "is"])
    return st.one_of(
        calls_of(inner),
        st.tuples(inner, operator, inner).map(lambda each: f"({' '.join(each)})"),
        pair.map(lambda each: f"({each[0]})[{each[1]}]"),
        pair.map(lambda each: f"({each[0]}, {each[1]})"),
        pair.map(lambda each: f"[{each[0]} for x in {each[1]}]"),
        pair.map(lambda each: f"{{{each[0]}: {each[1]}}}"),
        inner.map("(-{})".format),
        inner.map("(lambda n: {})".format),
    )


EXPRESSIONS = st.recursive(NAMES | NUMBERS, compound, max_leaves=6)
TARGETS = st.one_of(NAMES, NAMES.map("{}[0]".format), st.just("x, y"), st.just("x, *y"))


def block(statements):
    """Indented lines."""
    return "\n".join("    " + line for each in statements for line in each.split("\n"))


SIMPLE = st.one_of(
    st.tuples(TARGETS, EXPRESSIONS).map(" = ".join),
    st.tuples(NAMES.map("{}[0]".format), EXPRESSIONS).map(" *= ".join),
    EXPRESSIONS,
    EXPRESSIONS.map("assert {}".format),
    st.sampled_from(["pass", "import numpy as np", "global x", "del x", "x: float", "x = x[::-1]"]),
)


def nested(inner):
    """Statements that hold others."""
    body = st.lists(inner, min_size=1, max_size=3).map(block)
    return st.one_of(
        st.tuples(TARGETS, EXPRESSIONS, body).map(lambda t: f"for {t[0]} in {t[1]}:\n{t[2]}"),
        st.tuples(EXPRESSIONS, body).map(lambda t: f"while {t[0]}:\n{t[1]}"),
        st.tuples(EXPRESSIONS, body).map(lambda t: f"if {t[0]}:\n{t[1]}"),
        body.map("class A:\n{}".format),
        functions(body),
    )


def functions(body):
    """Functions with any kind of parameters, with a return at the end or without."""
    parameters = st.sampled_from(["", "n", "n=3", "x=None", "x", "*, x=1", "*args", "n, /, x"])
    head = st.sampled_from(["def", "@f\ndef", "async def"])
    end = st.one_of(st.just(""), EXPRESSIONS.map("\n    return {}".format), st.just("\n    return"))
    return st.tuples(head, NAMES, parameters, body, end).map(
        lambda t: f"{t[0]} {t[1]}({t[2]}):\n{t[3]}{t[4]}"
    )


ABOUT_X = st.one_of(
    calls_of(EXPRESSIONS).map("x = {}".format),
    st.sampled_from(
        [
            *("x = np.asarray(x)", "x = np.clip(x, 0, 1)", "x = np.zeros((3, 2))", "x[0] *= 2 / n"),
            *("x = f(x, objective, repair, evaluations=40, step=0.1)", "best = np.sum(x)"),
            *("x = f(x, evaluations=n)", "x = np.random.default_rng(1).normal(0, step)"),
        ]
    ),
    st.tuples(calls_of(NUMBERS), st.sampled_from(["x[0] *= 1 / n", "x = rng.normal(0, step)"])).map(
        lambda t: f"for _ in {t[0]}:\n    {t[1]}"
    ),
)


def constructors():
    """Functions that build, repair, search or score an array called x, in any order."""
    body = st.lists(ABOUT_X, max_size=4)
    returned = st.sampled_from(["x", "x, np.sum(x)", "x, best", "f(x)", "best"])
    return st.tuples(body, returned).map(
        lambda t: f"def run(x=None, n=3):\n{block([*t[0], 'return ' + t[1]])}"
    )


STATEMENTS = st.recursive(SIMPLE, nested, max_leaves=6)
MARKS = st.sampled_from(["", "# EVOLVE-BLOCK-START\n", "# EVOLVE-BLOCK-END\n"])


@st.composite
def programs(draw):
    """Programs that parse, around what the offline model knows how to edit."""
    whole = functions(STATEMENTS.map(lambda statement: block([statement])))
    parts = draw(st.lists(constructors() | STATEMENTS | whole, max_size=4))
    code = "\n\n".join(draw(MARKS) + part for part in parts) + "\n" + draw(MARKS)
    try:
        ast.parse(code)
    except SyntaxError:
        return "x = 1\n"
    return code


@settings(max_examples=300)
@given(programs(), programs(), st.integers(0, 9))
def test_it_answers_for_any_program_that_parses(code, other, seed):
    assert answer(generation(code).data, Random(seed)).startswith("Offline model: ")
    shown = scene(code, other)
    for edit, _ in USUAL_EDITS:
        edit(shown, Random(seed))
    for idea in IDEAS:
        idea.edit(shown, Random(seed))


@pytest.mark.parametrize(
    "body",
    [
        "    x = np.asarray(x)\n    return x",
        "    for _ in range(0, 10, 0):\n        x = np.zeros(3)\n    return x, np.sum(x)",
        "    x = np.zeros(3)\n    for _ in range(10**30):\n        x[0] = 1\n    return np.sum(x)",
        "    x = np.zeros(3)\n    for _ in range():\n        x[0] = 1\n    return np.sum(x)",
    ],
)
def test_it_answers_for_programs_it_once_failed_on(body):
    prompt = generation(f"import numpy as np\n\n\ndef run(x=None):\n{body}\n").data
    assert all(answer(prompt, Random(seed)) for seed in range(20))


@pytest.mark.parametrize(
    ("loop", "share"),
    [
        ("range(200)", "turn / (200)"),
        ("range(2, 12)", "(turn - (2)) / ((12) - (2))"),
        ("range(0, 1000, 5)", "(turn - (0)) / ((1000) - (0))"),
    ],
)
def test_a_shrinking_step_counts_the_turns_whatever_the_range(loop, share):
    code = (
        f"def run(step=0.1):\n    for _ in {loop}:\n        x = rng.normal(0, step)\n    return x\n"
    )
    edit = shrink_step(scene(code), Random(0))
    assert f"step * (1.0 - {share})" in edit.code


def test_a_loop_that_counts_down_keeps_its_step():
    code = "def run(step=0.1):\n    for _ in reversed(range(9)):\n        x = rng.normal(0, step)\n"
    assert shrink_step(scene(code), Random(0)) is None
