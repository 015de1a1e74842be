"""Whatever program it is shown, the offline model answers."""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from offline_programs import PROGRAMS, SEARCHED, edit_context, generation

from costada.plugins.offline.answers import USUAL_EDITS, answer
from costada.plugins.offline.ideas import IDEAS
from costada.plugins.offline.searches import complete

EXPRESSIONS = """0; -3; 0.5; 1e308; 10**40; True; 2j; 'a'; None; x; n; np; points; best; loss; _
    range(); range(10**30); range(0, 10, 0); range(1, 'a'); range(*x); reversed(range(9))
    len(x); np.asarray(x); np.zeros((3, 2)); np.zeros(3, evaluations=n)
    np.random.default_rng(seed='a'); rng.normal(0, step)
    np.linalg.norm(points[i] - points[j], axis=0); np.sum(points[i]); points[i]
    f(x, evaluations=40); row_search(points, evaluations=99999999999999999999, step=1, seed=2)
    f(x, evaluations=40, step=0.1, seed=3); f(*x, **n); [[a for a in b] for b in x for c in b]
    minimize(lambda n: -n, x); np.arange(n)[::-1]; [x for x in range(3)]; {x: n for x, n in ()}
    (x, n); [i, j]; x if n else _; x @ n; x < n <= 3; f'{x}'; (yield); (x := 3); x.y.z; radii[i]
    x[i] + x[j]; float(x); max(x, axis=1); min(1.0, x[i] / x[j])"""
STATEMENTS = """pass; global x; del x; x: float; x: float = 3; x = x[::-1]; x = n = 3
    x, *n = points; points = np.zeros((3, 2)); points = f(points, evaluations=n)
    x[[i, j]] *= 0.5 / n; return; x += 1; loss = np.sum(x**2); return points, loss; return x
    import numpy as np; assert x; raise x; x = []; for _ in range(7): x[0] *= 1 / n
    while x: n = 1; if x[i] + x[j] > 3: x[i] -= 1; class A: x = 1; async def f(): pass
    def f(n, /, x=3, *args, k=1): return n; with x as n: pass; lambda: 0
    @f~def run(x=None): return x; for i, j in x:~    for k in range(j):~        x[i] = 0"""


def listed(text):
    return st.sampled_from([each.strip() for each in text.replace("\n", ";").split(";")])


@st.composite
def programs(draw):
    """A program of the tests with odd parts in the place of some lines and values."""
    lines = draw(st.sampled_from([*PROGRAMS.values(), *SEARCHED])).split("\n")
    for _ in range(draw(st.integers(0, 6))):
        number = draw(st.integers(0, len(lines) - 1))
        line = lines[number]
        margin = line[: len(line) - len(line.lstrip())]
        if draw(st.booleans()):
            lines[number] = margin + draw(listed(STATEMENTS)).replace("~", "\n" + margin)
        elif " = " in line:
            lines[number] = f"{line.split(' = ')[0]} = {draw(listed(EXPRESSIONS))}"
    mark = draw(st.sampled_from(["", "# EVOLVE-BLOCK-START\n", "# EVOLVE-BLOCK-END\n"]))
    return mark + "\n".join(lines)


@settings(max_examples=100)
@given(programs(), programs(), st.integers(0, 9))
def test_it_answers_for_any_program(code, other, seed):
    assert answer(generation(code).data, Random(seed)).startswith("Offline model: ")
    shown = edit_context(code, other)
    for edit in (*(edit for edit, _ in USUAL_EDITS), *(idea.edit for idea in IDEAS)):
        found = edit(shown, Random(seed))
        assert found is None or complete(found.code)


@pytest.mark.parametrize(
    "body",
    [
        "x = np.asarray(x)\n    return x",
        "for _ in range(0, 10, 0):\n        x = np.zeros(3)\n    return x, np.sum(x)",
        "x = np.zeros(3)\n    for _ in range(10**30):\n        x[0] = 1\n    return np.sum(x)",
        "x = np.zeros(3)\n    for _ in range():\n        x[0] = 1\n    return np.sum(x)",
    ],
)
def test_it_answers_for_programs_it_once_failed_on(body):
    data = generation(f"import numpy as np\n\n\ndef run(x=None):\n    {body}\n").data
    assert all(answer(data, Random(seed)) for seed in range(20))


@pytest.mark.parametrize("code", ["pass\n", "def run():\n    return None\n", "x = '\0'\n"])
def test_a_program_that_cannot_be_changed_is_answered_in_prose(code):
    text = answer(generation(code).data, Random(0))
    assert text.startswith("Offline model: ")
    assert "```" not in text


@pytest.mark.parametrize(
    "code",
    [
        "def run():\n    return " + " + ".join(["0.5"] * 3000) + "\n",
        "x = " + "(" * 300 + ")" * 300 + "\n",
        "def build():\n    x = np.zeros(3)\n    return x\n\ndef score(x):\n    return ["
        + "i for i in x if any(" * 400,
    ],
)
def test_a_deeply_nested_program_is_answered(code):
    for seed in range(20):
        assert answer(generation(code).data, Random(seed)).startswith("Offline model: ")
