"""The fingerprint of an evaluator: equal only where every program is judged alike."""

import copyreg
import os
import subprocess
import sys
from functools import lru_cache, partial
from itertools import count
from pathlib import Path
from threading import Lock
from types import SimpleNamespace

import numpy as np
import pytest

from costada.evaluators.benchmarks import checks
from costada.evaluators.fingerprint import ObjectHash, problem_facts
from costada.evaluators.folder_files import MAX_BYTES
from costada.evaluators.folders import load_folder
from costada.evaluators.problem import Problem
from costada.evaluators.registry import problem, problem_names
from costada.values.evaluation import Evaluation


def fingerprint(evaluate, **fields):
    given = {"name": "p", "task": "Do it.", "initial_program": "x = 1", "evaluate": evaluate}
    return Problem(**(given | fields)).fingerprint


def is_known(name):
    """Whether another process may come by the same fingerprint."""
    return "~" not in name


def verdict(score):
    return Evaluation(score=score, objective=score, is_valid=True)


def closing_over(weight):
    def judge(code):
        return verdict(weight)

    return judge


def defaulting(weight):
    def judge(code, weight=weight, *, other=weight):
        return verdict(weight)

    return judge


def weighted(weight, code):
    return verdict(weight)


class Judge:
    def __init__(self, weight):
        self.weight = weight

    def __call__(self, code):
        return self.inner(code)

    def inner(self, code):
        return verdict(self.weight)


class SlottedJudge:
    __slots__ = ("weight",)

    def __init__(self, weight):
        self.weight = weight

    def __call__(self, code):
        return verdict(self.weight)


def referring_to(weight):
    """A function whose module is another one for each weight."""
    names = {"verdict": verdict, "WEIGHT": weight}
    exec("def judge(code):\n    return inner()\ndef inner():\n    return verdict(WEIGHT)\n", names)
    return names["judge"]


MAKERS = [
    closing_over,
    defaulting,
    referring_to,
    Judge,
    SlottedJudge,
    lambda weight: Judge(weight).inner,
    lambda weight: partial(weighted, weight),
    lambda weight: partial(partial(weighted), weight),
    lambda weight: lru_cache(closing_over(weight)),
    lambda weight: closing_over([{"deep": (weight, {1, 2})}]),
    lambda weight: closing_over(closing_over(weight)),
    lambda weight: closing_over(np.array([0.0, weight])),
    lambda weight: closing_over(SimpleNamespace(weight=weight)),
    lambda weight: closing_over(type("Rule", (), {"weight": weight})),
    lambda weight: partial(Judge(weight)),
]


@pytest.mark.parametrize("make", MAKERS)
def test_what_a_function_carries_is_part_of_its_fingerprint(make):
    assert fingerprint(make(0.25)) == fingerprint(make(0.25))
    assert fingerprint(make(0.25)) != fingerprint(make(0.5))
    assert is_known(fingerprint(make(0.25)))


def test_constants_of_the_code_are_part_of_the_fingerprint_where_no_source_can_be_read():
    one, same, other = (eval(f"lambda code: verdict({n})", globals()) for n in (0.25, 0.25, 0.5))
    assert fingerprint(one) == fingerprint(same) != fingerprint(other)


def test_a_function_has_the_same_fingerprint_after_it_was_called():
    judge = closing_over(0.25)
    before = fingerprint(judge)
    for _ in range(100):
        judge("x = 1")
    assert fingerprint(judge) == before


class Rejected(Exception):
    """A user's own."""


def noting(error):
    """As a library that pickles exceptions with their traceback."""
    return type(error), (*error.args, vars(error), error.__context__)


@pytest.mark.parametrize("kind", [InterruptedError, Rejected])
def test_an_exception_has_the_same_fingerprint_after_it_was_raised(kind, monkeypatch):
    error, other = kind("too slow"), kind("too large")

    def evaluate(code):
        raise error from None

    def evaluate_otherwise(code):
        raise other from None

    before = fingerprint(evaluate)
    monkeypatch.setitem(copyreg.dispatch_table, kind, noting)
    assert fingerprint(evaluate) == before
    with pytest.raises(kind):
        evaluate("")
    assert fingerprint(evaluate) == before
    assert fingerprint(evaluate_otherwise) != before


def before_its_variable():
    def judge(code):
        return later

    yield judge
    later = 1.0
    yield later


def test_a_function_whose_variable_has_no_value_yet_has_a_fingerprint():
    judges = [next(before_its_variable()) for _ in range(2)]
    assert is_known(fingerprint(judges[0]))
    assert fingerprint(judges[0]) == fingerprint(judges[1]) != fingerprint(closing_over(1.0))


def test_values_that_refer_to_themselves_have_a_fingerprint():
    knot = [1]
    knot.append(knot)
    other = [2]
    other.append(other)
    assert fingerprint(closing_over(knot)) == fingerprint(closing_over(knot))
    assert fingerprint(closing_over(knot)) != fingerprint(closing_over(other))


def reading_a_file(code):
    return verdict(float(Path("weight.txt").read_text()))


WEIGHT = 0.5


def asking_another_program(code):
    return verdict(float(subprocess.run(["weigh"], capture_output=True).stdout))


def naming_a_global_by_text(code):
    return verdict(globals()["WEIGHT"])


@pytest.mark.parametrize(
    "evaluate",
    [
        *(closing_over(Lock()), closing_over(count()), closing_over(iter([1]))),
        *(reading_a_file, asking_another_program, naming_a_global_by_text),
    ],
)
def test_an_evaluator_that_cannot_be_hashed_shares_its_fingerprint_with_no_other_problem(evaluate):
    assert fingerprint(evaluate) != fingerprint(evaluate)
    assert not is_known(fingerprint(evaluate))


@pytest.mark.parametrize(
    ("statement", "is_whole"),
    [
        ("import json", True),
        ("import plistlib", True),
        ("from numpy import linalg", True),
        ("import no_such_module", True),
        ("import not_yet_loaded", False),
        ("from . import neighbour", False),
    ],
)
def test_a_module_that_a_function_imports_when_it_runs_is_part_of_it(
    tmp_path, monkeypatch, statement, is_whole
):
    (tmp_path / "not_yet_loaded.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    names = {"verdict": verdict}
    exec(f"def judge(code):\n    {statement}\n    return verdict(1.0)\n", names)
    assert is_known(fingerprint(names["judge"])) == is_whole
    assert fingerprint(names["judge"]) != fingerprint(closing_over(1.0))


@pytest.mark.parametrize("size", [{"depth": 60}, {"count": 21_000}, {"num_bytes": 2**26 + 1}])
def test_an_evaluator_that_carries_too_much_is_hashed_in_part(size):
    value = b"x" * size.get("num_bytes", 0)
    for _ in range(size.get("depth", 0)):
        value = (value,)
    many = [[] for _ in range(size.get("count", 0))]
    assert not is_known(fingerprint(closing_over([value, many])))


def test_a_file_that_an_evaluator_names_by_its_path_is_hashed(tmp_path):
    path = tmp_path / "data.txt"
    path.write_text("one")
    before = fingerprint(closing_over(path))
    assert is_known(before)
    path.write_text("two")
    assert fingerprint(closing_over(path)) != before


IN_ANOTHER_PROCESS = """
import functools, re, enum, datetime, decimal
import numpy as np
from costada.evaluators.problem import Problem
from costada.evaluators.registry import problem, problem_names
from costada.values.evaluation import Evaluation
import helper

NAMES = {{"alpha", "beta", "gamma", "delta"}}
PATTERN = re.compile("a+")

class Kind(enum.Enum):
    ONE = 1

class Judge:
    def __init__(self):
        self.allowed = frozenset({{"x", "y", "z"}})
        self.kind = Kind.ONE
        self.day = datetime.date(2020, 1, 1)
        self.exact = decimal.Decimal("0.1")
        self.matrix = np.eye(2)

    def __call__(self, code):
        return helper.score(code) if code in {{"p", "q", "r"}} and NAMES and PATTERN else None

def closing():
    words = {{"one": {{"p", "q"}}, "two": {{"r", "s"}}}}
    def judge(code, other=frozenset({{"u", "v"}})):
        return code in words or code in {{"a", "b", "c"}}
    return judge

given = {{"name": "p", "task": "t", "initial_program": "x"}}
for each in (Judge(), closing(), functools.partial(closing(), {{"k", "l"}}), Judge().__call__):
    print(Problem(evaluate=each, **given).fingerprint)
for name in problem_names() if {with_benchmarks} else ():
    print(problem(name).fingerprint)
"""


def in_another_process(folder, seed, *, with_benchmarks=False):
    code = IN_ANOTHER_PROCESS.format(with_benchmarks=with_benchmarks)
    (folder / "script.py").write_text(code)
    done = subprocess.run(
        [sys.executable, "script.py"],
        cwd=folder,
        env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.split()


@pytest.mark.process
def test_another_process_with_another_hash_seed_has_the_same_fingerprints(tmp_path):
    (tmp_path / "helper.py").write_text("LIMIT = 1\ndef score(code):\n    return LIMIT\n")
    first = in_another_process(tmp_path, "1", with_benchmarks=True)
    assert first == in_another_process(tmp_path, "2", with_benchmarks=True)
    assert len(set(first)) == 4 + len(problem_names())
    assert all(map(is_known, first))
    assert first[4:] == [problem(name).fingerprint for name in problem_names()]


@pytest.mark.process
def test_a_module_of_ones_own_that_an_evaluator_uses_is_hashed(tmp_path):
    (tmp_path / "helper.py").write_text(
        "import deeper\ndef score(code):\n    return deeper.LIMIT\n"
    )
    (tmp_path / "deeper.py").write_text("LIMIT = 1\n")
    before = in_another_process(tmp_path, "1")
    (tmp_path / "deeper.py").write_text("LIMIT = 2\n")
    after = in_another_process(tmp_path, "1")
    is_same = [one == other for one, other in zip(before, after, strict=True)]
    assert is_same == [False, True, True, False]


NATIVE = "import helper\ndef score(output):\n    return {'combined_score': helper.weigh(output)}\n"
LEGACY = "import helper\ndef evaluate(path):\n    return {'combined_score': helper.weigh(1)}\n"


def folder_with(tmp_path, evaluator):
    folder = tmp_path / "near"
    (folder / "data").mkdir(parents=True)
    texts = {
        "problem.md": "Pick a number.\n",
        "initial_program.py": "def pick():\n    return 1.0\n",
        "problem.toml": 'entry_point = "pick"\n',
        "evaluator.py": evaluator,
        "helper.py": "def weigh(value):\n    return value / 2\n",
        "data/points.csv": "1,2\n",
    }
    for name, text in texts.items():
        (folder / name).write_text(text)
    return folder


@pytest.mark.parametrize("evaluator", [NATIVE, LEGACY])
@pytest.mark.parametrize("name", ["helper.py", "data/points.csv", "evaluator.py", "data/new.json"])
def test_every_file_that_a_folder_may_load_is_part_of_its_fingerprint(tmp_path, evaluator, name):
    folder = folder_with(tmp_path, evaluator)
    before = load_folder(folder).fingerprint
    assert load_folder(folder).fingerprint == before
    assert is_known(before)
    with (folder / name).open("a") as file:
        file.write("# changed\n")
    assert load_folder(folder).fingerprint != before


@pytest.mark.parametrize("name", problem_names())
def test_the_module_that_benchmarks_share_is_part_of_their_fingerprints(
    tmp_path, monkeypatch, name
):
    before = problem(name)
    changed = tmp_path / "checks.py"
    changed.write_text(Path(checks.__file__).read_text() + "# changed\n")
    monkeypatch.setattr(checks, "__file__", str(changed))
    after = problem(name)
    assert after.fingerprint != before.fingerprint
    assert problem_facts(after)["evaluator"] != problem_facts(before)["evaluator"]


@pytest.mark.parametrize(
    ("reading", "is_told"),
    [
        ("(Path(__file__).parent / 'data/points.csv').read_text()", True),
        ("open(os.path.join(os.path.dirname(__file__), 'data/points.csv'))", True),
        ("(Path(__file__).parent.parent / 'weight.txt').read_text()", False),
        ("open(os.path.join(os.path.dirname(os.path.dirname(__file__)), 'w.txt'))", False),
        ("(Path(__file__).parent / '../weight.txt').read_text()", False),
        ("open('weight.txt')", False),
        ("(__file__, open('/etc/hostname'))", False),
        ("(__file__, os.environ.get('WEIGHT'))", False),
        ("os.getenv('WEIGHT')", False),
        ("subprocess.run(['weigh'])", False),
        ("[run.load for run in [output]]", False),
        ("[run for run in [output]]", True),
    ],
)
def test_a_folder_that_reads_elsewhere_means_no_reuse_across_processes(tmp_path, reading, is_told):
    lines = ("import os, subprocess", "from pathlib import Path", "def score(output):")
    folder = folder_with(tmp_path, "\n".join((*lines, f"    return {reading}\n")))
    assert is_known(load_folder(folder).fingerprint) == is_told


def test_a_file_whose_size_and_time_stay_is_read_again_when_another_takes_its_place(tmp_path):
    folder = folder_with(tmp_path, LEGACY)
    path = folder / "data" / "points.csv"
    before, stamp = load_folder(folder).fingerprint, path.stat()
    other = folder / "other"
    other.write_text("3,4\n")
    other.replace(path)
    os.utime(path, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    assert load_folder(folder).fingerprint != before


def test_a_file_behind_a_link_is_hashed_and_a_loop_of_links_ends(tmp_path):
    folder = folder_with(tmp_path, LEGACY)
    (tmp_path / "apart").mkdir()
    (tmp_path / "apart" / "table.csv").write_text("1\n")
    (folder / "linked").symlink_to(tmp_path / "apart")
    (folder / "loop").symlink_to(folder)
    before = load_folder(folder).fingerprint
    assert is_known(before)
    (tmp_path / "apart" / "table.csv").write_text("2\n")
    assert load_folder(folder).fingerprint != before


def test_what_runs_leave_in_a_problem_folder_does_not_change_its_fingerprint(tmp_path):
    folder = folder_with(tmp_path, LEGACY)
    before = load_folder(folder).fingerprint
    run = folder / "sweep" / "near" / "seed-0"
    (folder / "__pycache__").mkdir()
    (folder / "__pycache__" / "helper.cpython-311.pyc").write_bytes(b"0")
    (folder / "runs-out" / "near-1").mkdir(parents=True)
    (folder / "runs-out" / "near-1" / "steps.jsonl").write_text("{}")
    run.mkdir(parents=True)
    (run / "settings.json").write_text('{"problem": "near", "method": "costada", "budget": 1}')
    (run / "best_program.py").write_text("x = 1")
    (run.parent / "seed-0.log").write_text("")
    assert load_folder(folder).fingerprint == before


def test_more_data_than_is_read_means_no_reuse_across_processes(tmp_path):
    folder = folder_with(tmp_path, LEGACY)
    with (folder / "data" / "large.bin").open("wb") as file:
        file.truncate(MAX_BYTES + 1)
    assert not is_known(load_folder(folder).fingerprint)


def test_a_set_that_another_thread_changes_is_read_as_it_was():
    members = set()

    class Growing:
        def decided_by(self):
            members.add(len(members))
            return ["growing"]

    members.add(Growing())
    assert ObjectHash(members).unknown == []
    assert len(members) == 2
