"""A caller who is asked before each guide is bought."""

from collections.abc import Iterator

import pytest
from fakes import IDEAS, ScriptedModel, is_guide_prompt, rewrite, toy_problem
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command
from toy_graph import CALL_COST, PRICE
from typing_extensions import TypedDict

from costada.controller.constants import Constants
from costada.graph.build import create_discovery_graph
from costada.nodes.settings import Settings
from costada.store.run_store import RunStore

THREAD = {"configurable": {"thread_id": "run"}}


def stuck(prompt: str) -> str:
    """Answer guides with ideas, and everything else with programs that are no better."""
    return IDEAS if is_guide_prompt(prompt) else rewrite(0.05)


def graph_of(*, method="costada", iterations=7, saver=None, store=None, answer=stuck):
    model = ScriptedModel(answer=answer, prompts=[])
    settings = Settings(
        price=PRICE,
        method=method,
        approve_guides=True,
        constants=Constants(max_iterations=iterations),
    )
    graph = create_discovery_graph(
        toy_problem(),
        model,
        budget=0.5,
        settings=settings,
        checkpointer=saver or InMemorySaver(),
        store=store,
    )
    return graph, model


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
    graph, model = graph_of()
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
    graph, model = graph_of(store=store)
    questions = list(answered(graph, yes))
    assert num_guides(model) == len(questions) >= 1
    events = [event for row in store.steps(store.run_ids()[0]) for event in row["events"]]
    assert events.count("guide_charged") == len(questions)


@pytest.mark.parametrize("no", [False, "skip"])
def test_a_guide_that_is_not_wanted_counts_as_one_that_failed(no):
    """The run with a guide that never yields a tactic differs by the price of its calls only."""
    declined, failing = RunStore(), RunStore()
    graph, model = graph_of(store=declined)
    questions = list(answered(graph, no))
    useless, _ = graph_of(
        store=failing, answer=lambda prompt: "no" if is_guide_prompt(prompt) else rewrite(0.05)
    )
    list(answered(useless, True))
    assert num_guides(model) == 0
    (one,), (other,) = declined.run_ids(), failing.run_ids()
    assert "backoff" in {event for row in declined.steps(one) for event in row["events"]}
    assert _without_money(declined.steps(one)) == _without_money(failing.steps(other))
    assert declined.call_log.spent(one, 99) == len(model.prompts) * CALL_COST
    assert len(questions) >= 1


def _without_money(rows):
    """Return when guides were scheduled and what came of it, whatever the calls cost."""
    kept = ("iteration", "frontier", "score", "stagnation", "tactic_uses_left", "attempts")
    return [
        {name: row[name] for name in kept}
        | {"events": [event for event in row["events"] if event != "guide_charged"]}
        for row in rows
    ]


def test_any_other_answer_is_refused_and_the_question_comes_again():
    graph, model = graph_of()
    questions = answered(graph, "perhaps", 1, False)
    first, second, third = next(questions), next(questions), next(questions)
    assert first["refused"] == ""
    assert second["refused"].startswith("answer: got 'perhaps', expected Command(resume=True)")
    assert third["refused"].startswith("answer: got 1, expected ")
    assert {**third, "refused": ""} == first
    assert all(question["refused"] == "" for question in questions)
    assert num_guides(model) == 0


def test_evox_asks_for_its_labels_and_strategies_too_and_does_without_them():
    store = RunStore()
    graph, model = graph_of(method="evox", store=store, iterations=6)
    questions = list(answered(graph, False))
    assert questions[0]["guide"] == "labels"
    assert {question["guide"] for question in questions[1:]} == {"strategy"}
    roles = {call.role for call in store.call_log.calls(store.run_ids()[0], with_texts=False)}
    assert roles == {"generation", "retry"}
    assert store.call_log.spent(store.run_ids()[0], 99) == len(model.prompts) * CALL_COST


def test_below_a_parent_graph_the_question_reaches_the_parents_caller():
    class Parent(TypedDict, total=False):
        best_score: float

    graph, model = graph_of(saver=True)
    builder = StateGraph(Parent)
    builder.add_node("search", graph)
    builder.add_edge(START, "search")
    builder.add_edge("search", END)
    parent = builder.compile(checkpointer=InMemorySaver())
    questions = list(answered(parent, "buy"))
    assert num_guides(model) == len(questions) >= 1


def test_without_a_saver_nobody_could_be_asked():
    model = ScriptedModel(answer=stuck, prompts=[])
    settings = Settings(price=PRICE, approve_guides=True)
    with pytest.raises(ValueError, match="approve_guides: got True with checkpointer None"):
        create_discovery_graph(toy_problem(), model, budget=1.0, settings=settings)


def test_the_picture_shows_who_decides():
    graph, _ = graph_of()
    drawn = graph.get_graph()
    edges = {(edge.source, edge.data, edge.target) for edge in drawn.edges}
    assert {
        ("gate_intervention", "intervention", "approve_guide"),
        ("approve_guide", "buy", "guide"),
        ("approve_guide", "question", "approve_guide"),
        ("approve_guide", "next step", "allocate_frontier"),
        ("approve_guide", "settle", "charge_ledger"),
    } <= edges
    assert not any(target == "guide" and source != "approve_guide" for source, _, target in edges)
