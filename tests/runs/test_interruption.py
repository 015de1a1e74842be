import os
import pty
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path
from subprocess import PIPE
from time import monotonic
from typing import Any

import pytest
from begun_commands import BegunCommand
from billing_server import BillingServer, Reply, Silence
from fakes import ScriptedModel, rewrite
from langgraph.runtime import RunControl
from toy_graph import calls_of
from waiting import within
from warm import PATIENCE_SECONDS

from costada.evaluators.problem import Problem
from costada.evaluators.sandbox.limits import Limits
from costada.runs.discovery import discover
from costada.runs.interruption import (
    SIGNALS,
    STOPPING,
    draining_on_signal,
    ending_on_signal,
    interrupting_evaluations,
)
from costada.store.rows import CallStatus
from costada.store.run_store import RunStore
from costada.values.evaluation import Evaluation

pytestmark = [pytest.mark.process, pytest.mark.usefixtures("terminal")]

COSTADA = Path(sys.executable).with_name("costada")
SLEEPING = "def value():\n    import time\n    time.sleep(60)\n"
WALL_SECONDS = 16.0
SLOW_EVALUATOR = """import time
from collections.abc import Iterator
from pathlib import Path


def evaluate(program_path):
    folder = Path(__file__).parent
    is_seed = Path(program_path).read_text() == (folder / "initial_program.py").read_text()
    if not is_seed and (folder / "slow").exists():
        time.sleep(60)
    return {"combined_score": 0.5}
"""


@pytest.fixture
def number():
    """A problem whose candidates return a number from a process of their own."""
    return Problem(
        name="number",
        task="Return a number.",
        initial_program="def value():\n    return 0.1\n",
        entry_point="value",
        score=lambda output: Evaluation(score=output, objective=output, is_valid=True),
        limits=Limits(wall_seconds=WALL_SECONDS),
    )


@pytest.mark.parametrize("number", SIGNALS)
def test_the_first_signal_asks_the_run_to_drain_and_says_so(number):
    control, heard = RunControl(), []
    with draining_on_signal(control, heard.append, ""):
        signal.raise_signal(number)
    assert control.drain_reason == number.name
    assert heard == [STOPPING]


def test_the_first_signal_ends_an_evaluation_and_later_ones_run_again(number):
    with draining_on_signal(RunControl(), lambda text: None, ""):
        signal.raise_signal(signal.SIGINT)
        with pytest.raises(InterruptedError):
            number.evaluate(number.initial_program)
    assert number.evaluate(number.initial_program).objective == 0.1


def test_an_evaluation_does_not_hold_up_the_end_and_is_made_good_by_resuming(
    near, tmp_path, invoke
):
    problem, stopped, whole = tmp_path / "slow", tmp_path / "stopped", tmp_path / "whole"
    shutil.copytree(near, problem)
    (problem / "evaluator.py").write_text(SLOW_EVALUATOR)
    (problem / "slow").touch()
    options = ("--max-iterations", "2")
    command = BegunCommand(tmp_path / "output", "run", problem, "--out", stopped, *options)
    command.wait_for("slow, costada, offline")
    command.send_signal(signal.SIGINT)
    assert command.exit_code(within=50) == 130  # an evaluation takes 60 seconds
    assert STOPPING in command.said
    (problem / "slow").unlink()
    assert invoke("resume", stopped).exit_code == 0
    assert invoke("run", problem, "--out", whole, *options).exit_code == 0
    assert (stopped / "steps.jsonl").read_bytes() == (whole / "steps.jsonl").read_bytes()


def test_the_second_signal_stops_at_once_even_during_a_call(near, tmp_path):
    prices = ("--price", "1,1")
    with BillingServer(default=Silence()) as server:
        model = ("--model", "openai:silent", "--base-url", server.url, *prices)
        output, out = tmp_path / "output", tmp_path / "run"
        command = BegunCommand(output, "run", near, "--out", out, *model)
        assert within(PATIENCE_SECONDS, lambda: server.requests)
        command.send_signal(signal.SIGINT)
        command.wait_for(STOPPING)
        command.send_signal(signal.SIGINT)
        assert command.exit_code(within=60) == 130
        assert command.said.splitlines()[-2:] == [
            "costada: stopped at once",
            f"Finished iterations are saved. Resume with: costada resume {out}",
        ]


def test_a_run_whose_terminal_is_closed_saves_and_says_so(near, tmp_path):
    """Twice, as kernel and shell both send the signal."""
    asked, may_answer = threading.Event(), threading.Event()

    def answer(body):
        asked.set()
        assert may_answer.wait(60)
        return Reply(rewrite(0.3))

    with BillingServer(default=answer) as server:
        prices = ("--base-url", server.url, "--price", "1,1")
        command = [COSTADA, "run", near, "--out", tmp_path / "run", "--model", "openai:x", *prices]
        with subprocess.Popen(command, stdout=PIPE, stderr=PIPE, text=True) as process:
            assert asked.wait(60)
            process.send_signal(signal.SIGHUP)
            assert process.stderr is not None
            assert STOPPING in process.stderr.readline()
            process.send_signal(signal.SIGHUP)
            may_answer.set()
            output, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (130, "")
    assert f"Resume with: costada resume {tmp_path / 'run'}" in output


@pytest.mark.parametrize("is_shown", [True, False], ids=["panel", "lines"])
def test_no_answer_in_flight_is_lost_with_the_terminal(near, tmp_path, is_shown):
    """Every write to the terminal fails from then on."""
    asked, may_answer, out = threading.Semaphore(0), threading.Event(), tmp_path / "run"

    def answer(body):
        asked.release()
        assert may_answer.wait(60)
        return Reply(rewrite(0.3))

    terminal, side = pty.openpty()
    with BillingServer(default=answer) as server, (tmp_path / "log").open("w") as log:
        model = ("--model", "openai:x", "--base-url", server.url, "--price", "1,1")
        options = ("--parallel", "3", "--no-gateway", "--out", out)
        command = ["setsid", "--ctty", COSTADA, "run", near, *model, *options]
        stdout = side if is_shown else log
        with subprocess.Popen(command, stdin=side, stdout=stdout, stderr=side) as process:
            os.close(side)
            for _ in range(3):
                assert asked.acquire(timeout=60)
            os.close(terminal)
            may_answer.set()
            assert process.wait(timeout=60) == 130
    with RunStore(out / "run.sqlite", is_read_only=True) as store:
        calls = calls_of(store)
    assert [call.status for call in calls] == [CallStatus.DONE] * 3
    assert len(server.bill) == 3


def test_what_a_command_saves_is_not_cut_short_by_the_second_signal_of_a_closed_terminal():
    saved = []

    def serve():
        try:
            signal.raise_signal(signal.SIGHUP)
        finally:
            signal.raise_signal(signal.SIGHUP)
            saved.append("all")

    with ending_on_signal(), pytest.raises(KeyboardInterrupt):
        serve()
    assert saved == ["all"]


def test_a_run_under_nohup_ignores_that_its_terminal_is_closed():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        control = RunControl()
        with draining_on_signal(control, print, ""):
            signal.raise_signal(signal.SIGHUP)
        assert not control.drain_requested
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize("is_kept", [True, False])
def test_ctrl_c_reaches_an_evaluation_of_discover_and_a_kept_run_is_resumed(
    number, tmp_path, is_kept
):
    began: list[float] = []

    def answer(prompt):
        if not began:
            began.append(monotonic())
            threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
            return f"```python\n{SLEEPING}```\n"
        return rewrite(0.3)

    out = tmp_path / "run" if is_kept else None
    options: dict[str, Any] = {"budget": 1.0, "max_iterations": 2, "out": out}
    prices = {"price": "1,2"}
    with pytest.raises(KeyboardInterrupt):
        discover(number, ScriptedModel(answer=answer), **options, **prices)
    assert monotonic() - began[0] < WALL_SECONDS
    if is_kept:
        found = discover(number, ScriptedModel(answer=answer), resume=True, **options, **prices)
        assert (found.iterations, found.best_objective) == (2, 0.3)


def test_the_callers_handlers_come_back_even_after_an_error():
    before = [signal.getsignal(number) for number in SIGNALS]
    with pytest.raises(KeyError), draining_on_signal(RunControl(), print, ""):
        raise KeyError
    with pytest.raises(KeyError), interrupting_evaluations():
        raise KeyError
    assert [signal.getsignal(number) for number in SIGNALS] == before


def test_outside_the_main_thread_no_signal_is_waited_for():
    before = signal.getsignal(signal.SIGINT)
    seen: list[object] = []

    def look():
        with interrupting_evaluations():
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert seen == [before]
