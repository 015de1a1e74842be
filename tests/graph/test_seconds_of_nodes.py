"""How long the nodes of a run took: kept for every step, and no part of what a run does."""

from itertools import count
from time import perf_counter, sleep

import pytest
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
from langgraph.types import Command
from toy_graph import PRICE, graph_of, run_until, trace

from costada.controller.constants import Constants
from costada.graph.build import create_discovery_graph
from costada.graph.node_wrappers import observed
from costada.nodes.settings import Settings
from costada.store.run_store import RunStore

THREAD = {"configurable": {"thread_id": "1"}}
SHORT = Constants(max_iterations=4)
EVERY_STEP = {
    "allocate_frontier",
    "build_context",
    "generate",
    "evaluate",
    "charge_ledger",
    "update_utility",
    "gate_intervention",
}


def seconds_of(store):
    return store.timing.steps(store.run_ids()[-1])


def slow_evaluation(code):
    sleep(0.02)
    return evaluate_value(code)


def test_every_step_keeps_the_seconds_of_each_node_it_passed():
    store = RunStore()
    graph, _ = graph_of(constants=SHORT, store=store, problem=toy_problem(evaluate=slow_evaluation))
    began = perf_counter()
    rows = trace(graph)
    took = perf_counter() - began
    kept = seconds_of(store)
    assert [iteration for iteration, _ in kept] == [row["iteration"] for row in rows]
    assert all(set(seconds) == EVERY_STEP for _, seconds in kept)
    judged = [seconds["evaluate"] for _, seconds in kept]
    assert sum(judged) >= 0.02 * sum(not row["is_cached"] for row in rows)
    assert sum(store.timing.by_node(store.run_ids()[0]).values()) < took


def test_the_attempts_of_a_step_add_up():
    store, replies = RunStore(), iter([rewrite(1.5), rewrite(1.6), rewrite(0.5)])
    graph, _ = graph_of(
        lambda prompt: next(replies),
        constants=Constants(max_iterations=1),
        store=store,
        problem=toy_problem(evaluate=slow_evaluation),
    )
    graph.invoke({})
    ((_, seconds),) = seconds_of(store)
    assert seconds["evaluate"] >= 3 * 0.02


def test_a_guide_is_timed_with_the_step_that_pays_for_it():
    values, store = count(1), RunStore()
    graph, _ = graph_of(
        lambda prompt: IDEAS if is_guide_prompt(prompt) else rewrite(0.05 / next(values)),
        constants=Constants(max_iterations=6),
        budget=1.0,
        store=store,
    )
    rows = trace(graph)
    charged = [row["iteration"] for row in rows if "guide_charged" in row["events"]]
    assert charged
    assert [number for number, seconds in seconds_of(store) if "guide" in seconds] == charged


def test_a_stopped_run_goes_on_with_the_seconds_it_had():
    store = RunStore()
    graph, _ = graph_of(constants=SHORT, store=store, checkpointer=InMemorySaver())
    run_until(graph, THREAD, 2)
    before = seconds_of(store)
    graph.invoke(None, THREAD)
    assert seconds_of(store)[:2] == before
    assert [iteration for iteration, _ in seconds_of(store)] == [1, 2, 3, 4]


def test_a_step_that_is_broken_off_keeps_the_seconds_of_the_nodes_it_has_passed():
    store, is_stopping = RunStore(), iter([True])

    def evaluate(code):
        if next(is_stopping, False):
            raise InterruptedError("Ctrl-C")
        return evaluate_value(code)

    def answer(prompt):
        sleep(0.02)
        return rewrite(0.5)

    graph, _ = graph_of(
        answer,
        constants=Constants(max_iterations=1),
        store=store,
        checkpointer=InMemorySaver(),
        problem=toy_problem(evaluate=evaluate, seed_evaluation=evaluate_value("return 0.1")),
    )
    with pytest.raises(InterruptedError):
        graph.invoke({}, THREAD)
    graph.invoke(None, THREAD)
    ((_, seconds),) = seconds_of(store)
    assert set(seconds) == EVERY_STEP
    assert seconds["generate"] >= 0.02


def test_the_next_run_of_a_thread_begins_to_count_anew():
    store = RunStore()
    graph, _ = graph_of(
        constants=Constants(max_iterations=1), store=store, checkpointer=InMemorySaver()
    )
    graph.invoke({}, THREAD)
    graph.invoke({}, THREAD)
    first, second = store.run_ids()
    assert [set(seconds) for _, seconds in store.timing.steps(first)] == [EVERY_STEP]
    assert [set(seconds) for _, seconds in store.timing.steps(second)] == [EVERY_STEP]


def test_the_wait_for_an_answer_is_not_counted():
    store = RunStore()
    graph = create_discovery_graph(
        toy_problem(),
        ScriptedModel(answer=hashed_answer),
        budget=0.006,
        settings=Settings(price=PRICE, on_exhausted="interrupt"),
        checkpointer=InMemorySaver(),
        store=store,
    )
    graph.invoke({}, THREAD)
    sleep(0.2)
    graph.invoke(Command(resume={"budget": 0.012}), THREAD)
    graph.invoke(Command(resume="stop"), THREAD)
    totals = store.timing.by_node(store.run_ids()[0])
    assert 0 < totals["ask_for_budget"] < 0.1


def test_a_trace_row_holds_no_seconds():
    graph, _ = graph_of(constants=Constants(max_iterations=1))
    (row,) = trace(graph)
    assert not any("second" in key for key in row)


def test_a_watched_node_keeps_its_name_and_what_langgraph_may_hand_it():
    def node(state, config, *, context):
        return {}

    seen = observed(node, "node", None)
    assert seen.__name__ == "node"
    assert list(seen.__signature__.parameters) == ["state", "context", "config"]
