"""A run that ends when its best program is as good as it is to find."""

from dataclasses import replace
from typing import TypedDict

import pytest
from fakes import IDEAS, is_guide_prompt, rewrite, toy_problem
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph
from test_flat_stop import rising_until
from toy_graph import THREAD, calls_of, discovery, rows_of, run_until, scripted, spent_by

from costada.agents.node import as_discovery_node
from costada.graph.routes import can_resume
from costada.runs.choices import Choices
from costada.runs.search_graph import create_discovery_graph
from costada.store.purse import Purse
from costada.store.run_store import RunStore
from costada.values.usage import Price


def run_to(target, *, store, model=None, budget=0.15, **options):
    # The n-th program scores 0.2 + n / 1000, from 0 on, and none after the fifth scores more.
    model = model or rising_until(5)
    return discovery(model, budget=budget, store=store, target=target, **options).invoke({})


@pytest.mark.parametrize(("target", "steps"), [(0.2, 1), (0.2025, 4), (0.204, 5)])
def test_a_run_stops_after_the_step_that_reaches_the_target(target, steps):
    store = RunStore()
    found = run_to(target, store=store)
    assert (found["stop_reason"], found["iterations"]) == ("target", steps)
    before = rows_of(store)[-2]["best_score"] if steps > 1 else 0.0
    assert found["best_score"] >= target > before
    assert ["target" in row["events"] for row in rows_of(store)] == [False] * (steps - 1) + [True]


def test_a_target_that_nothing_reaches_leaves_the_budget_to_end_the_run():
    assert run_to(0.5, store=RunStore())["stop_reason"] == "budget"


def test_steps_in_flight_are_completed_and_none_is_launched_after_the_target():
    store = RunStore()
    found = run_to(0.202, store=store, parallel=3, order="launch")
    # About the third step reaches it (threads ask in any order), while two more are in flight.
    reached = next(n for n, row in enumerate(rows_of(store), 1) if "target" in row["events"])
    assert (found["stop_reason"], found["iterations"]) == ("target", reached + 2)
    assert not [call for call in calls_of(store) if call.cost == 0]


def test_a_step_in_flight_that_reaches_the_target_is_the_reason_even_if_the_budget_is_spent():
    # Two steps are launched for 0.003 dollars; the first spends 0.002, and the second the rest.
    found = run_to(0.201, store=RunStore(), budget=0.003, parallel=2, order="launch")
    assert found["stop_reason"] == "target"


def test_a_minimised_objective_reaches_the_target_from_above():
    problem = toy_problem()
    lower = replace(problem, direction="minimize", reference=0.1, evaluate=minimising)
    found = run_to(0.3, store=RunStore(), model=falling(), problem=lower)
    assert found["stop_reason"] == "target"
    assert found["best_objective"] == pytest.approx(0.3)
    with pytest.raises(ValueError, match=r"target: got 0 for problem 'toy', which minimises"):
        run_to(0.0, store=RunStore(), problem=lower)


def minimising(source):
    evaluation = toy_problem().evaluate(source)
    if not evaluation.is_valid:
        return evaluation
    return replace(evaluation, objective=1 - evaluation.score, score=0.1 / (1 - evaluation.score))


def falling():
    values = iter([0.5, 0.6, 0.7, *[0.1] * 100])
    return scripted(lambda prompt: IDEAS if is_guide_prompt(prompt) else rewrite(next(values)))


def test_a_run_whose_start_reaches_the_target_ends_at_once_and_spends_nothing():
    store, purse = RunStore(), Purse(1.0)
    found = run_to(0.01, store=store, purse=purse)
    assert (found["stop_reason"], found["iterations"], found["spent"]) == ("target", 0, 0.0)
    assert not calls_of(store)
    assert purse.remaining == 1


def test_a_node_of_another_graph_gets_its_target_from_the_state():
    search = create_discovery_graph(
        toy_problem(),
        rising_until(5),
        budget=0.15,
        price=Price("1", "1"),
        choices=Choices(settings=["target"]),
    )
    outer = StateGraph(Work)
    node = as_discovery_node(
        search,
        output={"stop_reason": "reason", "iterations": "steps"},
        context=lambda state: {"settings": {"target": state["goal"]}},
    )
    outer.add_node("search", node)
    outer.add_edge(START, "search")
    found = outer.compile().invoke({"goal": 0.202})
    assert (found["reason"], found["steps"]) == ("target", 3)


class Work(TypedDict, total=False):
    goal: float
    reason: str
    steps: int


@pytest.mark.parametrize("parallel", [1, 3])
def test_a_resumed_run_whose_target_is_reached_ends_at_once(parallel):
    store, saver, model = RunStore(), InMemorySaver(), rising_until(5)
    options = {"budget": 0.15, "store": store, "saver": saver, "parallel": parallel}
    run_until(discovery(model, **options), THREAD, 4)
    before = len(calls_of(store))
    found = discovery(model, **options, target=0.201).invoke(None, THREAD)
    assert found["stop_reason"] == "target"
    assert len(calls_of(store)) <= before + (parallel if parallel > 1 else 0)


def test_a_higher_target_goes_on_and_the_same_does_not():
    store, saver, model = RunStore(), InMemorySaver(), rising_until(5)
    options = {"budget": 0.15, "store": store, "saver": saver}
    first = discovery(model, **options, target=0.201)
    assert first.invoke({}, THREAD)["iterations"] == 2
    assert first.invoke(None, THREAD)["iterations"] == 2
    stopped = first.get_state(THREAD).values
    assert not can_resume(stopped, 0.15, 100, 0.201)
    assert can_resume(stopped, 0.15, 100, 0.203)
    found = discovery(model, **options, target=0.203).invoke(None, THREAD)
    assert (found["stop_reason"], found["iterations"]) == ("target", 4)
    assert discovery(model, **options).invoke(None, THREAD)["stop_reason"] == "budget"
    assert spent_by(store) >= 0.15
