"""What an engine refuses, what it says of errors, and how it is opened again."""

import os
import pickle
from concurrent.futures import Future
from dataclasses import replace
from time import monotonic, sleep

import pytest
from remote_engines import dask_cluster, end_tree, ray_cluster, threads
from squares import write_squares

from costada.evaluators.folders import load_folder
from costada.evaluators.problem import Problem, gpu_note
from costada.evaluators.remote import backend as backends
from costada.evaluators.remote.backend import EngineBackend, check_backend
from costada.evaluators.remote.bundle import bundle, unpacked
from costada.evaluators.remote.engine import ExecutorEngine, shared_engine
from costada.evaluators.remote.task import Answer
from costada.evaluators.sandbox.limits import MEBIBYTE
from costada.plugins.engines.ray import RayEngine
from costada.values.candidate import Program
from costada.values.evaluation import Evaluation

pytestmark = pytest.mark.process

RIGHT = Program.of("def square(number):\n    return number ** 2\n")


class Misleading(Exception):
    """An error with the attribute that Ray's errors have."""

    cause = ValueError("not this one")


ERRORS = {"interrupted": InterruptedError("a system call"), "cause": Misleading("this one")}


def raising(program, context=None):
    raise ERRORS[program if isinstance(program, str) else program.text]


class Counting(ExecutorEngine):
    """Counts how often an evaluation is submitted."""

    submitted = 0

    def start(self, calls):
        self.submitted += len(calls)
        return super().start(calls)


@pytest.mark.parametrize("name", ERRORS)
def test_an_error_of_an_evaluator_is_raised_as_it_is_and_loses_no_worker(name):
    with threads() as executor:
        engine = Counting(executor)
        found = Problem(
            name=name,
            task="Write.",
            initial_program="x",
            language="text",
            evaluate=raising,
            backend=EngineBackend(engine),
        )
        with pytest.raises(type(ERRORS[name]), match=str(ERRORS[name])):
            found.evaluate_program(Program.of(name), "key")
    assert engine.submitted == 2  # the second time with the problem itself


class Executing:
    """Makes a folder when it is unpickled."""

    def __init__(self, folder):
        self.folder = folder

    def __reduce__(self):
        return os.mkdir, (str(self.folder),)


class Returning(ExecutorEngine):
    """Returns the same bytes for every evaluation."""

    def __init__(self, returned):
        self.returned, self.name = returned, "returning"

    def start(self, calls):
        future = Future()
        future.set_result(self.returned)
        return [future]


def test_what_a_cluster_returns_executes_no_code(here, tmp_path):
    made = tmp_path / "made"
    found = replace(here, backend=EngineBackend(Returning(pickle.dumps(Executing(made)))))
    with pytest.raises(ValueError, match=r"returning returned .*; expected the answer of a worker"):
        found.evaluate_program(RIGHT, "key")
    assert not made.exists()


def test_an_answer_comes_back_as_it_was():
    evaluation = Evaluation(
        score=0.1 + 0.2,
        objective=-1e-300,
        is_valid=True,
        metrics={"odd": float("nan"), "even": 2},
        artifacts={"note": 'é "quoted"\n'},
        seconds=0.25,
        measurements=(1.5, float("inf")),
        confirmation=(3.0,),
    )
    given = Answer("host:1", evaluation)
    assert Answer.from_json(given.to_json()) == given
    assert evaluation.not_finite == {"odd"}


def test_a_helper_in_a_hidden_folder_is_refused_by_name(tmp_path):
    folder = write_squares(tmp_path / "tasks" / "squares")
    hidden = tmp_path / "tasks" / ".lib"
    hidden.mkdir()
    (hidden / "helper.py").write_text("")
    with pytest.raises(ValueError, match=r"helper\.py is in .*/tasks/\.lib, which is hidden"):
        bundle(folder, (hidden / "helper.py",))


def test_a_folder_that_cannot_take_its_place_is_an_error(squares, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    sent = bundle(squares, ())
    problems = tmp_path / "costada" / "problems"
    problems.mkdir(parents=True, mode=0o700)
    (problems / sent.digest).write_text("in the way")
    with pytest.raises(NotADirectoryError):
        unpacked(sent.digest, sent.archive)
    assert [path.name for path in problems.iterdir()] == [sent.digest]


def test_a_problem_that_was_checked_is_not_packed_again(squares):
    with threads() as executor:
        judge = EngineBackend(ExecutorEngine(executor))
        found = replace(load_folder(squares), backend=judge)
        check_backend(found)
        _, payload = judge._sent(found)
        assert payload
        assert judge._sent(replace(found, notes=("a note",)))[1] is payload
        limits = replace(found.limits, wall_seconds=9.0)
        assert judge._sent(replace(found, limits=limits))[1] is not payload


@pytest.mark.cluster
def test_dask_refuses_memory_that_no_worker_offers_and_does_not_wait_for_it(
    here, cache, monkeypatch
):
    offered = 2 * here.limits.memory_mb
    with dask_cluster([("--resources", f"MEMORY={offered * MEBIBYTE} GPU=1")]) as cluster:
        judge = EngineBackend(shared_engine(f"dask://{cluster.place}"))
        fitting = replace(here, gpus=1, backend=judge)
        assert check_backend(fitting) == gpu_note(fitting)
        assert fitting.evaluate_program(RIGHT, "key").score == 1.0
        large = replace(fitting, limits=replace(here.limits, memory_mb=offered + 1))
        wanted = f"GPU=1 MEMORY={(offered + 1) * MEBIBYTE}"
        with pytest.raises(ValueError, match=f'no worker offers {wanted}.*--resources "{wanted}"'):
            check_backend(large)
        monkeypatch.setattr(backends, "CHECK_SECONDS", 0.2)
        monkeypatch.setattr(backends, "PATIENCE_SECONDS", 2.0)
        with pytest.raises(
            OSError, match=r"is unavailable \(for \d+ s, no worker that has cpus = 1, gpus"
        ):
            large.evaluate_program(RIGHT, "key")
        assert fitting.evaluate_program(RIGHT, "key").score == 1.0


@pytest.mark.cluster
def test_the_client_of_a_scheduler_that_is_gone_is_closed(cache):
    with dask_cluster() as cluster:
        name = f"dask://{cluster.place}"
        lost = shared_engine(name)
        assert shared_engine(name) is lost
        end_tree(cluster.scheduler)
        end = monotonic() + 30
        while lost.is_connected():
            assert monotonic() < end
            sleep(0.1)
        with pytest.raises(OSError, match="no Dask scheduler responds there"):
            shared_engine(name)
        assert lost._client.status == "closed"


@pytest.mark.cluster
def test_ray_is_connected_to_the_cluster_that_is_named(here, cache, monkeypatch):
    monkeypatch.setattr(backends, "CHECK_SECONDS", 0.2)
    monkeypatch.setattr(backends, "PATIENCE_SECONDS", 2.0)
    with ray_cluster() as first:
        lost = RayEngine(f"ray://{first.place}")
        found = replace(here, backend=EngineBackend(lost))
        assert found.evaluate_program(RIGHT, "key").score == 1.0
        with pytest.raises(
            OSError, match=r"gone \(for \d+ s, no worker that has cpus = 1, gpus = 2"
        ):
            replace(found, gpus=2).evaluate_program(RIGHT, "key")
        with pytest.raises(
            OSError, match=rf"process is connected to ray://{first.place}, and Ray allows one"
        ):
            RayEngine("ray://127.0.0.1:1")
        end_tree(first.head)
        with ray_cluster() as second:
            opened = RayEngine(f"ray://{second.place}")
            found = replace(here, backend=EngineBackend(opened))
            assert found.evaluate_program(RIGHT, "key").score == 1.0
