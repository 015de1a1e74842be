"""The processes in which functions of a problem ask models."""

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
from fakes import SEED_PROGRAM
from warm import PATIENCE_SECONDS

from costada.evaluators.granted_models import FunctionCall
from costada.evaluators.problem import Problem
from costada.evaluators.remote import score_processes
from costada.evaluators.sandbox.inside.process_tree import descendants
from costada.values.evaluation import Evaluation

pytestmark = pytest.mark.process


def half(output):
    return Evaluation(score=output / 2, objective=output, is_valid=True)


PROBLEM = Problem(
    name="half",
    task="Return a number.",
    initial_program=SEED_PROGRAM,
    entry_point="value",
    score=half,
)


def judge(output, admit=lambda token: None):
    called, url = FunctionCall("score"), "http://127.0.0.1:9"
    return score_processes.call_in_process(PROBLEM, called, output, url, admit, lambda token: None)


@pytest.fixture
def ended():
    """Ends the processes that are kept, before the test and after it."""
    score_processes._end_idle()
    yield
    score_processes._end_idle()


@pytest.mark.usefixtures("ended")
def test_after_many_calls_at_once_only_some_processes_are_kept(monkeypatch):
    monkeypatch.setattr(score_processes, "MAX_IDLE", 1, raising=False)
    started, start = [], score_processes.ScoreProcess

    def starting(url):
        started.append(start(url))
        return started[-1]

    monkeypatch.setattr(score_processes, "ScoreProcess", starting)
    together = Barrier(3, timeout=PATIENCE_SECONDS)

    with ThreadPoolExecutor(3) as threads:
        found = list(
            threads.map(
                lambda output: judge(output, lambda token: together.wait()), [0.2, 0.4, 0.6]
            )
        )
    assert [each.score for each in found] == [0.1, 0.2, 0.3]
    (kept,) = score_processes._idle
    assert {each for each in started if each.worker.process.poll() is None} == {kept}
    assert len(started) == 3


@pytest.mark.usefixtures("ended")
def test_a_process_that_calls_functions_has_no_process_for_programs():
    assert judge(0.5).score == 0.25
    (kept,) = score_processes._idle
    assert descendants(kept.worker.process.pid) == []
