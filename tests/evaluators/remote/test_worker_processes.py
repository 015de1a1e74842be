"""Worker processes: each is lost alone, holds no keys, and ends with its parent."""

import os
import signal
import socket
import subprocess
import sys
from concurrent.futures import BrokenExecutor
from pathlib import Path
from time import monotonic, sleep

import psutil
import pytest
from waiting import within

from costada.evaluators.remote.worker_processes import WorkerProcesses

pytestmark = pytest.mark.process

SECONDS = 60
BEGIN = "from costada.evaluators.remote.worker_processes import serve\n"
KEY = "sk-only-for-the-process-that-starts-workers"
ONLY_ON_LINUX = pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="needs /proc")


@pytest.fixture
def workers():
    with WorkerProcesses(2) as opened:
        yield opened
        opened.shutdown(cancel_futures=True)


def test_a_function_that_is_stopped_while_its_process_starts_does_not_run():
    workers = WorkerProcesses(1)
    running = workers.submit(sleep, SECONDS)
    within(SECONDS, running.running)
    workers.stop(running)
    started = monotonic()
    with pytest.raises(BrokenExecutor, match="a worker process ended"):
        running.result(SECONDS)
    assert monotonic() - started < SECONDS / 2
    assert workers.submit(os.getpid).result(SECONDS) != os.getpid()
    workers.shutdown()


def test_a_shutdown_cancels_what_waits_if_it_is_asked_to():
    workers = WorkerProcesses(1)
    first, second = workers.submit(sleep, SECONDS), workers.submit(os.getpid)
    within(SECONDS, first.running)
    workers.shutdown(cancel_futures=True)
    assert isinstance(first.exception(0), BrokenExecutor)
    assert second.cancelled()
    with pytest.raises(RuntimeError, match="after shutdown"):
        workers.submit(os.getpid)


def test_a_process_that_dies_fails_only_its_own_function(workers):
    first, second = workers.submit(sleep, SECONDS), workers.submit(sleep, 3)
    within(SECONDS, lambda: len(workers.busy) == 2)
    victim = next(call.worker for call in [workers._calls[first]])
    os.kill(victim.process.pid, signal.SIGKILL)
    assert isinstance(first.exception(SECONDS), BrokenExecutor)
    assert second.exception(SECONDS) is None
    assert workers.submit(os.getpid).result(SECONDS) != victim.process.pid


def test_idle_processes_are_used_again(workers):
    pids = [workers.submit(os.getpid).result(SECONDS) for _ in range(5)]
    assert len({*pids}) == 1


def raising():
    raise Unpicklable


class Unpicklable(Exception):
    def __reduce__(self):
        raise TypeError("never")


def test_an_error_that_cannot_be_pickled_is_described(workers):
    with pytest.raises(RuntimeError, match=r"Unpicklable\(\)"):
        workers.submit(raising).result(SECONDS)
    with pytest.raises(ValueError, match="invalid literal"):
        workers.submit(int, "x").result(SECONDS)


@ONLY_ON_LINUX
def test_processes_hold_no_keys_and_their_memory_is_private(workers, monkeypatch):
    monkeypatch.setenv("SOME_API_KEY", KEY)
    assert workers.submit(os.getenv, "SOME_API_KEY").result(SECONDS) is None
    pid = workers.submit(os.getpid).result(SECONDS)
    # The environment of a process that is not dumpable belongs to root.
    assert Path(f"/proc/{pid}/environ").stat().st_uid == 0
    if os.geteuid() == 0:
        assert KEY.encode() not in Path(f"/proc/{pid}/environ").read_bytes()


def test_busy_and_idle_processes_end_with_a_killed_parent(tmp_path):
    script = tmp_path / "killed.py"
    script.write_text(
        "import os, signal, time\n"
        "from costada.evaluators.remote.worker_processes import WorkerProcesses\n"
        "if __name__ != '__main__': raise SystemExit('the script is imported again')\n"
        "workers = WorkerProcesses(2)\n"
        "busy = workers.submit(time.sleep, 600)\n"
        "while not workers.busy: time.sleep(0.01)\n"
        "pids = [workers.busy[0].process.pid, workers.submit(os.getpid).result()]\n"
        "print(*pids, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    # A file of the working folder has the name of a module that workers import.
    (tmp_path / "socket.py").write_text("raise SystemExit('the wrong module')\n")
    ended = subprocess.run(
        [sys.executable, "-P", script], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    pids = [int(pid) for pid in ended.stdout.split()]
    assert len({*pids}) == 2
    within(SECONDS, lambda: not any(map(psutil.pid_exists, pids)))


def test_a_process_whose_parent_was_killed_before_it_began_ends_quietly():
    ours, theirs = socket.socketpair()
    ours.close()
    with theirs:
        ended = subprocess.run(
            [sys.executable, "-c", f"{BEGIN}serve('{theirs.fileno()}')"],
            pass_fds=[theirs.fileno()],
            capture_output=True,
            text=True,
            check=False,
        )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")


def test_a_program_that_ends_while_a_function_runs_waits_for_it(tmp_path):
    script = tmp_path / "ending.py"
    script.write_text(
        "import time\n"
        "from costada.evaluators.remote.worker_processes import WorkerProcesses\n"
        "workers = WorkerProcesses(1)\n"
        "workers.submit(time.sleep, 0.5).add_done_callback(lambda future: print(future.result()))\n"
    )
    ended = subprocess.run(
        [sys.executable, "-W", "error", script], capture_output=True, text=True, timeout=SECONDS
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "None\n", "")
