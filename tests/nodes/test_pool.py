"""The pool of a run: work is launched once, landed as it ends, cancelled and waited for."""

import asyncio
import selectors
import threading
from multiprocessing import get_context
from time import monotonic

import pytest
from toy_graph import discovery

from costada.evaluators.sandbox.concurrency import CancellationToken, current_token
from costada.nodes.pool import _WATCHING, Pool, pool_of
from costada.store.lease import LostLease
from costada.store.run_store import RunStore


class Gate:
    """Work that ends when it is told to."""

    def __init__(self, result="done"):
        self.may_end, self.times, self.result = threading.Event(), 0, result

    def __call__(self):
        self.times += 1
        assert self.may_end.wait(30)
        return self.result


def test_work_lands_in_the_order_in_which_it_ends():
    pool, works = Pool(), {number: Gate(number) for number in (1, 2, 3)}
    for number, work in works.items():
        pool.launch(number, work)
    waiting = [1, 2, 3]
    for number in (2, 3, 1):
        works[number].may_end.set()
        assert pool.wait(waiting) == number
        assert pool.take(number) == number
        waiting.remove(number)
    assert pool.num_in_flight == 0


def test_a_piece_of_work_is_launched_once():
    pool, work = Pool(), Gate()
    for _ in range(3):
        pool.launch("a", work)
    work.may_end.set()
    pool.wait(["a"])
    pool.launch("a", work)
    assert (pool.take("a"), work.times) == ("done", 1)


def test_what_the_work_raises_is_raised_where_it_lands():
    def fail():
        raise ValueError("refused")

    pool = Pool()
    pool.launch("a", fail)
    assert pool.wait(["a"]) == "a"
    with pytest.raises(ValueError, match="refused"):
        pool.take("a")


def test_cancelled_work_is_launched_again():
    def wait_for_cancellation():
        begun.append(current_token.get())
        with selectors.DefaultSelector() as selector:
            selector.register(current_token.get(), selectors.EVENT_READ)
            assert selector.select(30)
        raise InterruptedError("asked to stop")

    pool, begun = Pool(), list[CancellationToken]()
    for number in (1, 2):
        pool.launch("a", wait_for_cancellation)
        pool.cancel()
        pool.settle()
        assert len(begun) == number
    assert begun[0] is not begun[1]


def test_what_an_aborted_execution_left_as_failed_is_launched_again():
    def work():
        times.append(1)
        if len(times) == 1:
            raise LostLease("another process took the run over")
        return "done"

    pool, times = Pool(), list[int]()
    pool.launch("a", work)
    pool.settle()
    pool.launch("a", work)  # its failure has not landed
    assert len(times) == 1
    pool.cancel()
    pool.launch("a", work)
    assert pool.take(pool.wait(["a"])) == "done"


def test_a_cancelled_node_stops_waiting_and_its_work_continues():
    pool, work, token = Pool(), Gate(), CancellationToken()
    pool.launch("a", work)
    reset = current_token.set(token)
    try:
        token.cancel()
        began = monotonic()
        with pytest.raises(InterruptedError):
            pool.wait(["a"])
        assert monotonic() - began < 25  # the work may take 30 seconds
    finally:
        current_token.reset(reset)
    assert pool.num_in_flight == 1
    work.may_end.set()
    assert pool.wait(["a"]) == "a"


def test_work_that_another_thread_took_is_not_waited_for():
    pool, work = Pool(), Gate()
    work.may_end.set()
    pool.launch("a", work)
    pool.settle()
    pool.take("a")
    with pytest.raises(InterruptedError, match="another thread"):
        pool.take(pool.wait(["a"]))


def test_a_run_has_one_pool_for_all_who_have_its_file_open(tmp_path):
    with RunStore(tmp_path / "run.sqlite") as one, RunStore(tmp_path / "run.sqlite") as two:
        assert pool_of(one, "run") is pool_of(two, "run")
        assert pool_of(one, "other") is not pool_of(one, "run")
    with RunStore() as one, RunStore() as two:
        assert pool_of(one, "run") is not pool_of(two, "run")


def _run_twice(answers):
    """Put the iterations of two runs, one in the threads of calls and one in those of nodes."""
    answers.put(discovery(parallel=2, iterations=3).invoke({})["iterations"])
    answers.put(asyncio.run(discovery(iterations=3).ainvoke({}))["iterations"])


@pytest.mark.process
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_forked_process_has_threads_of_its_own():
    forking = get_context("fork")
    answers = forking.SimpleQueue()
    _run_twice(answers)
    child = forking.Process(target=_run_twice, args=(answers,))
    with _WATCHING:  # as the thread that says why a process does not end may hold it
        child.start()
    child.join(100)
    child.kill()
    assert child.exitcode == 0
    assert [answers.get() for _ in range(4)] == [3] * 4
