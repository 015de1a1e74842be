"""Pools, queues and locks of `multiprocessing` in the sandbox, semaphores and start methods."""

import sys
from threading import Thread

import pytest

from costada.evaluators.folder_files import EvaluatorFile
from costada.evaluators.sandbox.candidate_runs import run_calls, run_evaluator
from costada.evaluators.sandbox.inside.semaphores import RECURSIVE_MUTEX, SemLock
from costada.evaluators.sandbox.limits import Limits

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(sys.platform != "linux", reason="needs Linux"),
]

SEMAPHORE = 1
LIMITS = Limits(wall_seconds=60, processes=16)
EVALUATOR = """
import multiprocessing
from concurrent.futures import ProcessPoolExecutor

def square(number):
    return number * number

def put(number, queue, event, lock):
    event.wait()
    for _ in range(20):
        with lock:
            queue.put(number)

def evaluate(path):
    with multiprocessing.Pool(3) as pool:
        by_pool = sum(pool.map(square, range(10)))
    with ProcessPoolExecutor(3) as executor:
        by_executor = sum(executor.map(square, range(10)))
    queue, event = multiprocessing.Queue(), multiprocessing.Event()
    lock = multiprocessing.RLock()
    processes = [
        multiprocessing.Process(target=put, args=(number, queue, event, lock))
        for number in range(3)
    ]
    for process in processes:
        process.start()
    event.set()
    by_queue = sum(queue.get() for _ in range(60))
    for process in processes:
        process.join()
    return {"pool": by_pool, "executor": by_executor, "queue": by_queue}
"""


def test_an_evaluator_may_use_pools_and_queues_of_processes(confined, tmp_path):
    (tmp_path / "evaluator.py").write_text(EVALUATOR)
    evaluator = EvaluatorFile(tmp_path, tmp_path / "evaluator.py")
    run = run_evaluator("x = 1\n", evaluator, LIMITS, confined)
    assert run.error is None
    assert run.output["metrics"] == {"pool": 285.0, "executor": 285.0, "queue": 60.0}


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_pools_and_queues_work_with_each_start_method(layer, tmp_path, method):
    chosen = EVALUATOR.replace("multiprocessing.", "CONTEXT.")
    pools = chosen.replace("ProcessPoolExecutor(3)", "ProcessPoolExecutor(3, CONTEXT)")
    context = f"\nCONTEXT = multiprocessing.get_context({method!r})\n"
    (tmp_path / "evaluator.py").write_text(pools.replace("\n\n", context, 1))
    evaluator = EvaluatorFile(tmp_path, tmp_path / "evaluator.py")
    run = run_evaluator("x = 1\n", evaluator, LIMITS, layer)
    assert run.error is None
    assert run.output["metrics"] == {"pool": 285.0, "executor": 285.0, "queue": 60.0}


CANDIDATE_IN_A_POOL = """
import multiprocessing, subprocess, sys
def run(path):
    return subprocess.run([sys.executable, path], capture_output=True, text=True).stderr
def evaluate(path):
    answers = open("answers.txt").read()
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        said = pool.map(run, [path])[0]
    return {"denied": "PermissionError" in said, "said": said}
"""


def test_a_program_that_a_spawned_process_starts_reads_no_answers(confined, tmp_path):
    (tmp_path / "evaluator.py").write_text(CANDIDATE_IN_A_POOL)
    (tmp_path / "answers.txt").write_text("42")
    evaluator = EvaluatorFile(tmp_path, tmp_path / "evaluator.py")
    run = run_evaluator("open('answers.txt')\n", evaluator, LIMITS, confined)
    assert run.error is None
    assert run.output["metrics"]["denied"] == 1.0, run.output["metrics"]["said"]


STARTED_POOL = """
import multiprocessing
from concurrent.futures import ProcessPoolExecutor
def square(number): return number * number
if __name__ == "__main__":
    context = multiprocessing.get_context(METHOD)
    with context.Pool(2) as pool: print(sum(pool.map(square, range(4))))
    with ProcessPoolExecutor(2, context) as pool: print(sum(pool.map(square, range(4))))
    try: open("answers.txt")
    except PermissionError: print(1)
"""


@pytest.mark.parametrize("method", [None, "spawn"])
@pytest.mark.parametrize("script", ["path", "'own.py'"], ids=["candidate", "own script"])
def test_a_program_that_an_evaluator_starts_may_use_pools(confined, tmp_path, method, script):
    program = STARTED_POOL.replace("METHOD", repr(method))
    (tmp_path / "evaluator.py").write_text(
        "import subprocess, sys\ndef evaluate(path):\n"
        f"    said = subprocess.run([sys.executable, {script}], capture_output=True, text=True)\n"
        "    print(said.stderr)\n"
        "    return {'combined_score': sum(map(int, said.stdout.split()))}\n"
    )
    (tmp_path / "own.py").write_text(program.replace('open("answers.txt")', "print(1)"))
    (tmp_path / "answers.txt").write_text("42")
    evaluator = EvaluatorFile(tmp_path, tmp_path / "evaluator.py", files=("answers.txt",))
    run = run_evaluator(program, evaluator, LIMITS, confined)
    assert run.error is None
    assert run.output["metrics"] == {"combined_score": 29.0}, run.log


def test_an_interpreter_that_a_pool_starts_by_itself_is_given_no_file_of_the_sandbox(layer):
    program = (
        "from multiprocessing.spawn import get_preparation_data\n\n"
        "def value():\n    return sorted(get_preparation_data('worker'))\n"
    )
    keys = run_calls(program, "value", [{}], LIMITS, layer)[0].output
    assert "sys_path" in keys
    assert not any(key.startswith("init_main") for key in keys)


def test_a_candidate_may_use_a_pool_where_it_may_start_processes(confined):
    program = (
        "from multiprocessing import Pool\n\ndef square(x):\n    return x * x\n\n"
        "def value():\n    with Pool(2) as pool:\n        return sum(pool.map(square, range(4)))\n"
    )
    assert run_calls(program, "value", [{}], LIMITS, confined)[0].output == 14


def made(kind=SEMAPHORE, value=1, most=1):
    return SemLock(kind, value, most, "name", True)


def test_a_semaphore_is_taken_as_often_as_it_was_given():
    semaphore = made(value=2, most=5)
    assert [semaphore.acquire(False) for _ in range(3)] == [True, True, False]
    assert semaphore._is_zero()
    assert not semaphore.acquire(True, 0.01)
    semaphore.release()
    assert not semaphore._is_zero()
    assert semaphore.acquire()


def test_a_waiting_thread_gets_what_another_one_releases():
    lock, taken = made(value=0), []
    waiting = Thread(target=lambda: taken.append(lock.acquire(True, 60)))
    waiting.start()
    lock.release()
    waiting.join()
    assert taken == [True]


def test_a_lock_that_is_free_cannot_be_released():
    lock = made()
    with lock:
        pass
    with pytest.raises(ValueError, match="released too many times"):
        lock.release()


def test_a_recursive_lock_is_taken_again_by_its_owner_alone():
    lock, others = made(RECURSIVE_MUTEX), []
    assert lock.acquire()
    assert lock.acquire()
    other = Thread(target=lambda: others.append(lock.acquire(False)))
    other.start()
    other.join()
    lock.release()
    assert (others, lock._count(), lock._is_mine()) == ([False], 1, True)
    lock.release()
    with pytest.raises(AssertionError, match="not owned"):
        lock.release()


def test_a_semaphore_that_would_need_a_name_is_refused():
    with pytest.raises(OSError, match=r"get_context\('fork'\)"):
        SemLock(SEMAPHORE, 1, 1, "name", False)


def test_the_trial_of_joblib_is_refused_as_its_processes_would_need_names():
    with pytest.raises(OSError, match="no named semaphores"):
        SemLock(RECURSIVE_MUTEX, 0, 1, "/joblib-1-abc", True)
