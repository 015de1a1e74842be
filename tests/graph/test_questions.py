"""A run that asks its caller: for more budget, and before each guide."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from fakes import IDEAS, is_guide_prompt, rewrite
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command
from needed_plugins import needs_plugin
from toy_graph import (
    CALL_COST,
    THREAD,
    as_stored,
    calls_of,
    discovery,
    events_of,
    rows_of,
    run_until,
    scripted,
    spent_by,
    trace,
)
from typing_extensions import TypedDict

from costada.graph.build import DiscoveryGraph
from costada.store.run_store import RunStore

BUDGET = 0.01
STOP = Command(resume={"stop": True})


def asking_graph(*, budget: float = BUDGET, checkpointer: Any = None, **changes: Any) -> Any:
    saver = InMemorySaver() if checkpointer is None else checkpointer
    return discovery(budget=budget, saver=saver, **{"on_exhausted": "interrupt", **changes})


def more(budget: object) -> Any:
    return Command(resume={"budget": budget})


def question(found: dict[str, Any]) -> dict[str, Any]:
    (asked,) = found["__interrupt__"]
    return dict(asked.value)


def streamed(graph: DiscoveryGraph, given: Any) -> list[dict[str, Any]]:
    return list(map(as_stored, graph.stream(given, THREAD, stream_mode="custom")))


def decisions(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{**row, "remaining_ratio": None} for row in rows]


@pytest.mark.parametrize("checkpointer", [None, False])
def test_nobody_can_be_asked_without_a_saver(checkpointer: Any) -> None:
    with pytest.raises(ValueError, match="on_exhausted: got 'interrupt' with checkpointer"):
        discovery(on_exhausted="interrupt", saver=checkpointer)


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
    first = streamed(graph, {})
    later = streamed(graph, more(2 * BUDGET))
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
    calls = calls_of(store)
    graph.invoke(None, THREAD)
    assert graph.get_state(THREAD).next == ("ask_for_budget",)
    assert calls_of(store) == calls


def test_later_resumes_know_the_extended_budget() -> None:
    saver, store = InMemorySaver(), RunStore()
    graph = asking_graph(checkpointer=saver, store=store)
    last = streamed(graph, {})[-1]["iteration"]
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
    graph = asking_graph(iterations=plain["iterations"])
    found = graph.invoke({}, THREAD)
    assert "__interrupt__" not in found
    assert found["stop_reason"] == "budget"


@pytest.mark.parametrize("method", ["uniform", "adaevolve", "best-of-n"])
def test_an_extended_run_without_regard_to_cost_is_one_with_the_larger_budget(method: str) -> None:
    extended = asking_graph(method=method)
    whole = asking_graph(method=method, on_exhausted="stop", budget=0.03)
    rows = streamed(extended, {}) + streamed(extended, more(0.02)) + streamed(extended, more(0.03))
    assert decisions(rows) == decisions(trace(whole, config=THREAD))


def test_a_larger_iteration_limit_gives_the_run_that_it_would_have_given_at_once() -> None:
    saver, store = InMemorySaver(), RunStore()
    options: dict[str, Any] = {"budget": 1.0, "checkpointer": saver, "store": store}
    rows = streamed(asking_graph(iterations=4, **options), {})
    longer = asking_graph(iterations=8, **options)
    rows += streamed(longer, None)
    assert rows == trace(asking_graph(iterations=8, budget=1.0), config=THREAD)
    assert any("guide_charged" in row["events"] for row in rows)


def test_an_async_run_asks_and_continues() -> None:
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


def stuck(prompt: str) -> str:
    """Answer guides with ideas, and everything else with programs that are no better."""
    return IDEAS if is_guide_prompt(prompt) else rewrite(0.05)


def approving(*, iterations=7, saver=None, answer=stuck, **options):
    model, saver = scripted(answer), saver or InMemorySaver()
    options |= {"approve_guides": True, "budget": 0.5}
    return discovery(model, iterations=iterations, saver=saver, **options), model


def answered(graph, *answers) -> Iterator[dict]:
    """Yield each question of a run; the answers are given in turn, the last again and again."""
    given = list(answers)
    state = graph.invoke({}, THREAD)
    while "__interrupt__" in state:
        (question,) = state["__interrupt__"]
        yield question.value
        state = graph.invoke(Command(resume=given.pop(0) if given[1:] else given[0]), THREAD)


def num_guides(model) -> int:
    return sum(map(is_guide_prompt, model.prompts))


def test_a_question_comes_before_any_guide_and_says_what_is_at_stake():
    graph, model = approving()
    asked = graph.invoke({}, THREAD)["__interrupt__"][0].value
    finished = asked["iteration"] - 1
    assert num_guides(model) == 0
    assert (asked["reason"], asked["guide"], asked["refused"]) == ("guide", "breakthrough", "")
    assert asked["spent"] == pytest.approx(float(finished * CALL_COST))
    assert asked["remaining"] == pytest.approx(0.5 - asked["spent"])
    assert asked["stagnation"] == finished
    assert 4000 * 2 / 1e6 < asked["estimate"] < asked["at_most"]
    assert asked["at_most"] > 32_000 * 2 / 1e6


@pytest.mark.parametrize("yes", [True, "buy"])
def test_an_approved_guide_is_bought_once(yes):
    store = RunStore()
    graph, model = approving(store=store)
    questions = list(answered(graph, yes))
    assert num_guides(model) == len(questions) >= 1
    assert events_of(store).count("guide_charged") == len(questions)


@pytest.mark.parametrize("no", [False, "skip"])
def test_a_guide_that_is_not_wanted_counts_as_one_that_failed(no):
    """The run with a guide that never yields a tactic differs by the price of its calls only."""
    declined, failing = RunStore(), RunStore()
    graph, model = approving(store=declined)
    questions = list(answered(graph, no))
    useless, _ = approving(
        store=failing, answer=lambda prompt: "no" if is_guide_prompt(prompt) else rewrite(0.05)
    )
    list(answered(useless, True))
    assert num_guides(model) == 0
    assert "backoff" in events_of(declined)
    assert _without_money(rows_of(declined)) == _without_money(rows_of(failing))
    assert spent_by(declined) == len(model.prompts) * CALL_COST
    assert len(questions) >= 1


def _without_money(rows):
    kept = ("iteration", "frontier", "score", "stagnation", "tactic_uses_left", "attempts")
    return [
        {name: row[name] for name in kept}
        | {"events": [event for event in row["events"] if event != "guide_charged"]}
        for row in rows
    ]


def test_any_other_answer_is_refused_and_the_question_comes_again():
    graph, model = approving()
    questions = answered(graph, "perhaps", 1, False)
    first, second, third = next(questions), next(questions), next(questions)
    assert first["refused"] == ""
    assert second["refused"].startswith("answer: got 'perhaps', expected Command(resume=True)")
    assert third["refused"].startswith("answer: got 1, expected ")
    assert {**third, "refused": ""} == first
    assert all(question["refused"] == "" for question in questions)
    assert num_guides(model) == 0


@pytest.mark.process
@needs_plugin("evox", "offline")
def test_evox_asks_for_its_labels_and_strategies_too_and_does_without_them():
    store = RunStore()
    graph, model = approving(method="evox", store=store, iterations=6)
    questions = list(answered(graph, False))
    assert questions[0]["guide"] == "labels"
    assert {question["guide"] for question in questions[1:]} == {"strategy"}
    roles = {call.role for call in calls_of(store)}
    assert roles == {"generation", "retry"}
    assert spent_by(store) == len(model.prompts) * CALL_COST


@pytest.mark.process
@needs_plugin("evox", "offline")
def test_the_question_about_a_strategy_counts_the_step_that_it_belongs_to():
    store = RunStore()
    graph, _ = approving(method="evox", store=store, iterations=6)
    questions = answered(graph, False)
    assert next(questions)["guide"] == "labels"
    asked = 0
    for question in questions:
        asked += 1
        assert question["spent"] == pytest.approx(float(len(calls_of(store)) * CALL_COST))
        assert question["remaining"] == pytest.approx(question["budget"] - question["spent"])
        best = max(each.score for each in graph.candidates(THREAD))
        assert question["best_score"] == best
    assert asked


def test_below_a_parent_graph_the_question_reaches_the_parents_caller():
    class ScoreOnly(TypedDict, total=False):
        best_score: float

    graph, model = approving(saver=True)
    builder = StateGraph(ScoreOnly)
    builder.add_node("search", graph)
    builder.add_edge(START, "search")
    builder.add_edge("search", END)
    parent = builder.compile(checkpointer=InMemorySaver())
    questions = list(answered(parent, "buy"))
    assert num_guides(model) == len(questions) >= 1


def test_without_a_saver_nobody_could_be_asked():
    with pytest.raises(ValueError, match="approve_guides: got True with checkpointer None"):
        discovery(approve_guides=True)


def test_the_picture_shows_who_decides():
    graph, _ = approving()
    drawn = graph.get_graph()
    edges = {(edge.source, edge.data, edge.target) for edge in drawn.edges}
    assert {
        ("gate_intervention", "approval", "approve_guide"),
        ("gate_intervention", "question", "ask_for_budget"),
        ("approve_guide", "buy", "guide"),
        ("approve_guide", "question", "approve_guide"),
        ("approve_guide", "next step", "allocate_frontier"),
    } <= edges
