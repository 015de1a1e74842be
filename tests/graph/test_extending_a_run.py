import asyncio
from typing import Any

import pytest
from fakes import ScriptedModel, hashed_answer, toy_problem
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command
from toy_graph import CALL_COST, PRICE, run_until, trace
from typing_extensions import TypedDict

from costada.controller.constants import Constants
from costada.graph.build import DiscoveryGraph, create_discovery_graph
from costada.nodes.settings import Settings
from costada.store.run_store import RunStore

THREAD: Any = {"configurable": {"thread_id": "a"}}
BUDGET = 0.01
STOP = Command(resume={"stop": True})


def asking_graph(*, budget: float = BUDGET, checkpointer: Any = None, **changes: Any) -> Any:
    settings = {"price": PRICE, "on_exhausted": "interrupt", **changes}
    store = settings.pop("store", None)
    return create_discovery_graph(
        toy_problem(),
        ScriptedModel(answer=hashed_answer),
        budget=budget,
        settings=Settings(**settings),
        checkpointer=InMemorySaver() if checkpointer is None else checkpointer,
        store=store,
    )


def more(budget: object) -> Any:
    return Command(resume={"budget": budget})


def question(found: dict[str, Any]) -> dict[str, Any]:
    (asked,) = found["__interrupt__"]
    return dict(asked.value)


def rows_of(graph: DiscoveryGraph, given: Any) -> list[dict[str, Any]]:
    return list(graph.stream(given, THREAD, stream_mode="custom"))


def decisions(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{**row, "remaining_ratio": None} for row in rows]


@pytest.mark.parametrize("checkpointer", [None, False])
def test_nobody_can_be_asked_without_a_saver(checkpointer: Any) -> None:
    settings = Settings(price=PRICE, on_exhausted="interrupt")
    model = ScriptedModel(answer=hashed_answer)
    with pytest.raises(ValueError, match="on_exhausted: got 'interrupt' with checkpointer"):
        create_discovery_graph(
            toy_problem(), model, budget=1, settings=settings, checkpointer=checkpointer
        )


def test_a_run_out_of_money_says_where_it_stands() -> None:
    graph = asking_graph()
    asked = question(graph.invoke({}, THREAD))
    state = graph.get_state(THREAD)
    assert asked == {
        "reason": "budget",
        "spent": state.values["spent"],
        "budget": BUDGET,
        "iterations": state.values["iterations"],
        "best_score": state.values["best_score"],
        "best_objective": pytest.approx(10 * state.values["best_score"]),
        "refused": "",
    }
    assert BUDGET <= asked["spent"] <= BUDGET + 4 * float(CALL_COST)
    assert state.next == ("ask_for_budget",)


def test_more_budget_lets_the_run_go_on_and_the_controller_sees_it() -> None:
    graph = asking_graph()
    first = rows_of(graph, {})
    later = rows_of(graph, more(2 * BUDGET))
    assert [row["iteration"] for row in first + later] == [*range(1, len(first + later) + 1)]
    assert first[-1]["remaining_ratio"] == 0
    for row in later:
        assert row["remaining_ratio"] == max(0, 1 - row["spent"] / (2 * BUDGET))
    values = graph.get_state(THREAD).values
    assert values["spent"] >= 2 * BUDGET > later[-2]["spent"]


def test_a_run_is_extended_again_and_again_until_it_is_stopped() -> None:
    graph = asking_graph()
    asked = question(graph.invoke({}, THREAD))
    for budget in (0.015, 0.02, 0.025):
        assert asked["spent"] < budget
        asked = question(graph.invoke(more(budget), THREAD))
        assert asked["budget"] == budget <= asked["spent"]
    found = graph.invoke(STOP, THREAD)
    assert "__interrupt__" not in found
    assert (found["stop_reason"], found["spent"]) == ("budget", asked["spent"])
    assert found["iterations"] == asked["iterations"]
    assert f"return {found['best_score']:.4f}" in found["best_program"]
    assert graph.get_state(THREAD).next == ()


@pytest.mark.parametrize("answer", ["stop", {"stop": True}])
def test_a_run_that_is_not_extended_ends_as_one_that_never_asks(answer: object) -> None:
    graph, silent = asking_graph(), asking_graph(on_exhausted="stop")
    graph.invoke({}, THREAD)
    assert graph.invoke(Command(resume=answer), THREAD) == silent.invoke({}, THREAD)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ({"budget": 0.005}, "budget: got 0.005, expected finite dollars above"),
        ({"budget": BUDGET}, "budget: got 0.01, expected finite dollars above"),
        ({"budget": True}, "budget: got True, expected"),
        ({"budget": "2"}, "budget: got '2', expected"),
        ({"budget": float("inf")}, "budget: got inf, expected"),
        ({"budget": 1.0, "stop": True}, "expected Command"),
        ({"stop": False}, "expected Command"),
        (2.0, "answer: got 2.0, expected Command"),
    ],
)
def test_a_refused_answer_changes_nothing_and_another_one_is_asked_for(
    answer: object, message: str
) -> None:
    graph = asking_graph()
    asked = question(graph.invoke({}, THREAD))
    again = question(graph.invoke(Command(resume=answer), THREAD))
    assert message in again["refused"]
    assert {**again, "refused": ""} == asked
    granted = question(graph.invoke(more(0.015), THREAD))
    assert (granted["budget"], granted["refused"]) == (0.015, "")


def test_asking_spends_and_writes_nothing() -> None:
    store = RunStore()
    graph = asking_graph(store=store)
    graph.invoke({}, THREAD)
    (run_id,) = store.run_ids()
    calls = list(store.call_log.calls(run_id))
    graph.invoke(None, THREAD)
    assert graph.get_state(THREAD).next == ("ask_for_budget",)
    assert list(store.call_log.calls(run_id)) == calls


def test_later_resumes_know_the_extended_budget() -> None:
    saver, store = InMemorySaver(), RunStore()
    graph = asking_graph(checkpointer=saver, store=store)
    last = rows_of(graph, {})[-1]["iteration"]
    run_until(graph, THREAD, last + 2, given=more(0.02))
    again = asking_graph(checkpointer=saver, store=store)
    asked = question(again.invoke(None, THREAD))
    assert asked["budget"] == 0.02 <= asked["spent"]


def test_a_new_run_on_the_thread_begins_with_the_budget_of_the_graph() -> None:
    graph = asking_graph()
    graph.invoke({}, THREAD)
    graph.invoke(more(0.015), THREAD)
    graph.invoke(STOP, THREAD)
    assert question(graph.invoke({}, THREAD))["budget"] == BUDGET


def test_nothing_is_asked_when_more_money_would_not_help() -> None:
    plain = asking_graph(on_exhausted="stop").invoke({}, THREAD)
    graph = asking_graph(constants=Constants(max_iterations=plain["iterations"]))
    found = graph.invoke({}, THREAD)
    assert "__interrupt__" not in found
    assert found["stop_reason"] == "budget"


@pytest.mark.parametrize("method", ["uniform", "adaevolve", "best-of-n"])
def test_an_extended_run_without_regard_to_cost_is_one_with_the_larger_budget(method: str) -> None:
    extended = asking_graph(method=method)
    whole = asking_graph(method=method, on_exhausted="stop", budget=0.03)
    rows = rows_of(extended, {}) + rows_of(extended, more(0.02)) + rows_of(extended, more(0.03))
    assert decisions(rows) == decisions(trace(whole, config=THREAD))


def test_a_larger_iteration_limit_gives_the_run_that_it_would_have_given_at_once() -> None:
    saver, store = InMemorySaver(), RunStore()
    short, whole = (Constants(max_iterations=number) for number in (4, 8))
    options: dict[str, Any] = {"budget": 1.0, "checkpointer": saver, "store": store}
    rows = rows_of(asking_graph(constants=short, **options), {})
    longer = asking_graph(constants=whole, **options)
    longer.update_state(THREAD, {"stop_reason": ""}, as_node="gate_intervention")
    rows += rows_of(longer, None)
    assert rows == trace(asking_graph(constants=whole, budget=1.0), config=THREAD)
    assert any("guide_charged" in row["events"] for row in rows)


def test_an_async_run_asks_and_goes_on() -> None:
    graph = asking_graph()

    async def ask_and_extend() -> list[dict[str, Any]]:
        return [await graph.ainvoke(given, THREAD) for given in ({}, more(0.02), STOP)]

    first, second, last = asyncio.run(ask_and_extend())
    assert (question(first)["budget"], question(second)["budget"]) == (BUDGET, 0.02)
    assert last["stop_reason"] == "budget"


class Parent(TypedDict, total=False):
    seed: int
    best_score: float
    spent: float
    stop_reason: str


def test_a_run_below_a_parent_graph_is_extended_through_the_parent() -> None:
    parent = StateGraph(Parent)
    parent.add_node("search", asking_graph(checkpointer=True))
    parent.add_edge(START, "search")
    parent.add_edge("search", END)
    graph = parent.compile(checkpointer=InMemorySaver())
    spent = [question(graph.invoke({"seed": 3}, THREAD))["spent"]]
    for budget in (0.015, 0.02):
        asked = question(graph.invoke(more(budget), THREAD))
        assert asked["budget"] == budget
        spent.append(asked["spent"])
    found = graph.invoke(STOP, THREAD)
    assert spent == sorted(set(spent))
    assert (found["spent"], found["stop_reason"]) == (spent[-1], "budget")
