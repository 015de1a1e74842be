import signal
import subprocess
import sys
from contextlib import suppress
from threading import Event

import pytest

from costada.experiments.sweep.loop import (
    ENTRY,
    STOPPING,
    RunProcess,
    StopSignals,
    SweepLoop,
    last_error,
    options_of,
    start,
)
from costada.experiments.sweep.progress import SweepProgress, exit_code
from costada.experiments.sweep.sweep import Status, SweepGrid, SweepRun, last_step, sweep_runs
from costada.runs.folder import RunFolder
from costada.runs.interruption import ExitCode

LOOK_SECONDS = 0.05
TRACEBACK = """costada: sandbox: weaker than asked for
Traceback (most recent call last):
  File "runner.py", line 1, in <module>
OSError: no space left
During task with name 'evaluate'
"""


def wait_for(process: RunProcess) -> tuple[Status, str]:
    while (ended := process.end()) is None:
        Event().wait(LOOK_SECONDS)
    return ended


def test_a_failed_process_keeps_what_it_said(tmp_path):
    process = RunProcess(["resume", str(tmp_path / "run")], tmp_path / "run.log")
    status, error = wait_for(process)
    assert status is Status.FAILED
    assert error == f"{tmp_path / 'run'}: holds no run (there is no settings.json in it)"
    assert error in (tmp_path / "run.log").read_text()


@pytest.mark.parametrize("generator", ["model", "agent"])
def test_a_run_understands_what_its_sweep_tells_it(generator, near, tmp_path, invoke):
    grid = SweepGrid((str(near),), ("uniform",), (7,), ("0.5",))
    (run,) = sweep_runs(grid, {"generator": generator}, tmp_path)
    result = invoke("run", *options_of(run), run.config.problem, "--dry-run")
    assert result.exit_code == ExitCode.FINISHED, result.output


def test_a_process_stopped_before_it_begins_is_no_failure(near, tmp_path):
    process = RunProcess(["run", str(near), f"--out={tmp_path / 'run'}"], tmp_path / "run.log")
    process.drain()
    assert wait_for(process) == (Status.INTERRUPTED, "")
    assert not (tmp_path / "run.log").exists()


def test_a_second_ctrl_c_ends_runs_at_once(near, tmp_path):
    runs = sweep_runs(SweepGrid((str(near),), ("uniform",), (0, 1), ()), {}, tmp_path)
    heard: list[str] = []

    def begin(run: SweepRun) -> RunProcess:
        process = start(run)
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGINT)
        return process

    with StopSignals(heard.append) as wish:
        ended = SweepLoop(runs, 2, begin, SweepProgress(), wish).carry_out()
    assert heard == [STOPPING]
    assert [run.status for run in ended] == [Status.INTERRUPTED, Status.WAITING]
    assert exit_code(ended) is ExitCode.INTERRUPTED
    assert list((tmp_path / "near" / "uniform").iterdir()) == []


def test_a_run_drains_when_its_sweep_dies(near, tmp_path):
    folder = RunFolder(tmp_path / "run")
    command = [sys.executable, "-m", ENTRY, "run", near, "--out", folder.path, "--quiet"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        while last_step(folder.steps) is None:
            with suppress(subprocess.TimeoutExpired):
                process.wait(LOOK_SECONDS)
            assert process.returncode is None
        process.stdin.close()
        assert process.wait(timeout=30) == 130
    assert folder.report.is_file()


@pytest.mark.parametrize(
    ("log", "code", "error"),
    [
        ("costada: warned\ncostada: no money\nGo on with: x\n", 1, "no money"),
        (TRACEBACK.split("\n", 1)[1], 1, "OSError: no space left"),
        ("strange\n\n", 1, "strange"),
        ("", 3, "ended with exit code 3"),
        ("costada: warned\n", -signal.SIGKILL, "killed by SIGKILL"),
    ],
)
def test_the_line_that_says_why(log, code, error):
    assert last_error(log, code) == error
