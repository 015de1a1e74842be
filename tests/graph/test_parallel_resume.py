"""Several steps in flight: no call is lost from the ledger where a run stops and continues."""

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from decimal import Decimal
from functools import partial
from itertools import count
from threading import Event, Semaphore

import pytest
from billing_server import Reply
from fakes import (
    IDEAS,
    SEED_PROGRAM,
    ScriptedModel,
    evaluate_value,
    hashed_answer,
    is_guide_prompt,
    rewrite,
    toy_problem,
)
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.types import Command
from needed_plugins import needs_plugin, strategy_reply
from toy_graph import (
    THREAD,
    billed,
    calls_of,
    client,
    discovery,
    events_of,
    rows_of,
    scripted,
    spent_by,
)

from costada.models.event_loop import run
from costada.nodes.calls.health import sleep_interruptibly
from costada.nodes.state import Flight, restore
from costada.store.checkpoints import RunSaver
from costada.store.ledger import Landing
from costada.store.rows import CallStatus
from costada.store.run_copy import copy_file
from costada.store.run_store import RunStore

PATIENCE = 60
"""Seconds after which a test that waits for calls of a run has failed."""

HARD_BUDGET = 0.028
"""Pays for the longest answers to eight calls, and to one more."""


class ExpensiveAfterAGuide(ScriptedModel):
    """Steps find nothing; once a guide is asked, which takes its time, they cost $0.04 more."""

    def _usage(self):
        is_dear = any(map(is_guide_prompt, self.prompts)) and len(self.prompts) < 20
        usage = super()._usage()
        usage["output_tokens"] += 20_000 * is_dear
        usage["total_tokens"] += 20_000 * is_dear
        return usage


def guided_late(store, budget):
    """Answers whose guide comes when the other steps have spent the budget."""

    def answer(prompt):
        if not is_guide_prompt(prompt):
            return rewrite(0.2)
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end and not any(row["spent"] >= budget for row in rows_of(store)):
            time.sleep(0.01)
        return IDEAS

    return answer


def check_ledger(store, found):
    assert spent_by(store) == sum(call.cost for call in calls_of(store))
    assert found["spent"] == pytest.approx(float(spent_by(store)))
    assert [row["iteration"] for row in rows_of(store)] == list(range(1, len(rows_of(store)) + 1))


def test_a_guide_that_lands_last_stays_on_the_ledger_when_the_budget_is_raised():
    store, budget = RunStore(), 0.06
    model = ExpensiveAfterAGuide(answer=guided_late(store, budget))
    options = {"saver": InMemorySaver(), "store": store, "on_exhausted": "interrupt"}
    graph = discovery(model, budget=budget, parallel=4, **options)
    found = graph.invoke({}, THREAD)
    (guide,) = (call.ticket for call in calls_of(store) if call.role == "guide")
    assert guide not in [row["ticket"] for row in rows_of(store)]
    check_ledger(store, graph.get_state(THREAD).values)
    for _ in range(40):  # the other steps in flight may land first, and use up the new budget
        found = graph.invoke(Command(resume={"budget": found["spent"] + 0.01}), THREAD)
        check_ledger(store, graph.get_state(THREAD).values)
        if guide in [row["ticket"] for row in rows_of(store)]:
            break
    assert guide in [row["ticket"] for row in rows_of(store)]


class Held:
    """Bills each request for all that it may cost, and holds the first answers back, so many."""

    def __init__(self, number):
        self._numbers, self._number = count(1), number
        self.all_are_asked, self.is_released = Event(), Event()

    def __call__(self, body):
        number = next(self._numbers)
        if number == self._number:
            self.all_are_asked.set()
        if number <= self._number:
            self.is_released.wait(PATIENCE)
        return Reply(
            hashed_answer(body["messages"][-1]["content"]),
            input_tokens=sum(len(message["content"].encode()) for message in body["messages"]),
            output_tokens=body["max_completion_tokens"],
        )


def forget_launches(saver, number):
    """Take away the checkpoints with more than so many tickets, as a kill before them leaves it."""
    newest = next(
        saved.config["configurable"]["checkpoint_id"]
        for saved in saver.list(THREAD)
        if len(restore(saved.checkpoint["channel_values"]).get("flight", Flight()).tickets)
        == number
    )
    for table in ("checkpoints", "writes"):
        saver.conn.execute(f"DELETE FROM {table} WHERE checkpoint_id > ?", (newest,))
    saver.conn.commit()


@pytest.mark.parametrize(("parallel", "num_saved"), [(1, None), (1, 5), (2, 5), (8, None), (8, 5)])
def test_a_hard_budget_holds_where_a_run_was_killed_with_many_calls_in_flight(
    server, tmp_path, parallel, num_saved
):
    """A copy of the run file holds what a process that was killed at that moment leaves.

    With `num_saved` it was killed before the checkpoints of further launches, whose requests are
    in the file and which a lower `parallel` does not repeat at once: nothing may wait for them.
    """
    server.default = held = Held(8)
    killed, copy = tmp_path / "killed.sqlite", tmp_path / "copy.sqlite"
    options = {"budget": HARD_BUDGET, "budget_policy": "hard", "iterations": 40}
    with (
        ThreadPoolExecutor() as threads,
        SqliteSaver.from_conn_string(str(killed)) as saver,
        RunStore(killed) as store,
    ):
        model = client(server, max_tokens=600)
        graph = discovery(model, parallel=8, store=store, saver=saver, **options)
        first = threads.submit(partial(graph.invoke, durability="sync"), {}, THREAD)
        assert held.all_are_asked.wait(PATIENCE)
        copy_file(killed, copy)
        with SqliteSaver.from_conn_string(str(copy)) as saved, RunStore(copy) as copied:
            if num_saved:
                forget_launches(saved, num_saved)
            graph = discovery(model, parallel=parallel, store=copied, saver=saved, **options)
            found = graph.invoke(None, THREAD)
            assert found["stop_reason"] == "budget"
            assert billed(server) < spent_by(copied) <= Decimal(str(HARD_BUDGET))
        held.is_released.set()
        first.result(PATIENCE)


def evolving(prompt):
    if "class Strategy" in prompt:
        return strategy_reply(0)
    return rewrite(0.05)


@pytest.mark.process
@needs_plugin("evox", "offline")
@pytest.mark.parametrize("changes", [{"budget": 0.04}, {"approve_guides": True}])
def test_a_step_of_evox_ends_with_its_strategy_whatever_is_in_flight(changes):
    store, saver = RunStore(), InMemorySaver()
    options = {"budget": 1.0, "iterations": 20, "method": "evox", **changes}
    graph = discovery(scripted(evolving), parallel=4, store=store, saver=saver, **options)
    found = graph.invoke({}, THREAD)
    while "__interrupt__" in found:
        found = graph.invoke(Command(resume=True), THREAD)
    assert "strategy_adopted" in events_of(store)
    check_ledger(store, found)


def test_a_run_that_failed_too_often_counts_failures_anew_when_it_continues():
    store, saver = RunStore(), InMemorySaver()
    options = {"store": store, "saver": saver, "attempts": 1, "max_failures": 4, "parallel": 8}

    def fail(prompt):
        time.sleep(0.002)
        return "no program"

    graph = discovery(scripted(fail), **options)
    assert graph.invoke({}, THREAD)["stop_reason"] == "failures"
    assert graph.get_state(THREAD).values["failures"] == 0


def test_a_cancelled_run_ends_its_evaluations_and_repeats_them_but_no_call():
    store, begun, ended = RunStore(), Semaphore(0), Semaphore(0)
    is_resumed = Event()

    def evaluate(code):
        if not is_resumed.is_set():
            begun.release()
            try:
                run(sleep_interruptibly(PATIENCE))
            finally:
                ended.release()
        return evaluate_value(code)

    seed = evaluate_value(SEED_PROGRAM)
    problem = toy_problem(evaluate=evaluate, evaluations_at_once=4, seed_evaluation=seed)
    options = {"store": store, "saver": InMemorySaver(), "parallel": 4, "iterations": 12}
    graph = discovery(scripted(prompted), problem=problem, **options)

    async def cancel():
        task = asyncio.ensure_future(graph.ainvoke({}, THREAD))
        await asyncio.to_thread(lambda: [begun.acquire(timeout=PATIENCE) for _ in range(4)])
        task.cancel()
        await asyncio.wait([task])

    began = time.monotonic()
    asyncio.run(cancel())
    assert all(ended.acquire(timeout=PATIENCE) for _ in range(4))
    assert time.monotonic() - began < PATIENCE / 2
    is_resumed.set()
    assert graph.invoke(None, THREAD)["iterations"] == 12
    keys = [(call.ticket, call.role, call.attempt) for call in calls_of(store)]
    assert len(keys) == len(set(keys))


def prompted(prompt):
    return IDEAS if is_guide_prompt(prompt) else rewrite(len(prompt) % 997 / 1000)


def is_retry(calls):
    return calls[-1].role == "retry" and calls[-1].ticket > 4


def is_first_after_a_guide(calls):
    return [call.role for call in calls[-2:]] == ["guide", "generation"]


def is_about_a_strategy(calls):
    return calls[-1].role == "guide" and calls[-1].ticket > 1


def failing_or_evolving(prompt):
    if is_guide_prompt(prompt) or "class Strategy" in prompt:
        return IDEAS if is_guide_prompt(prompt) else evolving(prompt)
    return hashed_answer(prompt) if len(prompt) % 3 else "no program"


@pytest.mark.process
@pytest.mark.parametrize(
    ("method", "is_meant"),
    [
        ("costada", is_retry),
        ("costada", is_first_after_a_guide),
        pytest.param("evox", is_retry, marks=needs_plugin("evox", "offline")),
        pytest.param("evox", is_about_a_strategy, marks=needs_plugin("evox", "offline")),
    ],
)
def test_a_killed_request_is_sent_as_it_was_though_later_tickets_land_first(
    tmp_path, method, is_meant
):
    killed, copy = tmp_path / "killed.sqlite", tmp_path / "copy.sqlite"
    options = {"method": method, "iterations": 14, "budget": 9.0}

    def answer(prompt):
        if not copy.exists() and is_meant(calls_of(store)):
            copy_file(killed, copy)
            raise KeyboardInterrupt
        return failing_or_evolving(prompt)

    with RunStore(killed) as store, closing(RunSaver(killed)) as saver:
        graph = discovery(scripted(answer), store=store, saver=saver, **options)
        with pytest.raises(KeyboardInterrupt):
            graph.invoke({}, THREAD, durability="sync")
    with RunStore(copy) as store, closing(RunSaver(copy)) as saver:
        lost = calls_of(store)[-1]
        store.ledger.put_landing(
            store.run_ids()[-1], 1, Landing(lost.ticket + 1, is_waiting_for_funds=False)
        )
        graph = discovery(scripted(prompted), parallel=4, store=store, saver=saver, **options)
        graph.invoke(None, THREAD)
        again = [call for call in calls_of(store) if _key(call) == _key(lost)]
        assert [call.status for call in again] == [CallStatus.LOST, CallStatus.DONE]
        assert again[1].prompt == lost.prompt


def _key(call):
    return call.ticket, call.role, call.attempt
