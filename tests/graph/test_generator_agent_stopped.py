"""A generating model with tools whose evaluation is broken off: nothing is left behind or lost."""

import asyncio
import threading
from time import monotonic

import pytest
from agent_answers import submitting, trying
from billing_server import BillingServer
from fakes import SEED_PROGRAM, evaluate_value, toy_problem
from langgraph.checkpoint.memory import InMemorySaver

from costada.controller.constants import Constants
from costada.evaluators.sandbox.layers import Layer
from costada.evaluators.sandbox.limits import Limits
from costada.evaluators.sandbox.run import run_candidate
from costada.graph.build import create_discovery_graph
from costada.models.chat_models import chat_model
from costada.nodes.settings import Settings
from costada.values.prices import Price

THREAD = {"configurable": {"thread_id": "run"}}


class SlowOnce:
    """Judges at once, but the first trial would take a minute."""

    def __init__(self):
        self.begun = threading.Event()

    def __call__(self, code):
        if code != SEED_PROGRAM and not self.begun.is_set():
            self.begun.set()
            endless = "def f():\n    while True: pass"
            run_candidate(endless, "f", Limits(wall_seconds=60), layer=Layer.PROCESS)
        return evaluate_value(code)


def test_a_cancelled_trial_ends_at_once_and_its_answer_is_not_paid_again(monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    evaluate, settings = (
        SlowOnce(),
        Settings(price=Price(1, 2), generator="agent", constants=Constants(max_iterations=1)),
    )
    with BillingServer() as server:
        server.script(trying(0.6), submitting("1.1.1"))
        graph = create_discovery_graph(
            toy_problem(evaluate=evaluate),
            chat_model("openai:stand-in", base_url=server.url, retry_wait=0),
            budget=1.0,
            settings=settings,
            checkpointer=InMemorySaver(),
        )

        async def cancelled():
            task = asyncio.create_task(graph.ainvoke({}, THREAD))
            await asyncio.to_thread(evaluate.begun.wait)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

        started = monotonic()
        asyncio.run(cancelled())
        assert monotonic() - started < 30
        result = graph.invoke(None, THREAD)
        assert (result["best_score"], len(server.requests)) == (0.6, 2)
