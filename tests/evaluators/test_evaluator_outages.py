"""An evaluator whose own model is unavailable says so, wherever it runs; it blames no program."""

from concurrent.futures import ThreadPoolExecutor

import httpx
import openai
import pytest
from fakes import SEED_PROGRAM, program, toy_problem

from costada.evaluators.folders import load_folder
from costada.evaluators.problem import Problem
from costada.evaluators.problem_fields import Holdout
from costada.evaluators.remote.backend import evaluated_by
from costada.evaluators.sandbox.inside.error_reports import outage_seconds
from costada.evaluators.sandbox.layers import Layer
from costada.values.candidate import Candidate, Program
from costada.values.evaluation import EVALUATOR_FAULT, EVALUATOR_OUTAGE, Evaluation

pytestmark = pytest.mark.process

REQUEST = httpx.Request("POST", "http://127.0.0.1/v1")
START = Program.of(SEED_PROGRAM)


def response(status: int, **headers: str) -> httpx.Response:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return httpx.Response(status, headers=named, request=REQUEST)


def refused(status: int, body: object = None, **headers: str) -> openai.APIStatusError:
    return openai.APIStatusError("refused", response=response(status, **headers), body=body)


def rate_limit(**headers: str) -> openai.RateLimitError:
    return openai.RateLimitError("slow down", response=response(429, **headers), body=None)


def caused(error: Exception, cause: Exception, *, explicitly: bool = True) -> Exception:
    try:
        try:
            raise cause
        except Exception as known:
            if explicitly:
                raise error from known
            raise error  # noqa: B904 - the case that is tested
    except (RuntimeError, ValueError, KeyError) as found:
        return found


QUOTA = {"code": "insufficient_quota"}


@pytest.mark.parametrize(
    ("error", "seconds"),
    [
        (rate_limit(), 0.0),
        (rate_limit(retry_after="7"), 7.0),
        (rate_limit(retry_after_ms="300"), 0.3),
        (refused(503), 0.0),
        (refused(529), 0.0),
        (refused(408), 0.0),
        (refused(400), None),
        (refused(401), None),
        (refused(404), None),
        (refused(429, QUOTA), None),
        (openai.APIConnectionError(request=REQUEST), 0.0),
        (openai.APITimeoutError(REQUEST), 0.0),
        (httpx.ConnectError("nobody"), 0.0),
        (httpx.ReadTimeout("late"), 0.0),
        (httpx.HTTPStatusError("503", request=REQUEST, response=response(503)), 0.0),
        (caused(RuntimeError("no grade"), rate_limit(retry_after="9")), 9.0),
        (caused(RuntimeError("no grade"), rate_limit(), explicitly=False), 0.0),
        (caused(ValueError("rejected"), rate_limit()), None),
        (caused(KeyError("x"), ValueError("y")), None),
        (TimeoutError("too slow"), None),
        (ConnectionError("of the program"), None),
        (SystemExit(503), None),
        (ZeroDivisionError(), None),
    ],
    ids=repr,
)
def test_an_outage_is_known_by_the_error_of_its_sdk(error, seconds):
    assert outage_seconds(error) == seconds


def unavailable(*anything: object, **known: object) -> Evaluation:
    raise rate_limit(retry_after="12.5")


def fine(output: float) -> Evaluation:
    return Evaluation(score=output, objective=output, is_valid=True)


PROBLEMS = {
    "score": {"evaluate": None, "score": unavailable},
    "evaluate": {"evaluate": unavailable},
    "repeats": {"evaluate": unavailable, "repeats": 3},
    "holdout": {
        "evaluate": None,
        "score": lambda results: fine(results[0].output),
        "calls": [{}],
        "holdout": Holdout(calls=lambda seed: [{}], score=unavailable, margin=0.1),
    },
}


def check_outage(judged: Evaluation, seconds: float = 12.5) -> None:
    assert float(judged.artifacts[EVALUATOR_OUTAGE]) == seconds
    assert EVALUATOR_FAULT in judged.artifacts
    assert not judged.is_valid
    assert Candidate.from_evaluation("1", START, judged, "print").evaluator == ""  # not used again


@pytest.mark.parametrize("changes", PROBLEMS.values(), ids=PROBLEMS)
def test_an_outage_in_an_evaluator_is_marked(changes):
    check_outage(toy_problem(**changes, sandbox=Layer.PROCESS).evaluate_program(START))


@pytest.mark.parametrize("name", ["score", "evaluate"])
def test_an_outage_in_a_worker_is_marked(name):
    problem = toy_problem(**PROBLEMS[name], sandbox=Layer.PROCESS)
    with ThreadPoolExecutor(1) as pool:
        check_outage(evaluated_by(problem, pool).evaluate_program(START))


def test_another_error_of_a_problems_own_evaluator_is_raised():
    def broken(code: str) -> Evaluation:
        raise ZeroDivisionError("broken")

    with pytest.raises(ZeroDivisionError, match="broken"):
        toy_problem(evaluate=broken).evaluate_program(START)


SDK = """
class APIConnectionError(Exception):
    pass
"""
ONE_STAGE = "from costada_sdk import APIConnectionError\n\ndef evaluate(path):\n    {}\n"
STAGES = """
from costada_sdk import APIConnectionError
def evaluate(path): return evaluate_stage1(path)
def evaluate_stage1(path): return {"combined_score": 1.0}
def evaluate_stage2(path): raise APIConnectionError("nobody")
"""
DOWN = 'raise APIConnectionError("nobody")'
CALLED = """import runpy
    return {"combined_score": runpy.run_path(path)["value"]()}"""


def folder_problem(folder, evaluator: str, config: str = "") -> Problem:
    folder.mkdir()
    (folder / "costada_sdk.py").write_text(SDK)
    (folder / "problem.md").write_text("Return a large number.")
    (folder / "initial_program.py").write_text(SEED_PROGRAM)
    (folder / "evaluator.py").write_text(evaluator)
    if config:
        (folder / "config.yaml").write_text(config)
    return load_folder(folder)


@pytest.mark.parametrize(
    ("evaluator", "config"),
    [
        (ONE_STAGE.format(DOWN), ""),
        (STAGES, "evaluator:\n  cascade_evaluation: true\n  cascade_thresholds: [0.5]\n"),
    ],
    ids=["one stage", "the second stage"],
)
def test_an_outage_in_the_sandbox_is_marked(tmp_path, evaluator, config):
    check_outage(folder_problem(tmp_path / "own", evaluator, config).evaluate_program(START), 0.0)


def test_a_program_cannot_claim_an_outage(tmp_path):
    problem = folder_problem(tmp_path / "own", ONE_STAGE.format(CALLED))
    claimed = f"{SDK}\ndef value():\n    {DOWN}\n"
    judged = problem.evaluate_program(Program.of(claimed))
    assert EVALUATOR_OUTAGE not in judged.artifacts
    assert "APIConnectionError: nobody" in str(judged.error)
    assert problem.evaluate_program(Program.of(program(0.5))).score == 0.5
