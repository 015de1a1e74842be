"""Each engine gives the verdict that this process gives, whatever a program does."""

from dataclasses import replace

import pytest

from costada.evaluators.problem import check_problem, confine
from costada.values.candidate import Program
from costada.values.evaluation import EVAL_TIME, SANDBOX, WORKER

pytestmark = pytest.mark.process

PROGRAMS = {
    "valid": "def square(number):\n    return number ** 2\n",
    "rejected": "def square(number):\n    return number / 0\n",
    "syntax": "def square(number:\n",
    "hanging": "def square(number):\n    while True:\n        pass\n",
    "exiting": "import os\ndef square(number):\n    os._exit(3)\n",
    "forking": "import os\ndef square(number):\n    os.fork()\n    return number ** 2\n",
    "killing": "import os\ndef square(number):\n    os.kill(os.getppid(), 9)\n    return 4\n",
    "writing": "def square(number):\n    open('/etc/costada', 'w')\n",
    "surrogate": "def square(number):\n    return '\ud800'\n",
}


def compared(evaluation):
    """What two evaluations of one program have in common."""
    metrics = {name: each for name, each in evaluation.metrics.items() if name != EVAL_TIME}
    artifacts = {
        name: text for name, text in evaluation.artifacts.items() if name not in (SANDBOX, WORKER)
    }
    times = {"seconds": 0.0, "worker_seconds": 0.0}
    return replace(evaluation, metrics=metrics, artifacts=artifacts, **times)


@pytest.mark.parametrize("name", PROGRAMS)
def test_an_engine_gives_the_verdict_of_this_process(name, remote, here):
    program, seconds = Program.of(PROGRAMS[name]), 2.0 if name == "hanging" else 20.0
    problems = [confine(problem, timeout=seconds) for problem in (remote, here)]
    judged, expected = (compared(problem.evaluate_program(program, "key")) for problem in problems)
    assert judged == expected


def test_a_verdict_names_the_worker_and_the_layer(remote, here):
    evaluation = remote.evaluate_program(Program.of(PROGRAMS["valid"]), "key")
    assert evaluation.score == 1.0
    assert evaluation.artifacts[SANDBOX] == here.sandbox
    host, _, process = evaluation.artifacts[WORKER].rpartition(":")
    assert host
    assert process.isdigit()


def test_the_initial_program_is_checked_by_the_engine(remote):
    evaluation = check_problem(remote)
    assert evaluation.score == 0.5
    assert WORKER in evaluation.artifacts


def test_limits_of_a_run_hold_in_workers(remote):
    slow = Program.of("import time\ndef square(number):\n    time.sleep(0.9)\n    return 4\n")
    short = confine(remote, timeout=1.0)
    assert short.evaluate_program(slow, "key").error == "timeout: the program exceeded 1 s"
    assert WORKER in short.evaluate_program(Program.of(PROGRAMS["valid"]), "key").artifacts
