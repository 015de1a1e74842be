import shutil
import signal
import subprocess
import sys
from pathlib import Path
from subprocess import PIPE

import pytest
from langgraph.runtime import RunControl

from costada.runs.interruption import SIGNALS, STOPPING, draining_on_signal


@pytest.mark.parametrize("number", SIGNALS)
def test_the_first_signal_asks_the_run_to_drain_and_says_so(number: signal.Signals) -> None:
    control, heard = RunControl(), []
    with draining_on_signal(control, heard.append):
        signal.raise_signal(number)
    assert control.drain_reason == number.name
    assert heard == [STOPPING]


SLOW_EVALUATOR = """import time
from pathlib import Path


def evaluate(program_path):
    seed = Path(__file__).with_name("initial_program.py").read_text()
    if Path(program_path).read_text() != seed:
        time.sleep(60)
    return {"combined_score": 0.5}
"""


def test_the_second_signal_stops_at_once_even_during_an_evaluation(
    near: Path, tmp_path: Path
) -> None:
    problem = tmp_path / "slow"
    shutil.copytree(near, problem)
    (problem / "evaluator.py").write_text(SLOW_EVALUATOR)
    command = [Path(sys.executable).with_name("costada"), "run", problem, "--out", tmp_path / "run"]
    with subprocess.Popen(command, stdout=PIPE, stderr=PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.send_signal(signal.SIGINT)
        assert STOPPING in process.stderr.readline()
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=10) == 130
        assert "stopped at once; finished iterations are saved" in process.stderr.read()


def test_the_callers_handlers_come_back_even_after_an_error() -> None:
    before = [signal.getsignal(number) for number in SIGNALS]
    with pytest.raises(KeyError), draining_on_signal(RunControl(), print):
        raise KeyError
    assert [signal.getsignal(number) for number in SIGNALS] == before
