"""A worker that is killed costs an evaluation that is repeated; a cluster that is gone, none."""

import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from time import monotonic, sleep

import psutil
import pytest
from remote_engines import dask_cluster, end_tree, processes, ray_cluster, ray_processes
from squares import load_squares

from costada.evaluators.problem import confine
from costada.evaluators.remote.engines import DaskEngine, OwnExecutor, engine_of
from costada.evaluators.remote.judge import RemoteJudge
from costada.evaluators.sandbox.cancellation import (
    CancellationToken,
    allow_evaluations,
    cancel_evaluations,
    current_token,
)
from costada.values.candidate import Program
from costada.values.evaluation import WORKER

SLOW = "import time\ndef square(number):\n    time.sleep(1.5)\n    return number ** 2\n"
FAST = "def square(number):\n    return number ** 2\n"
SECONDS = 60


def judged_by(engine, squares):
    return confine(replace(load_squares(squares, timeout=20.0), elsewhere=RemoteJudge(engine)))


@contextmanager
def evaluation(problem, program=SLOW):
    """An evaluation that runs while the block does."""
    with ThreadPoolExecutor(1) as thread:
        yield thread.submit(problem.judge, Program.of(program), "key")


def within(seconds, found):
    """What a function finds once it is true."""
    end = monotonic() + seconds
    while not (value := found()):
        assert monotonic() < end, "nothing found in time"
        sleep(0.05)
    return value


def pid_of(evaluation):
    return int(evaluation.artifacts[WORKER].rpartition(":")[2])


def test_a_local_worker_that_is_killed_is_replaced_and_its_evaluation_repeated(
    local_engine, squares
):
    problem = judged_by(local_engine, squares)
    warm = pid_of(problem.judge(Program.of(FAST), "key"))
    with evaluation(problem) as running:
        [busy] = within(SECONDS, lambda: [*local_engine._workers._running.values()])
        sleep(0.5)
        os.kill(busy.pid, signal.SIGKILL)
        verdict = running.result(SECONDS)
    assert (verdict.score, verdict.error) == (1.0, None)
    assert pid_of(verdict) != busy.pid
    assert warm


def test_a_program_that_loses_every_worker_pauses_the_run(local_engine, squares):
    problem = judged_by(local_engine, squares)
    killed = set()
    with evaluation(problem) as running:
        while not running.done():
            for busy in [*local_engine._workers._running.values()]:
                busy.kill()
                killed.add(busy.pid)
            sleep(0.1)
        with pytest.raises(OSError, match="lost several workers, one after the other"):
            running.result()
    assert len(killed) == 3
    assert problem.judge(Program.of(FAST), "key").score == 1.0


def test_a_cancelled_evaluation_ends_its_local_worker(local_engine, squares):
    problem = judged_by(local_engine, squares)
    problem.judge(Program.of(FAST), "key")
    with evaluation(problem) as running:
        [busy] = within(SECONDS, lambda: [*local_engine._workers._running.values()])
        cancel_evaluations()
        try:
            with pytest.raises(InterruptedError):
                running.result(SECONDS)
        finally:
            allow_evaluations()
        within(SECONDS, lambda: busy.poll() is not None)
    assert problem.judge(Program.of(FAST), "key").score == 1.0


def test_workers_end_with_the_process_that_started_them(squares, tmp_path, cache):
    script = tmp_path / "killed.py"
    script.write_text(
        "import os, signal, sys\n"
        "from costada.evaluators.folders import load_folder\n"
        "from costada.evaluators.problem import confine\n"
        "from costada.evaluators.remote.judge import evaluated_by\n"
        "problem = confine(evaluated_by(load_folder(sys.argv[1]), 'local:1'))\n"
        "verdict = problem.judge(problem.start, 'key')\n"
        "print(verdict.artifacts['worker'].rpartition(':')[2], flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    ended = subprocess.run(
        [sys.executable, script, squares], capture_output=True, text=True, check=False
    )
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    within(SECONDS, lambda: not psutil.pid_exists(int(ended.stdout)))


def test_a_broken_pool_of_the_caller_is_gone_and_says_how_to_go_on(squares, cache):
    with processes() as pool:
        problem = judged_by(OwnExecutor(pool), squares)
        first = problem.judge(Program.of(FAST), "key")
        with evaluation(problem) as running:
            sleep(0.5)
            for pid in list(pool._processes):
                os.kill(pid, signal.SIGKILL)
            with pytest.raises(OSError, match=r"ProcessPoolExecutor is gone .*--evaluations local"):
                running.result(SECONDS)
        assert first.score == 1.0
        with pytest.raises(OSError, match="ProcessPoolExecutor is gone"):
            problem.judge(Program.of(FAST), "key")


def test_dask_repeats_what_a_killed_worker_did_and_its_end_pauses_the_run(squares, cache):
    with dask_cluster() as cluster:
        problem = judged_by(DaskEngine(cluster.place), squares)
        pids = {pid_of(problem.judge(Program.of(FAST), "key")) for _ in range(6)}
        with evaluation(problem) as running:
            sleep(0.7)
            for pid in pids:
                os.kill(pid, signal.SIGKILL)
            verdict = running.result(SECONDS)
        assert (verdict.score, verdict.error) == (1.0, None)
        assert pid_of(verdict) not in pids
        with evaluation(problem) as running:
            sleep(0.7)
            end_tree(cluster.scheduler)
            with pytest.raises(OSError, match=r"dask://.* is gone"):
                running.result(SECONDS)


def test_a_token_cancels_the_evaluations_of_its_context(local_engine, squares):
    problem, token = judged_by(local_engine, squares), CancellationToken()
    before = current_token.set(token)
    token.cancel()
    try:
        with pytest.raises(InterruptedError):
            problem.judge(Program.of(SLOW), "key")
    finally:
        current_token.reset(before)


def test_ray_repeats_what_a_killed_worker_did_and_its_end_pauses_the_run(squares, cache):
    with ray_cluster() as place:
        problem = judged_by(engine_of(f"ray://{place}"), squares)
        problem.judge(Program.of(FAST), "key")
        with evaluation(problem) as running:
            busy = within(SECONDS, lambda: [*ray_processes("ray::answer")])
            sleep(0.5)
            for each in busy:
                each.kill()
            verdict = running.result(SECONDS)
        assert (verdict.score, verdict.error) == (1.0, None)
        assert pid_of(verdict) not in [each.pid for each in busy]
        with evaluation(problem) as running:
            within(SECONDS, lambda: [*ray_processes("ray::answer")])
            for each in ray_processes("ray"):
                end_tree(each)
            with pytest.raises(OSError, match=r"ray://.* is gone .*the run can be resumed"):
                running.result(2 * SECONDS)
