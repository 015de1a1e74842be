"""A problem folder whose evaluator.py defines score(output): trusted, and apart from candidates."""

import os
import sys

import pytest

from costada.evaluators.folders import load_folder
from costada.evaluators.problem import check_problem
from costada.evaluators.sandbox.layer_choice import chosen_layer
from costada.evaluators.sandbox.layers import Layer
from costada.evaluators.sandbox.limits import Limits
from costada.values.evaluation import EVALUATOR_FAULT, NO_VERDICT, Direction

SETTINGS = 'entry_point = "answer"\n'
SCORE = """def score(output):
    return {'combined_score': output / 10, 'value': output, 'hint': 'on'}
"""
PROGRAM = "def answer(): return 5.0\n"


@pytest.fixture
def make_folder(tmp_path):
    def make(evaluator=SCORE, settings=SETTINGS, program=PROGRAM, name="tens", **neighbours):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "problem.md").write_text("Return a number up to 10.")
        (folder / "initial_program.py").write_text(program)
        (folder / "evaluator.py").write_text(evaluator)
        (folder / "problem.toml").write_text(settings)
        for module, text in neighbours.items():
            (folder / f"{module}.py").write_text(text)
        return folder

    return make


def test_numbers_of_a_dict_are_metrics_and_texts_are_artifacts(make_folder):
    evaluation = check_problem(load_folder(make_folder()))
    assert (evaluation.score, evaluation.objective) == (0.5, 0.5)
    assert (evaluation.metrics["value"], evaluation.artifacts) == (5.0, {"hint": "on"})


def test_the_settings_say_what_holds_a_candidate_and_what_it_may_take(make_folder):
    settings = SETTINGS + (
        "timeout = 7\ncall_timeout = 2.5\nmemory_mb = 300\nthreads = 3\nprocesses = 2\n"
        'scratch_mb = 9\npreload = ["json"]\nsandbox = "process"\nsource = "a book"\nhuman = 9.5\n'
    )
    problem = load_folder(make_folder(settings=settings))
    assert problem.limits == Limits(
        wall_seconds=7,
        call_seconds=2.5,
        memory_mb=300,
        threads=3,
        processes=2,
        scratch_mb=9,
    )
    assert (problem.sandbox, tuple(problem.preload)) == (Layer.PROCESS, ("json",))
    assert (problem.source, problem.human) == ("a book", 9.5)


def test_the_reference_and_the_direction_make_the_score(make_folder):
    settings = SETTINGS + 'direction = "minimize"\nreference = 0.25\n'
    problem = load_folder(make_folder(settings=settings))
    evaluation = check_problem(problem)
    assert problem.direction is Direction.MINIMIZE
    assert (evaluation.objective, evaluation.score) == (0.5, 0.5)
    assert evaluation.metrics["combined_score"] == 0.5


@pytest.mark.parametrize("objective", [0, -3])
def test_a_minimised_objective_that_is_not_positive_is_refused(make_folder, objective):
    settings = SETTINGS + 'direction = "minimize"\nreference = 0.25\n'
    evaluator = f"def score(output):\n    return {{'combined_score': {objective}}}\n"
    with pytest.raises(ValueError, match=f"combined_score is {objective}; expected a positive"):
        check_problem(load_folder(make_folder(evaluator, settings=settings)))


def test_an_evaluation_is_taken_as_it_is(make_folder):
    evaluator = (
        "from costada import Evaluation\ndef score(output):\n"
        "    return Evaluation(score=0.25, objective=output, is_valid=True, metrics={'n': 2})\n"
    )
    evaluation = check_problem(load_folder(make_folder(evaluator)))
    assert (evaluation.score, evaluation.objective, evaluation.metrics["n"]) == (0.25, 5.0, 2)


def test_a_value_error_rejects_the_candidate(make_folder):
    evaluator = "def score(output):\n    raise ValueError('above 10 by 2')\n"
    assert load_folder(make_folder(evaluator)).evaluate(PROGRAM).error == "above 10 by 2"


def test_validity_0_rejects_the_candidate_with_the_error_text(make_folder):
    evaluator = "def score(o):\n    return {'combined_score': 1, 'validity': 0, 'error': 'late'}\n"
    assert load_folder(make_folder(evaluator)).evaluate(PROGRAM).error == "late"


def test_arguments_are_what_the_entry_point_is_called_with(make_folder):
    evaluator = SCORE + "import numpy as np\nARGUMENTS = {'x': np.arange(4.0), 'factor': 2}\n"
    problem = load_folder(make_folder(evaluator))
    assert problem.evaluate("def answer(x, factor): return factor * x.sum()\n").objective == 1.2


def test_calls_are_judged_together(make_folder):
    evaluator = (
        "CALLS = [{'x': 1}, {'x': 0}]\ndef score(results):\n"
        "    errors = [r.error for r in results if r.error]\n"
        "    return {'combined_score': results[0].output, 'failed': len(errors)}\n"
    )
    evaluation = load_folder(make_folder(evaluator)).evaluate("def answer(x): return 1 / x\n")
    assert (evaluation.objective, evaluation.metrics["failed"]) == (1.0, 1.0)


def test_the_score_runs_here_and_the_candidate_elsewhere(make_folder):
    evaluator = (
        "import os\ndef score(output):\n"
        "    return {'combined_score': 1, 'judge': os.getpid(), 'candidate': output}\n"
    )
    program = "import os\ndef answer(): return os.getpid()\n"
    evaluation = load_folder(make_folder(evaluator)).evaluate(program)
    assert evaluation.metrics["judge"] == os.getpid() != evaluation.metrics["candidate"]


@pytest.mark.filterwarnings("ignore:sandbox")
def test_a_candidate_cannot_read_the_evaluator(make_folder):
    if chosen_layer(Layer.AUTO) is Layer.PROCESS:
        pytest.skip("nothing keeps a process from reading files here")
    folder = make_folder()
    program = f"def answer(): return len(open({str(folder / 'evaluator.py')!r}).read())\n"
    evaluation = load_folder(folder).evaluate(program)
    assert "Error" in evaluation.error


def test_neighbours_can_be_imported_and_never_those_of_another_folder(make_folder):
    evaluator = "from rules import TOP\ndef score(output):\n    return {'combined_score': TOP}\n"
    first = load_folder(make_folder(evaluator, name="first", rules="TOP = 1"))
    second = load_folder(make_folder(evaluator, name="second", rules="TOP = 2"))
    assert [each.evaluate(PROGRAM).objective for each in (first, second)] == [1, 2]
    assert "rules" not in sys.modules
    assert str(make_folder(name="third").parent / "second") not in sys.path


def test_a_neighbour_wins_over_a_module_of_the_same_name_and_gives_it_back(make_folder):
    import json

    evaluator = "import json\ndef score(output):\n    return {'combined_score': json.TOP}\n"
    assert load_folder(make_folder(evaluator, json="TOP = 3")).evaluate(PROGRAM).objective == 3
    assert sys.modules["json"] is json


def test_an_evaluator_may_define_dataclasses(make_folder):
    evaluator = (
        "from __future__ import annotations\nfrom dataclasses import dataclass\n"
        "@dataclass\nclass Rule:\n    top: float = 10.0\n"
        "def score(output):\n    return {'combined_score': output / Rule().top}\n"
    )
    assert check_problem(load_folder(make_folder(evaluator))).score == 0.5


def test_nothing_is_written_into_the_folder(make_folder):
    folder = make_folder("import rules\n" + SCORE, rules="")
    before = sorted(folder.rglob("*"))
    check_problem(load_folder(folder))
    assert sorted(folder.rglob("*")) == before


@pytest.mark.parametrize(
    ("evaluator", "expected"),
    [
        ("x = 1\n1 / 0\n" + SCORE, r"evaluator.py, line 2: ZeroDivisionError: division by zero"),
        ("import nowhere_at_all\n" + SCORE, "evaluator.py, line 1: ModuleNotFoundError: No mod"),
        ("import rules\n" + SCORE, r"rules.py, line 2: NameError: name 'y' is not defined"),
        ("import broken\n" + SCORE, r"broken.py, line 1: SyntaxError: "),
        ("import sys\nsys.exit('no data')\n" + SCORE, "line 2: SystemExit: no data"),
        ("def score(): pass", r"score is <function score .*; expected a function of one argument"),
        ("score = 3", "score is 3; expected a function of one argument"),
        (SCORE + "ARGUMENTS = {'x': {1}}", r"arguments\['x'\] is \{1\}; expected a number, text"),
        (SCORE + "ARGUMENTS = [1]", r"arguments is \[1\]; expected a dict of keyword arguments"),
        (SCORE + "CALLS = []", r"calls is \[\]; expected a list of at least one dict"),
        (SCORE + "CALLS = [{}]\nARGUMENTS = {'x': 1}", "expected one of them"),
    ],
)
def test_an_evaluator_that_cannot_work_is_refused_when_the_folder_is_read(
    make_folder, evaluator, expected
):
    folder = make_folder(evaluator, rules="x = 1\ny", broken="def f(:")
    with pytest.raises(ValueError, match=expected) as caught:
        load_folder(folder)
    assert str(folder) in str(caught.value)
    assert not [name for name in sys.modules if name in ("rules", "broken")]


def test_the_entry_point_is_needed(make_folder):
    with pytest.raises(ValueError, match=r"problem.toml: entry_point is missing; needed where"):
        load_folder(make_folder(settings=""))


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("memory = 9", r"unknown key 'memory', did you mean 'memory_mb'\?"),
        ("memory_mb = 1.5", "memory_mb: Input should be a valid integer"),
        ("threads = 0", "threads: Input should be greater than or equal to 1"),
        ("processes = -1", "processes: Input should be greater than or equal to 0"),
        ("call_timeout = 0", "call_timeout: Input should be greater than 0"),
        ("sandbox = 'jail'", "sandbox: Input should be 'auto', 'process', 'landlock'"),
        ("preload = ['no_such_module']", "expected modules, found no no_such_module"),
    ],
)
def test_bad_settings_are_refused(make_folder, key, expected):
    with pytest.raises(ValueError, match=expected):
        load_folder(make_folder(settings=SETTINGS + key))


@pytest.mark.parametrize(
    ("evaluator", "expected"),
    [
        ("def score(o): return 0.5", "score returned float; expected an Evaluation or a dict with"),
        ("def score(o): return {'points': 1}", r"returned no combined_score; .*it returned points"),
        ("def score(o): return {'combined_score': 'high'}", "combined_score is 'high'; expected a"),
        ("def score(o):\n    return o['x']", r"TypeError: .* \(evaluator.py, line 2\)"),
    ],
)
def test_a_score_that_does_not_work_is_found_before_the_search(make_folder, evaluator, expected):
    problem = load_folder(make_folder(evaluator))
    with pytest.raises(ValueError, match=expected):
        check_problem(problem)
    assert EVALUATOR_FAULT in problem.evaluate(PROGRAM).artifacts


@pytest.mark.parametrize(
    "program", ["def answer(): return 1 / 0", "def other(): return 1", "def answer(: return 1"]
)
def test_an_initial_program_that_does_not_run_is_refused(make_folder, program):
    problem = load_folder(make_folder(program=program))
    with pytest.raises(ValueError, match="initial program: "):
        check_problem(problem)
    assert NO_VERDICT in problem.evaluate(program).artifacts


def test_a_score_that_is_not_finite_is_no_verdict(make_folder):
    problem = load_folder(make_folder("def score(o): return {'combined_score': float('nan')}"))
    with pytest.raises(ValueError, match="combined_score is 'nan'; expected a finite number"):
        check_problem(problem)


@pytest.mark.parametrize("line", ["from rules import score", "score = lambda output: {}"])
def test_a_score_may_come_from_a_neighbour_or_an_assignment(make_folder, line):
    problem = load_folder(make_folder(line, rules=SCORE))
    assert problem.score is not None


def test_an_evaluate_keeps_a_folder_whole_in_the_sandbox_whatever_else_it_defines(make_folder):
    evaluator = SCORE + "def evaluate(program_path): return {'combined_score': 0.7}\n"
    problem = load_folder(make_folder(evaluator))
    assert problem.score is None
    assert check_problem(problem).score == 0.7
