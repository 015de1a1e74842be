"""A cancellation ends evaluations at once, and nothing runs on after it."""

import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from select import select
from time import monotonic

import pytest
from sandbox_runs import (
    AMPLE,
    ONE,
    PATIENCE_SECONDS,
    becomes_true,
    has_candidate,
    has_ended_inside,
    output_of,
    run,
    start_script,
)

from costada.evaluators.sandbox.concurrency import (
    CancellationToken,
    allow_evaluations,
    cancel_evaluations,
)
from costada.evaluators.sandbox.layers import Layer
from costada.evaluators.sandbox.slot import SHORT_SLOTS, SLOTS

pytestmark = pytest.mark.process

FOREVER = "import time\ndef f():\n    while True: time.sleep(1)"
SECONDS = AMPLE.wall_seconds / 2
"""What is cancelled has ended long before its limit."""


@pytest.fixture(autouse=True)
def _allowed_again():
    yield
    allow_evaluations()


def noted(path):
    """A candidate that notes its process and runs on (in the process layer)."""
    return (
        "import os, time\ndef f():\n"
        f"    open({str(path)!r} + '.new', 'w').write(str(os.getpid()))\n"
        f"    os.rename({str(path)!r} + '.new', {str(path)!r})\n"
        "    while True: time.sleep(1)"
    )


@contextmanager
def alarm(condition, handler):
    """What is under `with` is interrupted by a signal once a condition holds, and must end soon."""

    def ring():
        becomes_true(condition)
        signal.pthread_kill(threading.main_thread().ident, signal.SIGALRM)

    former = signal.signal(signal.SIGALRM, handler)
    thread = threading.Thread(target=ring)
    started = monotonic()
    thread.start()
    try:
        yield
        assert monotonic() - started < SECONDS
    finally:
        thread.join()
        signal.signal(signal.SIGALRM, former)


def test_evaluations_stop_when_another_thread_cancels(layer):
    run("def f(): pass", layer)
    asked = []
    threading.Timer(0.3, lambda: (asked.append(monotonic()), cancel_evaluations())).start()
    with pytest.raises(InterruptedError, match="the evaluation was interrupted"):
        run(FOREVER, layer)
    assert monotonic() - asked[0] < SECONDS


def test_all_running_evaluations_stop(tmp_path):
    notes = [tmp_path / "a", tmp_path / "b", tmp_path / "c"]
    with ThreadPoolExecutor(3) as pool:
        futures = [pool.submit(run, noted(note), Layer.PROCESS) for note in notes]
        assert becomes_true(lambda: sum(note.exists() for note in notes) >= 2)
        started = monotonic()
        cancel_evaluations()
        errors = [future.exception(PATIENCE_SECONDS) for future in futures]
    assert [type(error) for error in errors] == [InterruptedError] * 3
    assert monotonic() - started < SECONDS
    assert all(has_ended_inside(int(note.read_text())) for note in notes if note.exists())


def test_evaluations_run_again_only_when_they_are_allowed_to():
    cancel_evaluations()
    cancel_evaluations()
    for _ in range(2):
        with pytest.raises(InterruptedError):
            run("import time\ndef f(): time.sleep(30)", Layer.PROCESS)
    allow_evaluations()
    assert run(ONE, Layer.PROCESS).output == 1


def test_a_signal_handler_may_cancel(layer):
    run("def f(): pass", layer)
    is_running = partial(has_candidate, os.getpid())
    with alarm(is_running, lambda *_: cancel_evaluations()), pytest.raises(InterruptedError):
        run(FOREVER, layer)


def test_an_exception_of_a_signal_handler_passes_on_and_leaves_nothing(tmp_path):
    def refuse(*_):
        raise KeyboardInterrupt

    SLOTS.close()  # what waits in another slot may have the same number in its namespace
    SHORT_SLOTS.close()
    run("def f(): pass", Layer.PROCESS)
    note = tmp_path / "pid"
    with alarm(note.exists, refuse), pytest.raises(KeyboardInterrupt):
        run(noted(note), Layer.PROCESS)
    assert has_ended_inside(int(note.read_text()))


@pytest.mark.parametrize("moment", ["starting", "running"])
def test_ctrl_c_ends_a_program_at_once_and_leaves_nothing(layer, tmp_path, moment):
    warm = "run('def f(): pass', layer); " if moment == "running" else ""
    opening = f"layer = Layer({layer.value!r})\n{warm}print('go', flush=True)\n"
    process = start_script(f"{opening}run({FOREVER!r}, layer)", tmp_path)
    assert process.stdout.readline() == "go\n"
    becomes_true(lambda: False, 0.3 if moment == "running" else 0.15)
    started = monotonic()
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=PATIENCE_SECONDS)
    assert monotonic() - started < SECONDS
    assert process.returncode == -signal.SIGINT
    assert errors.rstrip().endswith("KeyboardInterrupt")
    assert becomes_true(lambda: not list(tmp_path.glob("costada-*")))


def test_a_fork_of_the_trusted_process_has_a_token_of_its_own(tmp_path):
    text = (
        "from costada.evaluators.sandbox.concurrency import cancel_evaluations\n"
        "number = os.fork()\n"
        "if number == 0:\n"
        "    cancel_evaluations()\n"
        "    os._exit(0)\n"
        "os.waitpid(number, 0)\n"
        "source = 'import time\\ndef f(): time.sleep(0.2); return 1'\n"
        "print(run(source, Layer.PROCESS).output)"
    )
    assert output_of(text, tmp_path) == "1"


def test_a_token_that_is_cancelled_often_never_blocks_whoever_cancels_it():
    """A signal handler or an event loop that waited for a full pipe would wait forever."""
    token = CancellationToken()
    often = threading.Thread(target=lambda: [token.cancel() for _ in range(70_000)], daemon=True)
    often.start()
    often.join(60)
    assert not often.is_alive()
    assert select([token], [], [], 0)[0] == [token]
    token.reset()
    assert select([token], [], [], 0)[0] == []
