"""Several calls of one candidate: one process as long as it answers in time."""

from time import monotonic

import numpy as np
import pytest
from sandbox_runs import AMPLE, PRELOAD
from waiting import check_in_time

from costada.evaluators.sandbox.candidate_runs import run_calls
from costada.evaluators.sandbox.layers import Layer
from costada.evaluators.sandbox.limits import Limits

pytestmark = pytest.mark.process

SLOW_AT_2 = "import time\nprint('loaded')\ndef f(x):\n    if x == 2: time.sleep(60)\n    return x"
TIMES = (0.3, 3, 12)
"""Limits of seconds, one after the other, until the machine does not stall within one."""


def run(source, calls, layer=Layer.PROCESS, limits=AMPLE):
    return run_calls(source, "f", [{"x": x} for x in calls], limits, layer, PRELOAD)


def late(seconds):
    return f"timeout: the call exceeded {seconds:g} s"


def too_slow(seconds):
    return f"timeout: the program exceeded {seconds:g} s"


def short_calls(seconds):
    return Limits(wall_seconds=120, call_seconds=seconds)


def outputs(results):
    return [result.output for result in results]


def test_all_calls_go_to_the_same_process(layer):
    source = "import os\nseen = []\ndef f(x):\n    seen.append(x)\n    return [*seen, os.getpid()]"
    results = run(source, [1, 2, 3], layer)
    number = results[0].output[-1]
    assert outputs(results) == [[1, number], [1, 2, number], [1, 2, 3, number]]


def test_no_call_has_no_result():
    assert run("def f(): return 1", []) == []


def test_an_error_in_one_call_does_not_stop_the_others(layer):
    results = run("def f(x): return 1 / x", [1, 0, 2], layer)
    assert outputs(results) == [1.0, None, 0.5]
    assert results[1].error.startswith("ZeroDivisionError")
    assert (results[0].error, results[2].error) == (None, None)


def test_a_call_that_hangs_fails_alone(layer):
    def check(seconds):
        results = run(SLOW_AT_2, [1, 2, 3, 2, 4], layer, short_calls(seconds))
        assert outputs(results) == [1, None, 3, None, 4]
        assert [r.error for r in results] == [None, late(seconds), None, late(seconds), None]
        assert [r.log for r in results] == ["loaded\n"] * 5
        assert seconds <= results[1].seconds < 60

    check_in_time(check, *TIMES)


def test_loading_does_not_count_as_a_call():
    def check(seconds):
        source = f"import time\ntime.sleep({seconds + 0.1})\ndef f(x): return x"
        assert outputs(run(source, [1, 2], limits=short_calls(seconds))) == [1, 2]

    check_in_time(check, *TIMES)


def test_a_program_that_does_not_load_has_one_error_for_all_calls(layer):
    results = run("x = 1\ny = 1 / 0\ndef f(x): return x", [1, 2, 3], layer)
    lines = ["ZeroDivisionError: division by zero", '  File "candidate.py", line 2, in <module>']
    assert [r.error.splitlines()[:2] for r in results] == [lines] * 3


def test_a_process_that_ends_leaves_the_later_calls_without_an_answer(layer):
    source = "import os\ndef f(x):\n    if x == 2: os._exit(5)\n    return x"
    reason = "the program ended its process (exit status 5) before it returned"
    results = run(source, [1, 2, 3], layer)
    assert [(r.output, r.error) for r in results] == [(1, None), (None, reason), (None, reason)]


def test_the_wall_limit_holds_for_all_calls_together():
    def check(seconds):
        source = f"import time\ndef f(x):\n    time.sleep({seconds / 5})\n    return x"
        results = run(source, range(8), limits=Limits(wall_seconds=seconds))
        assert outputs(results)[:2] == [0, 1]
        assert results[-1].error == too_slow(seconds)
        assert {r.error for r in results} == {None, results[-1].error}

    check_in_time(check, 0.5, 5, 20)


def test_the_wall_limit_holds_for_calls_that_hang_together():
    def check(seconds):
        limits = Limits(wall_seconds=2.4 * seconds, call_seconds=seconds)
        results = run("import time\ndef f(x): time.sleep(60)", range(8), limits=limits)
        assert len(results) == 8
        reasons = (late(seconds), too_slow(limits.wall_seconds))
        assert (results[0].error, results[-1].error) == reasons
        assert len([r for r in results if r.error == reasons[0]]) <= 2

    check_in_time(check, *TIMES)


def test_seconds_are_those_of_each_call():
    source = "import time\ntime.sleep(0.3)\ndef f(x): time.sleep(x)"
    began = monotonic()
    first, second, third = run(source, [0.1, 0.3, 0.0])
    took = monotonic() - began
    assert first.seconds >= 0.4
    assert second.seconds >= 0.25
    assert third.seconds <= took - first.seconds - second.seconds


LOADING = "import time\ntime.sleep(0.3)\n"


@pytest.mark.parametrize(
    ("source", "limits"),
    [
        (f"{LOADING}def f(x): raise ValueError", AMPLE),
        (f"{LOADING}raise ValueError", AMPLE),
        ("import time\ndef f(x): time.sleep(60)", Limits(wall_seconds=0.4)),
    ],
)
def test_seconds_of_all_calls_add_up_to_the_real_time(source, limits):
    began = monotonic()
    results = run(source, range(6), limits=limits)
    assert 0.3 <= sum(result.seconds for result in results) <= monotonic() - began


@pytest.mark.parametrize("is_restarted", [False, True])
def test_calls_of_arrays_arrive_as_they_were_after_a_restart(is_restarted):
    def check(seconds):
        results = run(
            "import time\ndef f(x):\n    if x[0] == 9: time.sleep(60)\n    return sum(x)",
            [[1, 2], [9, 0] if is_restarted else [8, 1], [3, 4]],
            limits=short_calls(seconds if is_restarted else None),
        )
        assert outputs(results) == [3, None if is_restarted else 9, 7]

    check_in_time(check, *TIMES)


FORGE = """
import os, sys, time

def answered(*outputs):
    frame = sys._getframe()
    while "result_fd" not in frame.f_locals:
        frame = frame.f_back
    write, codec = frame.f_globals["_send"], frame.f_globals["codec"]
    for output in outputs:
        write(frame.f_locals["result_fd"], codec.encode({"output": output}))
"""


def test_a_program_that_answers_and_sleeps_takes_the_time_until_its_end(layer):
    source = f"{FORGE}\ndef f(x):\n    answered(7.0)\n    time.sleep(0.6)\n    os._exit(0)"
    [result] = run(source, [1], layer)
    assert (result.output, result.error) == (7.0, None)
    assert 0.6 <= result.seconds < AMPLE.wall_seconds / 2


@pytest.mark.parametrize(("limits", "reason"), [(Limits, too_slow), (short_calls, late)])
def test_a_program_that_answers_in_time_and_ends_too_late_is_late(layer, limits, reason):
    source = f"{FORGE}\ndef f(x):\n    if x == 2: answered(7.0); time.sleep(60)\n    return x"

    def check(seconds):
        first, last = run(source, [1, 2], layer, limits(seconds))
        assert (first.output, last.output, last.error) == (1, None, reason(seconds))
        assert first.seconds + last.seconds >= seconds

    check_in_time(check, 0.5, 3, 12)


def test_a_program_that_passes_a_limit_after_its_answer_is_rejected(layer):
    source = f"{FORGE}\ndef f(x):\n    answered(7.0)\n    while True: print('x' * 10**6)"
    assert run(source, [1], layer)[0].error == "the program printed more than 64 MB"


def test_an_answer_before_its_question_is_refused(layer):
    source = f"{FORGE}\ndef f(x):\n    answered(1.0)\n    return 2.0"
    errors = {result.error for result in run(source, [1, 2, 3], layer)}
    assert errors == {"malformed answer: more than was asked for"}


def test_arguments_of_a_call_come_when_its_turn_does(layer):
    source = (
        "import os, sys\n"
        "def found():\n"
        "    frame, text = sys._getframe(), ''\n"
        "    while frame := frame.f_back: text += repr(frame.f_locals) + repr(frame.f_globals)\n"
        "    for fd in range(3, 20):\n"
        "        try: os.set_blocking(fd, False); text += repr(os.read(fd, 10**6))\n"
        "        except OSError: continue\n"
        "        finally:\n"
        "            try: os.set_blocking(fd, True)\n"
        "            except OSError: pass\n"
        "    return [n + 1 for n in (10100, 20200, 30300) if str(n + 1) in text]\n"
        "seen = [found()]\n"
        "def f(x):\n"
        "    seen.append(found())\n"
        "    return seen\n"
    )
    first, second, _ = run(source, [10101, 20202, 30303], layer)
    assert first.output == [[], [10101]]
    assert second.error is None


def test_arguments_of_any_size_arrive(layer):
    source = "def f(x): return [len(x), float(x.sum())]"
    results = run(source, [np.ones(10**6), np.ones(3), np.ones(2 * 10**6)], layer)
    assert outputs(results) == [[10**6, 1e6], [3, 3.0], [2 * 10**6, 2e6]]


def test_a_program_that_does_not_read_its_arguments_is_stopped(layer):
    source = "import os, time\ntime.sleep(60)\ndef f(x): return 1"
    [result] = run(source, [np.ones(10**6)], layer, Limits(wall_seconds=0.4))
    assert result.error == "timeout: the program exceeded 0.4 s"
