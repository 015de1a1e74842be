import pytest

from costada.evaluators.folders import load_folder
from costada.evaluators.problem import check_problem
from costada.values.evaluation import EVALUATOR_FAULT, Direction

RUN_PROGRAM = """
import importlib.util
def run_program(path):
    spec = importlib.util.spec_from_file_location("program", path)
    program = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(program)
    return program.answer()
"""
SKYDISCOVER = """
from helper import run_program
def evaluate(program_path):
    try:
        value = run_program(program_path)
    except Exception as error:
        return {"combined_score": 0.0, "error": str(error)}
    return {"combined_score": value / 10, "value": value, "hint": "go on", "stage": None}
"""
OPENEVOLVE = """
from dataclasses import dataclass, field
from helper import run_program
@dataclass
class EvaluationResult:
    metrics: dict
    artifacts: dict = field(default_factory=dict)
def evaluate(program_path):
    value = run_program(program_path)
    return EvaluationResult({"combined_score": value / 10}, {"stderr": b"quiet"})
"""


@pytest.fixture(scope="module")
def make_folder(tmp_path_factory):
    """Write a folder of a problem, always in the same place: its slot is started once."""
    folder = tmp_path_factory.mktemp("problems") / "tens"
    folder.mkdir()

    def make(evaluator=SKYDISCOVER, program="def answer(): return 5.0", settings=None):
        for name in ("problem.toml", ".env"):
            (folder / name).unlink(missing_ok=True)
        (folder / "problem.md").write_text("Return a number up to 10.")
        (folder / "initial_program.py").write_text(program)
        (folder / "evaluator.py").write_text(evaluator)
        (folder / "helper.py").write_text(RUN_PROGRAM)
        (folder / "config.yaml").write_text("prompt: {}")
        if settings is not None:
            (folder / "problem.toml").write_text(settings)
        return folder

    return make


def evaluator_returning(text):
    return f"def evaluate(program_path):\n    return {text}"


def test_a_folder_without_settings_takes_its_name_and_the_defaults(make_folder):
    problem = load_folder(make_folder())
    assert (problem.name, problem.task) == ("tens", "Return a number up to 10.")
    assert problem.initial_program == "def answer(): return 5.0"
    assert problem.evaluator_source == SKYDISCOVER
    assert (problem.entry_point, problem.reference, problem.human) == (None, None, None)
    assert (problem.direction, problem.limits.wall_seconds) == (Direction.MAXIMIZE, 360.0)


def test_a_skydiscover_evaluator_runs_unchanged(make_folder):
    evaluation = check_problem(load_folder(make_folder()))
    assert evaluation.is_valid
    assert evaluation.score == evaluation.objective == 0.5
    assert evaluation.metrics == {"combined_score": 0.5, "value": 5.0}
    assert evaluation.artifacts == {"hint": "go on", "stage": "None"}


def test_an_openevolve_evaluator_runs_unchanged(make_folder):
    evaluation = check_problem(load_folder(make_folder(OPENEVOLVE)))
    assert evaluation.score == 0.5
    assert evaluation.artifacts == {"stderr": "quiet"}


def test_the_candidate_and_not_the_initial_program_is_judged(make_folder):
    assert load_folder(make_folder()).evaluate("def answer(): return 8").score == 0.8


def test_an_evaluator_may_read_the_files_beside_it(make_folder):
    evaluator = (
        "from pathlib import Path\ndef evaluate(program_path):\n"
        "    seed = Path(__file__).with_name('initial_program.py').read_text()\n"
        "    return {'combined_score': float(seed == Path(program_path).read_text())}"
    )
    problem = load_folder(make_folder(evaluator))
    assert check_problem(problem).score == 1.0
    assert problem.evaluate("x = 1").score == 0.0


def test_numbers_of_any_kind_are_metrics_and_all_else_is_text(make_folder):
    evaluator = "import numpy as np\nfrom fractions import Fraction\n" + evaluator_returning(
        "{'combined_score': np.float32(0.5), 'n': np.int64(3), 'q': Fraction(1, 4),"
        " 'zero_d': np.array(2.0), 'ok': True, 'rows': [1, 2], 'bad': float('nan'),"
        " 'points': np.zeros(2)}"
    )
    evaluation = check_problem(load_folder(make_folder(evaluator)))
    assert evaluation.metrics == {
        "combined_score": 0.5,
        "n": 3.0,
        "q": 0.25,
        "zero_d": 2.0,
        "ok": 1.0,
    }
    assert evaluation.artifacts == {"rows": "[1, 2]", "bad": "nan", "points": "[0. 0.]"}


def test_settings_name_and_scale_the_problem(make_folder):
    settings = (
        'name = "ten"\ntimeout = 7\ndirection = "minimize"\nentry_point = "answer"\n'
        "reference = 0.25\nhuman = 0.3"
    )
    problem = load_folder(make_folder(settings=settings))
    assert (problem.name, problem.limits.wall_seconds, problem.entry_point) == (
        "ten",
        7.0,
        "answer",
    )
    assert (problem.reference, problem.human) == (0.25, 0.3)
    assert problem.direction is Direction.MINIMIZE
    evaluation = check_problem(problem)
    assert (evaluation.objective, evaluation.score) == (0.5, 0.5)


def test_a_maximised_score_is_divided_by_the_reference(make_folder):
    assert check_problem(load_folder(make_folder(settings="reference = 2.0"))).score == 0.25


def test_an_empty_settings_file_changes_nothing(make_folder):
    assert load_folder(make_folder(settings="")).limits.wall_seconds == 360.0


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ("limit = 3", r"unknown key 'limit' \(known keys: name, timeout,"),
        ("tiemout = 3", r"unknown key 'tiemout', did you mean 'timeout'\? \(known keys"),
        ("timeout = 0", "timeout: Input should be greater than 0"),
        ("timeout = '9'", "timeout: Input should be a valid number"),
        ("timeout = inf", "timeout: Input should be a finite number"),
        ("direction = 'up'", "direction: Input should be 'maximize' or 'minimize'"),
        ("reference = -1.0", "reference: Input should be greater than 0"),
        ("direction = 'minimize'", "reference is missing; needed where direction is 'minimize'"),
        ("entry_point = 'a b'", "entry_point is 'a b'; expected a function name"),
        ("name = ", "problem.toml is not valid TOML"),
    ],
)
def test_bad_settings_are_refused(make_folder, settings, expected):
    with pytest.raises(ValueError, match=expected):
        load_folder(make_folder(settings=settings))


@pytest.mark.parametrize("name", ["problem.md", "initial_program.py", "evaluator.py"])
def test_a_missing_or_empty_file_is_named(make_folder, name):
    folder = make_folder()
    (folder / name).write_text(" \n")
    with pytest.raises(ValueError, match=f"{name} is empty"):
        load_folder(folder)
    (folder / name).write_bytes(b"\xff\xfe")
    with pytest.raises(ValueError, match=f"{name} is not UTF-8 text"):
        load_folder(folder)
    (folder / name).unlink()
    with pytest.raises(ValueError, match=f"{name} is missing in .*tens"):
        load_folder(folder)


def test_a_path_that_is_no_folder_is_refused(tmp_path):
    with pytest.raises(ValueError, match="nowhere is not a folder"):
        load_folder(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("evaluator", "expected"),
    [
        (
            evaluator_returning("{'score': 1}"),
            r"returned no combined_score; .*\(it returned score\)",
        ),
        (evaluator_returning("{}"), r"returned no combined_score; .*\(it returned nothing\)"),
        (evaluator_returning("{'combined_score': 'high'}"), "combined_score is 'high'; expected a"),
        (evaluator_returning("{'combined_score': None}"), "combined_score is 'None'; expected a"),
        (evaluator_returning("0.5"), "evaluate returned float; expected a dict of metrics"),
        (evaluator_returning("1 / 0"), 'ZeroDivisionError: .*\n  File "evaluator.py", line 2'),
        ("import openevolve_is_absent", "No module named 'openevolve_is_absent'"),
        ("def evaluate(:", r'File "evaluator.py", line 1'),
        ("x = 1", "has no attribute 'evaluate'"),
        (
            "import sys\ndef evaluate(path): sys.exit(2)",
            r"SystemExit: the program called exit \(2\)",
        ),
    ],
)
def test_a_broken_evaluator_is_found_before_the_search(make_folder, evaluator, expected):
    problem = load_folder(make_folder(evaluator))
    with pytest.raises(
        ValueError, match=r"problem 'tens', initial program: evaluator.py"
    ) as caught:
        check_problem(problem)
    assert caught.match(expected)
    evaluation = problem.evaluate(problem.initial_program)
    assert (evaluation.score, evaluation.is_valid) == (0.0, False)
    assert EVALUATOR_FAULT in evaluation.artifacts


def test_an_initial_program_that_raises_is_refused_with_its_own_traceback(make_folder):
    folder = make_folder(OPENEVOLVE, program="def answer():\n    raise ValueError('not yet')")
    problem = load_folder(folder)
    evaluation = problem.evaluate(problem.initial_program)
    assert EVALUATOR_FAULT not in evaluation.artifacts
    assert 'File "candidate.py", line 2, in answer' in evaluation.error
    assert str(folder) not in evaluation.error
    with pytest.raises(ValueError, match="initial program: ValueError: not yet"):
        check_problem(problem)


@pytest.mark.parametrize("value", ["nan", "inf"])
def test_an_initial_program_without_a_finite_score_is_refused(make_folder, value):
    folder = make_folder(evaluator_returning(f"{{'combined_score': float('{value}')}}"))
    with pytest.raises(ValueError, match=f"initial program: combined_score is '{value}'"):
        check_problem(load_folder(folder))


@pytest.mark.parametrize("program", ["def answer(:", "import nowhere_at_all", "1 / 0"])
def test_a_program_that_does_not_load_is_no_fault_of_the_evaluator(make_folder, program):
    evaluation = load_folder(make_folder(OPENEVOLVE)).evaluate(program)
    assert not evaluation.is_valid
    assert EVALUATOR_FAULT not in evaluation.artifacts


@pytest.mark.parametrize(
    ("returned", "error"),
    [
        ("{'combined_score': 0.0, 'error': 'overlap'}", "overlap"),
        ("{'combined_score': 0.7, 'validity': 0}", "the evaluator says validity 0"),
        ("{'combined_score': 0.0, 'validity': -1, 'error': 'late'}", "late"),
        ("{'combined_score': float('nan')}", "combined_score is 'nan'; expected a finite number"),
        ("{'combined_score': float('inf')}", "combined_score is 'inf'; expected a finite number"),
    ],
)
def test_a_candidate_the_evaluator_rejects_scores_zero(make_folder, returned, error):
    problem = load_folder(make_folder(evaluator_returning(returned)))
    evaluation = problem.evaluate(problem.initial_program)
    assert (evaluation.score, evaluation.objective, evaluation.error) == (0.0, None, error)


def test_a_positive_score_with_an_error_text_is_credited(make_folder):
    returned = "{'combined_score': 0.7, 'error': 'one case of ten failed'}"
    evaluation = check_problem(load_folder(make_folder(evaluator_returning(returned))))
    assert (evaluation.score, evaluation.error) == (0.7, None)
    assert evaluation.artifacts["error"] == "one case of ten failed"


def test_a_score_of_zero_without_an_error_is_valid(make_folder):
    assert check_problem(
        load_folder(make_folder(evaluator_returning("{'combined_score': 0}")))
    ).is_valid


def test_an_evaluator_over_its_limit_is_stopped(make_folder):
    problem = load_folder(make_folder(settings="timeout = 0.4"))
    evaluation = problem.evaluate("while True: pass")
    assert evaluation.error == "timeout: the program exceeded 0.4 s"


def test_nothing_is_written_into_the_folder(make_folder):
    folder = make_folder()
    before = sorted(folder.rglob("*"))
    check_problem(load_folder(folder))
    assert sorted(folder.rglob("*")) == before


def test_keys_in_the_environment_stay_out_of_the_evaluator(make_folder, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-CANARY-1")
    evaluator = "import os\n" + evaluator_returning(
        "{'combined_score': 1, 'env': dict(os.environ)}"
    )
    assert "CANARY" not in check_problem(load_folder(make_folder(evaluator))).artifacts["env"]


@pytest.mark.parametrize("name", [".env", "../x", "/etc/passwd", "nothing.npy", "*/.key", "a**"])
def test_a_declared_file_that_cannot_be_shown_is_refused(make_folder, name):
    folder = make_folder(settings=f"files = ['helper.py', '{name}']")
    (folder / ".env").write_text("x")
    with pytest.raises(ValueError, match=r"files has .*; expected files below the folder"):
        load_folder(folder)


def test_an_evaluator_that_misses_a_file_is_told_how_to_declare_it(make_folder):
    evaluator = "def evaluate(path):\n    return open(__file__[:-12] + chr(120)).read()"
    verdict = load_folder(make_folder(evaluator)).evaluate("")
    assert "Error: [Errno" in verdict.error
    assert verdict.error.endswith("declare others as files in problem.toml")
