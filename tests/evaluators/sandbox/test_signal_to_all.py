"""SIGTERM to every process of a job: it reaches the candidate and, a moment later, this process."""

import os
import signal
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from time import monotonic, sleep

import pytest
from sandbox_runs import descendants, run, why_absent

from costada.evaluators.sandbox.cancellation import allow_evaluations, cancel_evaluations
from costada.evaluators.sandbox.layers import Layer

SLEEPING = "import time\ndef f():\n    time.sleep(20)\n    return 1.0"
LAYERS = (Layer.NONE, Layer.PROCESS, Layer.LANDLOCK, Layer.BUBBLEWRAP)


@pytest.fixture(params=LAYERS)
def a_layer(request):
    if reason := why_absent(request.param):
        pytest.skip(reason)
    yield request.param
    allow_evaluations()


def terminate_all_below(pid: int) -> None:
    for number in descendants(pid):
        with suppress(ProcessLookupError):
            os.kill(number, signal.SIGTERM)


def test_the_evaluation_is_interrupted_and_the_candidate_has_not_failed(a_layer):
    begun = monotonic()
    with ThreadPoolExecutor(1) as threads:
        found = threads.submit(run, SLEEPING, a_layer)
        sleep(3)
        terminate_all_below(os.getpid())
        sleep(0.05)
        cancel_evaluations()
        with pytest.raises(InterruptedError):
            found.result(15)
    assert monotonic() - begun < 15


def test_a_candidate_that_terminates_itself_has_failed(a_layer):
    source = "import os\ndef f():\n    os.kill(os.getpid(), 15)"
    assert run(source, a_layer).error
