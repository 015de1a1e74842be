"""K steps in flight: they land as they finish, and the ledger stays exact."""

import asyncio
import re
import time
from collections import Counter
from dataclasses import replace
from decimal import Decimal
from itertools import count
from operator import itemgetter
from threading import Barrier, Event, Lock
from typing import Any

import pytest
from agent_answers import agent_answer
from billing_server import Body, Reply, Silence
from fakes import (
    IDEAS,
    ScriptedModel,
    evaluate_value,
    hashed_answer,
    is_guide_prompt,
    rewrite,
    toy_problem,
)
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.errors import GraphDrained
from langgraph.runtime import RunControl
from needed_plugins import needs_plugin, of_every_method
from toy_graph import (
    CALL_COST,
    THREAD,
    billed,
    calls_of,
    client,
    discovery,
    resumed,
    rows_of,
    scripted,
    spent_by,
    trace,
)

from costada.models.providers import RetryPolicy
from costada.store.rows import CallStatus
from costada.store.run_store import RunStore

PATIENCE = 60
"""Seconds after which a test that waits for calls of a run has failed."""


class Timed:
    """An answer by the prompt that takes its time; calls count from 1 in the order they begin."""

    def __init__(self, seconds=lambda number: 0.02):
        self._seconds, self._numbers, self._lock = seconds, count(1), Lock()
        self.begun: list[int] = []
        self.ended: list[int] = []
        self.most_in_flight = 0

    def __call__(self, prompt: str) -> str:
        with self._lock:
            number = next(self._numbers)
            self.begun.append(number)
            self.most_in_flight = max(self.most_in_flight, len(self.begun) - len(self.ended))
        self.wait(number)
        with self._lock:
            self.ended.append(number)
        return hashed_answer(prompt)

    def wait(self, number: int) -> None:
        time.sleep(self._seconds(number))


class OneStraggler(Timed):
    """Its third call ends only after twenty others that began later."""

    def __init__(self):
        super().__init__()
        self._others_ended = Event()
        self.outlasted_the_others = False

    def wait(self, number):
        if number == 3:
            self.outlasted_the_others = self._others_ended.wait(PATIENCE)
        elif len(self.ended) >= 20:
            self._others_ended.set()
        else:
            super().wait(number)


class Meeting(Timed):
    """Its first calls, so many, wait for each other."""

    def __init__(self, number):
        super().__init__()
        self._first, self._barrier = number, Barrier(number)

    def wait(self, number):
        if number <= self._first:
            self._barrier.wait(PATIENCE)


class UnevenModel(ScriptedModel):
    """Its answers have 100 to 2,099 tokens."""

    def _usage(self):
        tokens = 100 + 731 * len(self.prompts) % 2000
        return {"input_tokens": 100, "output_tokens": tokens, "total_tokens": 100 + tokens}


def uneven_reply(body):
    """An answer by the prompt, with token counts that differ from call to call."""
    prompt = body["messages"][-1]["content"]
    text = IDEAS if is_guide_prompt(prompt) else hashed_answer(prompt)
    return Reply(text, input_tokens=len(prompt), output_tokens=500 + len(prompt) % 997)


def landings_of(store):
    return [row["ticket"] for row in rows_of(store)]


def test_so_many_calls_are_in_flight_and_no_more():
    answer = Meeting(6)
    found = discovery(scripted(answer), parallel=6, iterations=18).invoke({})
    assert found["iterations"] == 18
    assert answer.most_in_flight == 6


@pytest.mark.parametrize("is_async", [False, True])
def test_a_straggler_never_holds_the_others_up(is_async):
    answer, store = OneStraggler(), RunStore()
    graph = discovery(scripted(answer), parallel=4, iterations=30, store=store)
    found = asyncio.run(graph.ainvoke({})) if is_async else graph.invoke({})
    assert found["iterations"] == 30
    assert answer.outlasted_the_others
    assert answer.ended.index(3) >= 20
    assert sorted(landings_of(store)) == list(range(1, 31))


def test_a_call_that_never_ends_is_given_up_while_the_others_go_on(server):
    def answer(body):
        prompt = body["messages"][-1]["content"]
        return Silence() if next(numbers) == 3 else Reply(hashed_answer(prompt), 1000, 500)

    for seconds in (5.0, 30.0):  # the longer one where the machine was too slow for the others
        numbers, store = count(1), RunStore()
        model = client(server.reset(answer), max_tokens=600, max_attempts=1)
        policy = RetryPolicy(call_timeout=seconds)
        options: dict[str, Any] = {"parallel": 4, "iterations": 16, "store": store}
        found = discovery(model, retry_policy=policy, **options).invoke({})
        calls = calls_of(store)
        hung, *others = sorted(calls, key=lambda call: call.status is CallStatus.DONE)
        if sum(call.ended_at < hung.ended_at for call in others) >= 12:
            break
    assert found["iterations"] == 16
    assert {call.status for call in others} == {CallStatus.DONE} != {hung.status}
    assert hung.bound > 0
    assert spent_by(store) == billed(server) + hung.bound
    assert sum(call.ended_at < hung.ended_at for call in others) >= 12


@pytest.mark.parametrize("parallel", [2, 8])
def test_the_ledger_equals_the_bill_with_several_calls_in_flight(server, parallel):
    store = RunStore()
    server.default = uneven_reply
    graph = discovery(client(server), parallel=parallel, iterations=24, store=store)
    found = graph.invoke({})
    assert len(server.bill) >= 25
    assert spent_by(store) == billed(server)
    assert found["spent"] == pytest.approx(float(billed(server)), abs=1e-9)
    keys = Counter((call.ticket, call.role, call.attempt) for call in calls_of(store))
    assert set(keys.values()) == {1}


def test_no_more_is_launched_than_the_budget_is_expected_to_pay_for():
    """Every call costs $0.002, so three of them cross the budget, as one after the other would."""
    answer, store = Timed(), RunStore()
    found = discovery(scripted(answer), parallel=16, budget=0.005, store=store).invoke({})
    assert found["stop_reason"] == "budget"
    assert 0.005 <= found["spent"] <= 0.005 + 2 * float(CALL_COST)
    assert found["spent"] == float(spent_by(store)) == len(answer.ended) * float(CALL_COST)


@pytest.mark.parametrize(("parallel", "seed"), [(2, 0), (2, 1), (8, 0), (8, 2)])
def test_a_run_never_oversteps_its_budget_by_more_steps_than_are_in_flight(parallel, seed):
    store = RunStore()
    model = UnevenModel(answer=Timed(lambda number: 0.01 * (number % 3)))
    graph = discovery(model, parallel=parallel, budget=0.05, store=store)
    found = graph.invoke({"seed": seed})
    assert found["stop_reason"] == "budget"
    assert found["spent"] >= 0.05
    beyond = [row for row in rows_of(store) if row["spent"] - row["step_cost"] >= 0.05]
    assert len(beyond) < parallel


@pytest.mark.parametrize("parallel", [2, 8, 64])
def test_a_hard_budget_holds_with_any_number_of_calls_in_flight(server, parallel):
    store = RunStore()
    server.default = lambda body: Reply(
        hashed_answer(body["messages"][-1]["content"]),
        input_tokens=sum(len(message["content"].encode()) for message in body["messages"]),
        output_tokens=body["max_completion_tokens"],
    )
    model = client(server, max_tokens=600)
    graph = discovery(
        model, parallel=parallel, budget=0.05, budget_policy="hard", store=store, iterations=100
    )
    found = graph.invoke({})
    assert found["stop_reason"] == "budget"
    assert len(server.bill) >= 5
    assert billed(server) == spent_by(store) <= Decimal("0.05")


@pytest.mark.parametrize("policy", ["crossing", "hard"])
@pytest.mark.parametrize("parallel", [1, 6])
def test_steps_with_tools_stay_on_the_ledger_and_within_their_cap(server, parallel, policy):
    def answer(body: Body) -> Reply:
        reply = agent_answer(body)
        return replace(reply, output_tokens=min(reply.output_tokens, body["max_completion_tokens"]))

    store, cap, budget = RunStore(), 0.02, 0.05 * parallel
    server.default = answer
    graph = discovery(
        client(server, max_tokens=4000),
        parallel=parallel,
        budget=budget,
        store=store,
        generator="agent",
        budget_policy=policy,
        step_cap=cap,
    )
    found = graph.invoke({})
    assert found["stop_reason"] == "budget"
    assert found["iterations"] >= 2 * parallel
    assert found["spent"] == pytest.approx(float(billed(server)), abs=1e-9)
    assert spent_by(store) == billed(server)
    generated = Counter[int]()
    for call in calls_of(store):
        generated[call.ticket] += 0 if call.role == "guide" else call.cost
    if policy == "hard":
        assert billed(server) <= Decimal(str(budget))
        assert max(generated.values()) <= cap
    else:
        assert max(generated.values()) < 2 * cap


def simulated(seed):
    """The model of the landscape, and its problem."""
    model = pytest.importorskip("costada.plugins.lab.landscape.simulated_model")
    problem = pytest.importorskip("costada.plugins.lab.landscape.landscape_problem")
    return model.SimulatedModel(seed=seed), problem.landscape()


@pytest.mark.parametrize("method", of_every_method())
def test_no_two_calls_of_a_run_have_one_key_with_eight_in_flight(method):
    for seed in range(2):
        store, options = RunStore(), {"method": method, "iterations": 10, "order": "launch"}
        model, problem = simulated(seed)
        graph = discovery(model, problem=problem, parallel=8, store=store, **options)
        assert graph.invoke({"seed": seed})["stop_reason"] == "iterations"
        calls = calls_of(store)
        assert len(calls) == len({(call.ticket, call.role, call.attempt) for call in calls})


WITHOUT_GAIN = re.compile(r"without an improvement of more than 0.01: (-?\d+) of (\d+)")
TRACED = re.compile(r"^\| (\d+) \| (\d\.\d{4}) \|", re.MULTILINE)


@pytest.mark.process
@needs_plugin("evox")
def test_prompts_of_evox_with_eight_in_flight_count_the_iterations_that_have_landed():
    num_told, num_out_of_turn = 0, 0
    for seed in range(3):
        store, options = RunStore(), {"method": "evox", "iterations": 20, "order": "launch"}
        model, problem = simulated(seed)
        graph = discovery(model, problem=problem, parallel=8, store=store, **options)
        graph.invoke({"seed": seed})
        rows = store.steps(store.run_ids()[-1])
        best = [rows[0]["best_score"] - rows[0]["global_gain"], *(r["best_score"] for r in rows)]
        scores = {(row["iteration"], f"{row['score']:.4f}") for row in rows if row["score"]}
        landed = {row["ticket"]: row["iteration"] for row in rows}
        num_out_of_turn += sum(ticket != iteration for ticket, iteration in landed.items())
        for call in calls_of(store):
            told = WITHOUT_GAIN.search(call.prompt)
            if told is None:
                continue
            now = landed[call.ticket]
            rises = [t for t in range(1, now + 1) if best[t] - best[t - 1] > 0.01]
            assert tuple(map(int, told.groups())) == (now - max(rises, default=0), now)
            traced = TRACED.findall(call.prompt)
            assert {(int(t), score) for t, score in traced} <= scores
            num_told += bool(traced)
    assert num_told > 3
    assert num_out_of_turn > 10


@pytest.mark.parametrize("latencies", [(0.0, 0.03), (0.01, 0.02, 0.05)])
def test_in_the_order_of_launching_a_seed_gives_the_same_run_whatever_the_latencies(latencies):
    def run(seconds):
        graph = discovery(scripted(Timed(seconds)), parallel=4, iterations=16, order="launch")
        return trace(graph, {"seed": 3})

    rows = run(lambda number: latencies[number % len(latencies)])
    assert rows == run(lambda number: 0.0)
    assert sorted(row["ticket"] for row in rows) == list(range(1, 17))


@pytest.mark.process
@needs_plugin("evox", "lab")
def test_in_the_order_of_launching_the_same_strategies_are_bought_whatever_the_latencies():
    lab = pytest.importorskip("costada.plugins.lab.landscape.simulated_model")

    class Unhurried(lab.SimulatedModel):
        """A simulated model whose every answer takes some seconds."""

        seconds: float

        def _generate(self, *args, **options):
            time.sleep(self.seconds)
            return super()._generate(*args, **options)

    def run(budget, seconds):
        store, options = RunStore(), {"method": "evox", "iterations": 20, "order": "launch"}
        model = Unhurried(seed=0, seconds=seconds)
        graph = discovery(
            model, problem=simulated(0)[1], budget=budget, parallel=4, store=store, **options
        )
        rows = trace(graph, {"seed": 0})
        calls = {(call.ticket, call.attempt) for call in calls_of(store) if call.role == "guide"}
        return rows, calls

    bought = set()
    for budget in (0.1, 0.4):
        quick, slow = run(budget, 0.0), run(budget, 0.05)
        assert quick == slow
        bought |= quick[1]
    assert len(bought) > 6


def test_in_the_order_of_launching_conversations_go_on_whatever_the_latencies(server):
    def run(seconds):
        def answer(body: Body) -> Reply:
            time.sleep(seconds)
            return agent_answer(body)

        server.default = answer
        options = {"generator": "agent", "iterations": 20, "order": "launch", "parallel": 4}
        return trace(discovery(client(server), budget=0.05, **options), {"seed": 1})

    rows = run(0.0)
    assert rows == run(0.05)
    assert rows[-1]["spent"] >= 0.05


def test_with_one_call_in_flight_both_orders_are_the_plain_run():
    rows = [trace(discovery(order=order, iterations=12)) for order in ("landing", "launch")]
    assert rows[0] == rows[1]
    assert all(row["ticket"] == row["iteration"] for row in rows[0])


def test_where_no_gain_is_allowed_in_flight_a_run_with_four_is_the_plain_run():
    plain = trace(discovery(iterations=12))
    assert trace(discovery(iterations=12, parallel=4, gains_in_flight=1e-9)) == plain


def test_a_drained_run_finishes_its_calls_and_repeats_none():
    answer, store, saver = Timed(), RunStore(), InMemorySaver()
    options: dict[str, Any] = {"parallel": 8, "iterations": 30, "store": store, "saver": saver}
    control = RunControl()

    def drain():
        graph = discovery(scripted(answer), **options)
        for row in graph.stream({}, THREAD, stream_mode="custom", control=control):
            if row["iteration"] == 5:
                control.request_drain()

    with pytest.raises(GraphDrained):
        drain()
    assert len(rows_of(store)) < 30
    resumed(discovery(scripted(answer), **options))
    check_nothing_was_repeated(store, answer, 30)


def check_nothing_was_repeated(store, answer, iterations):
    calls = calls_of(store)
    assert [row["iteration"] for row in rows_of(store)] == list(range(1, iterations + 1))
    assert sorted(landings_of(store)) == list(range(1, iterations + 1))
    assert {call.status for call in calls} == {CallStatus.DONE}
    assert len(calls) == len(answer.ended) == len(answer.begun)
    assert spent_by(store) == len(calls) * CALL_COST


@pytest.mark.parametrize("way", ["cancelled", "left"])
def test_a_cancelled_task_finishes_its_calls_and_repeats_none(way):
    answer, store, saver = Timed(lambda number: 0.05), RunStore(), InMemorySaver()
    options: dict[str, Any] = {"parallel": 4, "iterations": 20, "store": store, "saver": saver}

    async def follow(graph, task_of):
        async for row in graph.astream({}, THREAD, stream_mode="custom"):
            if row["iteration"] == 4:
                if way == "left":
                    return
                task_of().cancel()

    async def begin():
        graph = discovery(scripted(answer), **options)
        task = asyncio.ensure_future(follow(graph, lambda: task))
        await asyncio.wait([task])
        return task.cancelled()

    async def go_on():
        return await discovery(scripted(answer), **options).ainvoke(None, THREAD)

    assert asyncio.run(begin()) is (way == "cancelled")
    assert 4 <= len(rows_of(store)) < 20
    assert asyncio.run(go_on())["iterations"] == 20
    check_nothing_was_repeated(store, answer, 20)


def test_time_travel_to_steps_in_flight_repeats_no_call_and_lands_as_before():
    answer, store, saver = Timed(lambda number: 0.01 * (number % 4)), RunStore(), InMemorySaver()
    options: dict[str, Any] = {"parallel": 4, "iterations": 16, "store": store, "saver": saver}
    rows = trace(discovery(scripted(answer), **options), config=THREAD)
    stored, asked, spent = rows_of(store), len(answer.begun), spent_by(store)
    graph = discovery(scripted(answer), **options)
    history = [
        state
        for state in graph.get_state_history(THREAD)
        if state.next == ("evaluate",) and len(state.values["flight"].tickets) >= 3
    ]
    for state in (history[len(history) // 2], history[-1]):
        done = state.values.get("iterations", 0)
        assert resumed(graph, state.config) == rows[done:]
    assert len(answer.begun) == asked
    assert spent_by(store) == spent
    assert rows_of(store) == stored


def test_a_second_graph_on_the_thread_repeats_no_call_of_the_first():
    answer, store, saver = Timed(lambda number: 0.1), RunStore(), InMemorySaver()
    options: dict[str, Any] = {"parallel": 4, "iterations": 12, "store": store, "saver": saver}
    for row in discovery(scripted(answer), **options).stream({}, THREAD, stream_mode="custom"):
        if row["iteration"] == 3:
            break
    resumed(discovery(scripted(answer), **options))
    check_nothing_was_repeated(store, answer, 12)


def test_32_searches_in_one_process_make_32_calls_at_once():
    answer = Meeting(32)
    graph = discovery(scripted(answer), iterations=2)

    async def search():
        return await asyncio.gather(*(graph.ainvoke({"seed": seed}) for seed in range(32)))

    found = asyncio.run(search())
    assert [each["iterations"] for each in found] == [2] * 32
    assert answer.most_in_flight == 32


def test_slow_evaluations_hold_up_no_call():
    """Two evaluations wait until a dozen calls have ended."""
    answer, judged = Timed(), count(1)
    calls_ended = Event()
    waited = []

    def evaluate(code):
        if len(answer.ended) >= 12:
            calls_ended.set()
        elif next(judged) in (3, 4):
            waited.append(calls_ended.wait(PATIENCE))
        return evaluate_value(code)

    problem = toy_problem(evaluate=evaluate, evaluations_at_once=6)
    found = discovery(scripted(answer), problem=problem, parallel=6, iterations=24).invoke({})
    assert found["iterations"] == 24
    assert waited == [True, True]


def test_what_is_on_the_ledger_is_in_the_state_once_nothing_is_in_flight():
    saver, store = InMemorySaver(), RunStore()
    graph = discovery(parallel=8, iterations=20, saver=saver, store=store)
    found = graph.invoke({}, THREAD)
    state = graph.get_state(THREAD).values
    assert state["flight"].tickets == ()
    assert (state["flight"].last_ticket, state["iterations"]) == (20, 20)
    assert found["spent"] == pytest.approx(float(spent_by(store)))
    best = max(rows_of(store), key=itemgetter("best_score"))
    assert found["best_score"] == best["best_score"]


@pytest.mark.parametrize(("parallel", "iterations"), [(2, 6), (4, 9), (8, 9), (8, 12)])
def test_a_guide_is_not_bought_for_a_step_beyond_the_last(parallel, iterations):
    """The third call ends last, so that the last steps are in flight when others stagnate."""
    numbers, store = count(1), RunStore()

    def answer(prompt):
        time.sleep(0.3 if next(numbers) == 3 else 0.002)
        return IDEAS if is_guide_prompt(prompt) else rewrite(0.2)

    graph = discovery(scripted(answer), parallel=parallel, iterations=iterations, store=store)
    assert graph.invoke({})["iterations"] == iterations
    assert sorted(landings_of(store)) == sorted(set(landings_of(store)))
    assert len(rows_of(store)) == iterations
