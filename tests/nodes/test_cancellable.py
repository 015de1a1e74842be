"""A node of an async run can be cancelled, and its evaluation ends with it."""

import asyncio
import threading
from time import monotonic

import pytest

from costada.evaluators.sandbox.layers import Layer
from costada.evaluators.sandbox.limits import Limits
from costada.evaluators.sandbox.run import run_candidate
from costada.graph.node_wrappers import CancellableNode

ENDLESS = "def f():\n    while True: pass"


class SlowNode:
    """Evaluates a program that does not end, and notes how that was stopped."""

    def __init__(self):
        self.begun = threading.Event()
        self.is_interrupted = False

    def __call__(self, state):
        self.begun.set()
        try:
            run_candidate(ENDLESS, "f", Limits(wall_seconds=60), layer=Layer.PROCESS)
        except InterruptedError:
            self.is_interrupted = True
            raise
        return state


def test_a_cancelled_task_takes_its_evaluation_along():
    node = SlowNode()

    async def cancel_while_it_evaluates():
        task = asyncio.create_task(CancellableNode(node, "evaluate").ainvoke({}))
        await asyncio.to_thread(node.begun.wait)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    started = monotonic()
    asyncio.run(cancel_while_it_evaluates())
    assert node.is_interrupted
    assert monotonic() - started < 30


def test_a_node_that_is_not_cancelled_gives_its_answer_in_both_worlds():
    node = CancellableNode(lambda state: {**state, "iteration": 2}, "evaluate")
    assert node.invoke({"iteration": 1}) == {"iteration": 2}
    assert asyncio.run(node.ainvoke({"iteration": 1})) == {"iteration": 2}
