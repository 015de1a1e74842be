"""Several evaluations at once: as many as allowed, in their order, apart from each other."""

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from contextvars import copy_context
from dataclasses import replace
from time import monotonic, sleep

import pytest
from sandbox_runs import (
    AMPLE,
    NO_NAMESPACES,
    ONE,
    PATIENCE_SECONDS,
    becomes_true,
    command_of,
    descendants,
    has_namespaces,
    output_of,
    run,
    why_absent,
)
from waiting import check_in_time

from costada.evaluators.problem import Problem, confine
from costada.evaluators.sandbox.candidate_runs import run_candidate
from costada.evaluators.sandbox.concurrency import (
    CancellationToken,
    FairSemaphore,
    allow_evaluations,
    available_cores,
    cancel_evaluations,
    current_token,
)
from costada.evaluators.sandbox.launch import SERVER_FILE
from costada.evaluators.sandbox.layers import Layer
from costada.evaluators.sandbox.limits import Limits
from costada.evaluators.sandbox.slot import SHORT_SLOTS, SLOTS
from costada.values.candidate import Program
from costada.values.evaluation import Evaluation

pytestmark = pytest.mark.process

ALL_LAYERS = (Layer.PROCESS, Layer.LANDLOCK, Layer.BUBBLEWRAP, Layer.CONTAINER)
SLEEPING = "import time\ndef f():\n    time.sleep({})\n    return 1.0"


@pytest.fixture(autouse=True)
def _allowed_again():
    yield
    allow_evaluations()


@pytest.fixture(params=ALL_LAYERS)
def each_layer(request):
    if reason := why_absent(request.param):
        pytest.skip(reason)
    return request.param


def scored(output):
    return Evaluation(score=output, objective=output, is_valid=True)


def sleeping_problem(evaluations_at_once, layer=Layer.PROCESS, **given):
    return Problem(
        name="sleeping",
        task="Sleep.",
        initial_program=SLEEPING.format(0),
        entry_point="f",
        score=scored,
        sandbox=layer,
        preload=(),
        evaluations_at_once=evaluations_at_once,
        **given,
    )


def own_problem(evaluate, count):
    return Problem(
        name="own",
        task="Any.",
        initial_program="x = 1",
        evaluate=evaluate,
        evaluations_at_once=count,
    )


def sleeping(seconds):
    return Program.of(SLEEPING.format(seconds))


def judged_at_once(problem, programs):
    """Verdicts on programs that threads judge at the same time, and the seconds for all."""
    begun = monotonic()
    with ThreadPoolExecutor(len(programs)) as threads:
        evaluations = list(
            threads.map(
                problem.evaluate_program, map(Program.of, programs), ["key"] * len(programs)
            )
        )
    return evaluations, monotonic() - begun


INTERVAL = """
import time
def f():
    begun = time.monotonic()
    time.sleep({})
    return [begun, time.monotonic()]
"""


def test_four_slots_evaluate_four_candidates_at_the_same_time(each_layer):
    intervals = []

    def note(interval):
        intervals.append(interval)
        return scored(1.0)

    def check(seconds):
        intervals.clear()
        judged_at_once(problem, [INTERVAL.format(seconds)] * 4)
        begun, ended = zip(*intervals, strict=True)
        assert len(intervals) == 4
        assert max(begun) < min(ended)

    problem = replace(sleeping_problem(4, each_layer), score=note)
    judged_at_once(problem, [INTERVAL.format(0.3)] * 4)  # starts the processes
    check_in_time(check, 0.5, 2, 8)


def test_waiting_for_a_slot_takes_no_time_from_a_candidate():
    limit = 4
    problem = sleeping_problem(1, limits=Limits(wall_seconds=limit))
    evaluations, seconds = judged_at_once(problem, [SLEEPING.format(0.4)] * 12)
    assert seconds > limit
    assert [evaluation.error for evaluation in evaluations] == [None] * 12
    assert sum(evaluation.seconds for evaluation in evaluations) <= seconds


@pytest.mark.parametrize("count", [1, 3])
def test_no_more_threads_than_evaluations_at_once_are_inside_an_evaluate(count):
    inside, most, lock = [], [], threading.Lock()
    together = threading.Barrier(count)

    def evaluate(code):
        with lock:
            inside.append(code)
            most.append(len(inside))
        together.wait(PATIENCE_SECONDS)
        with lock:
            inside.remove(code)
        return Evaluation(score=1.0, objective=1.0, is_valid=True)

    judged_at_once(own_problem(evaluate, count), [f"x = {number}" for number in range(12)])
    assert max(most) == count


def test_with_one_evaluator_score_is_called_by_one_thread_at_a_time():
    inside, most = [], []

    def score(output):
        inside.append(1)
        most.append(len(inside))
        sleep(0.05)
        inside.pop()
        return scored(output)

    problem = replace(sleeping_problem(1), score=score)
    judged_at_once(problem, [SLEEPING.format(0)] * 4)
    assert most == [1] * 4


def num_asking(problem):
    """How many threads are inside of an evaluation or wait for one."""
    return problem.turns._num_held + len(problem.turns._waiting)


def test_programs_are_evaluated_in_the_order_in_which_they_came():
    order, is_open = [], threading.Event()

    def evaluate(code):
        assert is_open.wait(PATIENCE_SECONDS)
        order.append(code)
        return Evaluation(score=1.0, objective=1.0, is_valid=True)

    problem = own_problem(evaluate, 1)
    programs = [f"x = {number}" for number in range(8)]
    with ThreadPoolExecutor(8) as threads:
        for number, program in enumerate(programs):
            threads.submit(problem.evaluate_program, Program.of(program), "key")
            assert becomes_true(lambda count=number + 1: num_asking(problem) == count)
        is_open.set()
    assert order == programs


def test_as_many_evaluators_as_cores_unless_a_problem_says_otherwise():
    assert available_cores() == len(os.sched_getaffinity(0))
    assert sleeping_problem(None).turns.limit == available_cores()
    assert confine(sleeping_problem(None), evaluations_at_once=5).turns.limit == 5
    assert confine(sleeping_problem(3), timeout=2).turns.limit == 3
    own = own_problem(lambda code: None, None)
    assert confine(own, evaluations_at_once=2).turns.limit == 2


def test_the_number_of_evaluators_does_not_change_the_fingerprint():
    assert sleeping_problem(1).fingerprint == sleeping_problem(7).fingerprint


def under(token, function, *arguments):
    """Call a function in a copy of this context in which a token is set."""

    def call():
        current_token.set(token)
        return function(*arguments)

    return copy_context().run(call)


def test_a_token_cancels_the_evaluations_of_its_pool_running_and_waiting_and_no_others(layer):
    problem = sleeping_problem(2, layer)
    other = sleeping_problem(2, layer)
    SLOTS.allow(3)
    judged_at_once(problem, [SLEEPING.format(0.2)] * 2)
    token, other_token = CancellationToken(), CancellationToken()
    with ThreadPoolExecutor(6) as threads:
        futures = [
            threads.submit(under, token, problem.evaluate_program, sleeping(600), "key")
            for _ in range(5)
        ]
        kept = threads.submit(under, other_token, other.evaluate_program, sleeping(1.5), "key")
        assert becomes_true(lambda: problem.turns._num_held == 2)
        sleep(0.3)
        token.cancel()
        errors = [future.exception(PATIENCE_SECONDS) for future in futures]
        assert kept.result(PATIENCE_SECONDS).score == 1.0
    assert [type(error) for error in errors] == [InterruptedError] * 5
    assert {str(error) for error in errors} == {"the evaluation was interrupted"}
    assert problem.evaluate_program(sleeping(0), "key").score == 1.0


def test_cancelling_all_evaluations_reaches_those_under_tokens_of_their_own():
    problem = sleeping_problem(1)
    with ThreadPoolExecutor(3) as threads:
        futures = [
            threads.submit(
                under, CancellationToken(), problem.evaluate_program, sleeping(600), "key"
            )
            for _ in range(3)
        ]
        assert becomes_true(lambda: num_asking(problem) == 3)
        sleep(0.5)
        cancel_evaluations()
        errors = [future.exception(PATIENCE_SECONDS) for future in futures]
    assert [type(error) for error in errors] == [InterruptedError] * 3


def test_a_permit_given_to_a_thread_that_is_cancelled_is_passed_on():
    semaphore, token, entered = FairSemaphore(1), CancellationToken(), []

    def enter(name):
        with semaphore.permit():
            entered.append(name)

    with ThreadPoolExecutor(3) as threads:
        with semaphore.permit():
            first = threads.submit(under, token, enter, "cancelled")
            assert becomes_true(lambda: len(semaphore._waiting) == 1)
            second = threads.submit(enter, "kept")
            assert becomes_true(lambda: len(semaphore._waiting) == 2)
            token.cancel()
            assert type(first.exception(PATIENCE_SECONDS)) is InterruptedError
        second.result(PATIENCE_SECONDS)
    assert entered == ["kept"]
    assert semaphore._num_held == 0


def test_a_strategy_does_not_wait_behind_candidates():
    run_candidate(ONE, "f", AMPLE, layer=Layer.PROCESS, preload=(), slots=SHORT_SLOTS)
    running, token = sleeping_problem(SLOTS._turns.limit), CancellationToken()
    with ThreadPoolExecutor(running.evaluations_at_once) as threads:
        for _ in range(running.evaluations_at_once):
            threads.submit(under, token, running.evaluate_program, sleeping(600), "key")
        try:
            assert becomes_true(lambda: SLOTS._turns._num_held == SLOTS._turns.limit)
            strategy = run_candidate(
                ONE, "f", AMPLE, layer=Layer.PROCESS, preload=(), slots=SHORT_SLOTS
            )
            assert strategy.output == 1
            assert SLOTS._turns._num_held == SLOTS._turns.limit
        finally:
            token.cancel()


def test_a_fork_of_the_trusted_process_holds_none_of_its_permits(tmp_path):
    text = (
        "from costada.evaluators.sandbox.concurrency import FairSemaphore\n"
        "semaphore = FairSemaphore(1)\n"
        "with semaphore.permit():\n"
        "    number = os.fork()\n"
        "    if number == 0:\n"
        "        with semaphore.permit(): os._exit(7)\n"
        "    print(os.waitstatus_to_exitcode(os.waitpid(number, 0)[1]))"
    )
    assert output_of(text, tmp_path) == "7"


VICTIM = """
import os, time
def f(seconds):
    with open("mine.txt", "w") as file: file.write("a secret")
    end = time.monotonic() + seconds
    while time.monotonic() < end: time.sleep(0.05)
    return [open("mine.txt").read(), sorted(os.listdir("."))]
"""
"""Runs beside the attacker, and says at the end what its files are."""

ATTACKER = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
def attempt(action):
    try: return bool(action())
    except OSError: return False
def reads(path):
    with open(path, "rb", 0) as file: return file.read(1)
def f(numbers, scratches):
    done = []
    for number in numbers:
        if number == os.getpid(): continue
        for name in ("environ", "maps", "cwd/mine.txt", "root/etc/hostname"):
            if attempt(lambda: reads(f"/proc/{number}/{name}")): done.append(f"{name} of {number}")
        if libc.ptrace(16, number, 0, 0) == 0: done.append(f"traced {number}")
        for sign in (19, 15, 9):
            if attempt(lambda: os.kill(number, sign) is None): done.append(f"signalled {number}")
    for scratch in scratches:
        if scratch == os.getcwd(): continue
        if attempt(lambda: reads(f"{scratch}/mine.txt")): done.append(f"read in {scratch}")
        if attempt(lambda: open(f"{scratch}/planted", "w")): done.append(f"wrote in {scratch}")
        if attempt(lambda: os.listdir(scratch)): done.append(f"listed {scratch}")
    return done
"""
"""Tries to read, trace and signal processes, and to read and write folders, that it is told of."""


def working_folder(number):
    """Where a process works; nothing if it does not show that."""
    with suppress(OSError):
        return os.readlink(f"/proc/{number}/cwd")
    return ""


def is_victim(number):
    """Whether a process has the victim's file; those in containers are not below this one."""
    return os.path.exists(f"/proc/{number}/cwd/mine.txt")


def attack(victim, layer, limits):
    """What an attacker does that starts once a victim has begun."""
    if layer is Layer.CONTAINER:
        sleep(1)
    else:
        assert becomes_true(lambda: victim.done() or any(map(is_victim, descendants(os.getpid()))))
    slots = [one for one in descendants(os.getpid()) if str(SERVER_FILE) in command_of(one)]
    # The victim first: the attacker ends with its own server, if it can kill that.
    numbers = sorted(slots, key=is_victim, reverse=True)
    scratches = [place for place in map(working_folder, numbers) if place.endswith("/work")]
    return run(ATTACKER, layer, limits, numbers=numbers, scratches=scratches)


def attacked(layer, limits):
    """What an attacker could do to a victim that runs beside it, and the victim's result."""
    with ThreadPoolExecutor(2) as threads:
        list(threads.map(run, [SLEEPING.format(0.3)] * 2, [layer] * 2, [limits] * 2))
        for seconds in (2.5, 8, 30):
            victim = threads.submit(run, VICTIM, layer, limits, seconds=seconds)
            done = attack(victim, layer, limits)
            is_beside, found = not victim.done(), victim.result(2 * PATIENCE_SECONDS)
            if is_beside or found.error:
                return done, found
    raise AssertionError("the victim had ended before it was attacked")


@pytest.mark.parametrize("processes", [0, 4])
def test_concurrent_candidates_can_neither_see_nor_disturb_each_other(each_layer, processes):
    if each_layer is Layer.PROCESS and not has_namespaces():
        pytest.skip(NO_NAMESPACES)
    done, victim = attacked(each_layer, Limits(wall_seconds=60, processes=processes))
    assert (done.error, done.output) == (None, [])
    assert (victim.error, victim.output) == (None, ["a secret", ["candidate.py", "mine.txt"]])


def test_without_a_layer_the_same_attack_succeeds():
    done, victim = attacked(Layer.NONE, AMPLE)
    assert done.error or done.output
    assert victim.error
