"""SIGTERM to every process of a job: it reaches the candidate and, a moment later, this process."""

import os
import signal
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from time import monotonic, sleep

import pytest
from sandbox_runs import (
    PATIENCE_SECONDS,
    becomes_true,
    descendants,
    has_candidate,
    run,
    why_absent,
)

from costada.evaluators.sandbox.concurrency import allow_evaluations, cancel_evaluations
from costada.evaluators.sandbox.execution import SIGNAL_SECONDS
from costada.evaluators.sandbox.layers import Layer

pytestmark = pytest.mark.process

SLEEPING = "import time\ndef f():\n    time.sleep(50)\n    return 1.0"
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
    def is_interrupted():
        """False if the machine stalled, so that the second signal came too late."""
        with ThreadPoolExecutor(1) as threads:
            found = threads.submit(run, SLEEPING, a_layer)
            becomes_true(lambda: has_candidate(os.getpid()), 3)
            sleep(0.5)
            begun = monotonic()
            terminate_all_below(os.getpid())
            sleep(0.05)
            cancel_evaluations()
            took, error = monotonic() - begun, found.exception(PATIENCE_SECONDS)
        allow_evaluations()
        assert took > SIGNAL_SECONDS / 2 or isinstance(error, InterruptedError)
        return isinstance(error, InterruptedError)

    assert becomes_true(is_interrupted)


def test_a_candidate_that_terminates_itself_has_failed(a_layer):
    source = "import os\ndef f():\n    os.kill(os.getpid(), 15)"
    assert run(source, a_layer).error
