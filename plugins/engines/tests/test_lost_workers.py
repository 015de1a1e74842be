"""A lost worker costs an evaluation, which is repeated; a lost cluster costs none."""

import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from time import sleep

import psutil
import pytest
from billing_server import BillingServer
from judged_problems import Providers, judged_folder
from remote_engines import dask_cluster, end_tree, processes, ray_cluster, ray_processes
from squares import load_squares
from waiting import within

from costada.evaluators.folders import load_folder
from costada.evaluators.problem import Problem, confine
from costada.evaluators.remote import backend as backends
from costada.evaluators.remote.backend import EngineBackend
from costada.evaluators.remote.engine import ALL_WORKERS, Engine, ExecutorEngine, shared_engine
from costada.evaluators.sandbox.concurrency import (
    CancellationToken,
    allow_evaluations,
    cancel_evaluations,
    current_token,
)
from costada.runs.config import RunConfig
from costada.runs.single_evaluation import MeteredEvaluations
from costada.values.candidate import Program
from costada.values.evaluation import WORKER

pytestmark = pytest.mark.process

SLOW = "import time\ndef square(number):\n    time.sleep({})\n    return number ** 2\n"
LIMIT = 60.0
ENDLESS = SLOW.format(LIMIT)
FAST = "def square(number):\n    return number ** 2\n"
SECONDS = 60
TIMES = (1.5, 6, 25)
"""Seconds of each of the two calls of an evaluation that is to lose its workers before it ends."""


def judged_by(engine, squares):
    return confine(replace(load_squares(squares, timeout=LIMIT), backend=EngineBackend(engine)))


@contextmanager
def evaluation(problem, program):
    """An evaluation that runs while the block does."""
    with ThreadPoolExecutor(1) as thread:
        yield thread.submit(problem.evaluate_program, Program.of(program), "key")


def pid_of(evaluation):
    return int(evaluation.artifacts[WORKER].rpartition(":")[2])


def dask_workers(client):
    """The pids of workers that evaluate, as the scheduler of a Dask cluster says.

    It is asked alone: a worker that has just been killed, or is starting, answers late. Each worker
    listens at the port of its address.
    """
    ports = {int(each.rpartition(":")[2]) for each, keys in client.processing().items() if keys}
    found = set()
    for each in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            connections = each.net_connections("tcp")
            if ports & {one.laddr.port for one in connections if one.status == psutil.CONN_LISTEN}:
                found.add(each.pid)
    return found


def ray_workers():
    """The pids of Ray's workers that evaluate."""
    return {each.pid for each in ray_processes("ray::answer")}


def local_processes(engine):
    """The processes of local workers that evaluate."""
    return [each.process for each in engine.workers.busy]


def kill_workers(running, busy, number):
    """Kill so many workers of an evaluation, one after the other, before it ends; their pids."""
    killed = set()
    while len(killed) < number and not running.done():
        found = within(SECONDS, lambda: busy() - killed or running.done())
        if found is not True:
            killed.add(pid := found.pop())
            os.kill(pid, signal.SIGKILL)
    return killed


def judged_despite_losses(problem, busy, number):
    """The evaluation of a program that lost so many workers before it ended."""
    for seconds in TIMES:
        with evaluation(problem, SLOW.format(seconds)) as running:
            killed = kill_workers(running, busy, number)
            verdict = running.result(2 * SECONDS)
        if len(killed) == number and pid_of(verdict) not in killed:
            return verdict
    raise AssertionError("each evaluation ended before it had lost its workers")


def test_a_local_worker_that_is_killed_is_replaced_and_its_evaluation_repeated(
    local_engine, squares
):
    problem = judged_by(local_engine, squares)
    assert pid_of(problem.evaluate_program(Program.of(FAST), "key"))
    verdict = judged_despite_losses(
        problem, lambda: {each.pid for each in local_processes(local_engine)}, 1
    )
    assert (verdict.score, verdict.error) == (1.0, None)


def test_what_a_lost_worker_has_asked_of_a_judge_is_not_asked_again(
    local_engine, tmp_path, cache, monkeypatch
):
    providers, killed = Providers(), []

    def answer(body):
        if providers.billed.total() == 1 and not killed:  # the second of two questions
            [busy] = local_processes(local_engine)
            busy.kill()
            killed.append(busy.wait())
        return providers.answer(body)

    monkeypatch.setenv("OPENAI_API_KEY", "sk-real-key-of-the-user")
    with BillingServer(default=answer) as server:
        found = load_folder(judged_folder(tmp_path / "judged", server.url))
        problem = confine(replace(found, backend=EngineBackend(local_engine)))
        evaluations = MeteredEvaluations(problem, RunConfig(problem="unused"))
        verdict = evaluations.evaluate(problem.start)
    assert verdict.is_valid
    assert killed == [-signal.SIGKILL]
    assert sorted(providers.billed.values()) == [1, 1]
    assert evaluations.bill == f"judge-large ${providers.total:.6f}"


def test_a_program_that_loses_every_worker_pauses_the_run(local_engine, squares):
    problem = judged_by(local_engine, squares)
    problem.evaluate_program(Program.of(FAST), "key")
    with evaluation(problem, ENDLESS) as running:
        killed = set()
        while not running.done():
            for busy in local_processes(local_engine):
                busy.kill()
                killed.add(busy.pid)
            sleep(0.1)
        with pytest.raises(OSError, match="lost several workers, one after the other"):
            running.result()
    assert len(killed) == 3
    assert problem.evaluate_program(Program.of(FAST), "key").score == 1.0


def test_a_cancelled_evaluation_ends_its_local_worker(local_engine, squares):
    problem = judged_by(local_engine, squares)
    problem.evaluate_program(Program.of(FAST), "key")
    with evaluation(problem, ENDLESS) as running:
        [busy] = within(SECONDS, lambda: local_processes(local_engine))
        cancel_evaluations()
        try:
            with pytest.raises(InterruptedError):
                running.result(SECONDS)
        finally:
            allow_evaluations()
        within(SECONDS, lambda: busy.poll() is not None)
    assert problem.evaluate_program(Program.of(FAST), "key").score == 1.0


def test_workers_end_with_the_process_that_started_them(squares, tmp_path, cache):
    script = tmp_path / "killed.py"
    script.write_text(
        "import os, signal, sys\n"
        "from costada.evaluators.folders import load_folder\n"
        "from costada.evaluators.problem import confine\n"
        "from costada.evaluators.remote.backend import evaluated_by\n"
        "problem = confine(evaluated_by(load_folder(sys.argv[1]), 'local:1'))\n"
        "verdict = problem.evaluate_program(problem.start, 'key')\n"
        "print(verdict.artifacts['worker'].rpartition(':')[2], flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    # A file of the working folder has the name of a module that workers import.
    (tmp_path / "socket.py").write_text("raise SystemExit('the wrong module')\n")
    ended = subprocess.run(
        [sys.executable, "-P", script, squares],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    within(SECONDS, lambda: not psutil.pid_exists(int(ended.stdout)))


def test_a_broken_pool_of_the_caller_is_gone_and_says_how_to_go_on(squares, cache):
    with processes() as pool:
        problem = judged_by(ExecutorEngine(pool), squares)
        first = problem.evaluate_program(Program.of(FAST), "key")
        with evaluation(problem, ENDLESS) as running:
            sleep(0.5)
            for pid in list(pool._processes):
                os.kill(pid, signal.SIGKILL)
            with pytest.raises(
                OSError, match=r"ProcessPoolExecutor is unavail.*--evaluate-on local"
            ):
                running.result(SECONDS)
        assert first.score == 1.0
        with pytest.raises(OSError, match="ProcessPoolExecutor is unavailable"):
            problem.evaluate_program(Program.of(FAST), "key")


def breaking(program):
    raise BrokenProcessPool("a pool of the evaluator's own")


def test_a_broken_pool_of_an_evaluator_is_its_error_and_no_lost_worker(local_engine):
    found = Problem(
        name="pools",
        task="Write.",
        initial_program="x",
        language="text",
        evaluate=breaking,
        backend=EngineBackend(local_engine),
    )
    with pytest.raises(BrokenProcessPool, match="a pool of the evaluator's own"):
        found.evaluate_program(found.start, "key")


@pytest.mark.cluster
def test_dask_repeats_what_a_killed_worker_did_and_its_end_pauses_the_run(squares, cache):
    with dask_cluster() as cluster:
        engine = shared_engine(f"dask://{cluster.place}")
        problem = judged_by(engine, squares)
        problem.evaluate_program(Program.of(FAST), "key")
        busy = partial(dask_workers, engine._client)
        verdict = judged_despite_losses(problem, busy, 1)
        assert (verdict.score, verdict.error) == (1.0, None)
        with evaluation(problem, ENDLESS) as running:
            within(SECONDS, busy)
            end_tree(cluster.scheduler)
            with pytest.raises(OSError, match=r"dask://.* is unavailable"):
                running.result(SECONDS)


@pytest.mark.cluster
def test_an_evaluation_that_dask_gives_up_after_one_worker_is_repeated_by_others(
    squares, cache, monkeypatch
):
    monkeypatch.setenv("DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES", "0")
    with dask_cluster() as cluster:
        engine = shared_engine(f"dask://{cluster.place}")
        problem = judged_by(engine, squares)
        problem.evaluate_program(Program.of(FAST), "key")
        busy = partial(dask_workers, engine._client)
        verdict = judged_despite_losses(problem, busy, 2)
        assert (verdict.score, verdict.error) == (1.0, None)
        with evaluation(problem, ENDLESS) as running:
            assert len(kill_workers(running, busy, 3)) == 3
            with pytest.raises(OSError, match="lost several workers, one after the other"):
                running.result(SECONDS)
        assert problem.evaluate_program(Program.of(FAST), "key").score == 1.0


@pytest.mark.cluster
def test_a_scheduler_that_hangs_pauses_the_run(squares, cache, monkeypatch):
    monkeypatch.setattr(backends, "CHECK_SECONDS", 0.2)
    monkeypatch.setattr(backends, "PATIENCE_SECONDS", 2.0)
    with dask_cluster() as cluster:
        problem = judged_by(shared_engine(f"dask://{cluster.place}"), squares)
        assert problem.evaluate_program(Program.of(FAST), "key").score == 1.0
        cluster.scheduler.suspend()
        try:
            with pytest.raises(OSError, match=r"is unavailable \(for .* s, no worker"):
                problem.evaluate_program(Program.of(FAST), "key")
        finally:
            cluster.scheduler.resume()
        assert problem.evaluate_program(Program.of(FAST), "key").score == 1.0


def test_a_token_cancels_the_evaluations_of_its_context(local_engine, squares):
    problem, token = judged_by(local_engine, squares), CancellationToken()
    before = current_token.set(token)
    token.cancel()
    try:
        with pytest.raises(InterruptedError):
            problem.evaluate_program(Program.of(ENDLESS), "key")
    finally:
        current_token.reset(before)


@pytest.mark.cluster
def test_ray_repeats_what_a_killed_worker_did_and_its_end_pauses_the_run(squares, cache):
    with ray_cluster() as cluster:
        problem = judged_by(shared_engine(f"ray://{cluster.place}"), squares)
        problem.evaluate_program(Program.of(FAST), "key")
        verdict = judged_despite_losses(problem, ray_workers, 1)
        assert (verdict.score, verdict.error) == (1.0, None)
        with evaluation(problem, ENDLESS) as running:
            within(SECONDS, ray_workers)
            end_tree(cluster.head)
            with pytest.raises(OSError, match=r"ray://.* is unavailable .*the run can be resumed"):
                running.result(2 * SECONDS)


@pytest.mark.cluster
def test_what_ran_on_a_lost_node_of_ray_is_repeated_on_another(squares, cache):
    with ray_cluster() as cluster:
        engine = shared_engine(f"ray://{cluster.place}")
        problem = replace(judged_by(engine, squares), gpus=1)
        first = cluster.add_node("--num-gpus", 1)
        within(SECONDS, lambda: engine.has_worker(backends._needs(problem)))
        with evaluation(problem, SLOW.format(20)) as running:
            [busy] = within(SECONDS, ray_workers)
            end_tree(first)
            cluster.add_node("--num-gpus", 1)
            verdict = running.result(2 * SECONDS)
        assert (verdict.score, verdict.error) == (1.0, None)
        assert pid_of(verdict) != busy


def error_of(module, name, **facts):
    """An error by the full name of its class, whose package need not be installed."""
    error = type(name, (Exception,), {"__module__": module})()
    error.__dict__.update(facts)
    return error


def test_an_executor_of_a_dask_client_fails_as_the_engine_says():
    lost = ExecutorEngine.loss_of
    assert lost(error_of("distributed.client", "FutureCancelledError")) == ALL_WORKERS
    assert lost(error_of("distributed.scheduler", "KilledWorker", allowed_failures=2)) == 3
    assert lost(error_of("concurrent.futures._base", "BrokenExecutor")) == ALL_WORKERS
    assert lost(ValueError("raised by the call")) is None
    assert Engine.loss_of(error_of("distributed.client", "FutureCancelledError")) is None
