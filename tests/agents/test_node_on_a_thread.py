"""A node whose search keeps itself: it has a saver and a thread of its own."""

import asyncio
from functools import cache

import pytest
from fakes import ScriptedModel, evaluate_value, hashed_answer, stopping_evaluation, toy_problem
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command
from typing_extensions import TypedDict

from costada.agents.node import as_discovery_node
from costada.graph.build import compile_search
from costada.nodes.settings import Settings
from costada.store.run_store import RunStore
from costada.values.usage import Price

THREAD = {"configurable": {"thread_id": "parent"}}
BUDGET = 0.012
OUTPUT = {"best_program": "code", "spent": "dollars"}


class ReportState(TypedDict, total=False):
    ticket: str
    code: str
    dollars: float


def search(saver, *, evaluate=evaluate_value, on_exhausted="stop", budget=BUDGET, store=None):
    model = ScriptedModel(answer=hashed_answer, prompts=[])
    settings = Settings(price=Price("1", "2"), on_exhausted=on_exhausted)
    graph = compile_search(
        toy_problem(evaluate=evaluate),
        model,
        budget=budget,
        settings=settings,
        checkpointer=saver,
        store=store,
    )
    return graph, model


def pipeline(graph, saver=None):
    parent = StateGraph(ReportState)
    node = as_discovery_node(graph, output=OUTPUT, thread=lambda state: state["ticket"])
    parent.add_node("discover", node)
    parent.add_edge(START, "discover")
    parent.add_edge("discover", END)
    return parent.compile(checkpointer=saver)


@cache
def undisturbed():
    graph, model = search(None)
    return graph.invoke({}), model.prompts


def check_is_resumed(state, model):
    expected, prompts = undisturbed()
    assert state == {"ticket": "a", "code": expected["best_program"], "dollars": expected["spent"]}
    assert 0 < len(model.prompts) < len(prompts)


def test_a_stopped_search_is_resumed_though_its_parent_saves_nothing(tmp_path):
    path = str(tmp_path / "search.sqlite")
    with SqliteSaver.from_conn_string(path) as saver:
        graph, _ = search(saver, evaluate=stopping_evaluation(5))
        with pytest.raises(InterruptedError):
            pipeline(graph).invoke({"ticket": "a"})
    with SqliteSaver.from_conn_string(path) as saver:
        graph, model = search(saver)
        check_is_resumed(pipeline(graph).invoke({"ticket": "a"}), model)
        num_calls = len(model.prompts)
        assert pipeline(graph).invoke({"ticket": "a"})["dollars"] == BUDGET
        assert len(model.prompts) == num_calls
        pipeline(graph).invoke({"ticket": "b"})
        assert len(model.prompts) > num_calls


def test_it_does_so_in_an_event_loop(tmp_path):
    path = str(tmp_path / "search.sqlite")

    async def run(evaluate):
        async with AsyncSqliteSaver.from_conn_string(path) as saver:
            with RunStore(tmp_path / "programs") as store:
                graph, model = search(saver, evaluate=evaluate, store=store)
                return await pipeline(graph).ainvoke({"ticket": "a"}), model

    with pytest.raises(InterruptedError):
        asyncio.run(run(stopping_evaluation(5)))
    check_is_resumed(*asyncio.run(run(evaluate_value)))


def test_the_saver_of_the_parent_and_that_of_the_search_do_not_mix(tmp_path):
    own, parents = InMemorySaver(), InMemorySaver()
    graph, _ = search(own)
    parent = pipeline(graph, parents)
    rows = list(parent.stream({"ticket": "a"}, THREAD, stream_mode="custom"))
    assert [row["iteration"] for row in rows] == list(range(1, len(rows) + 1))
    assert {saved.config["configurable"]["thread_id"] for saved in own.list(None)} == {"a"}
    assert {saved.config["configurable"]["thread_id"] for saved in parents.list(None)} == {"parent"}
    assert parent.get_state(THREAD).values["dollars"] == rows[-1]["spent"]


def question(state):
    (interrupt,) = state["__interrupt__"]
    return interrupt.value


@pytest.mark.parametrize("is_async", [False, True])
def test_no_answer_reaches_another_question(is_async):
    graph, _ = search(InMemorySaver(), budget=0.004, on_exhausted="interrupt")
    parent = pipeline(graph, InMemorySaver())

    def answer(given):
        config = {**THREAD, "recursion_limit": 5}
        return (
            asyncio.run(parent.ainvoke(given, config)) if is_async else parent.invoke(given, config)
        )

    first = question(answer({"ticket": "a"}))
    assert first["budget"] == 0.004
    second = question(answer(Command(resume={"budget": 0.008})))
    assert (second["budget"], second["refused"]) == (0.008, "")
    refused = question(answer(Command(resume={"budget": 0.006})))
    assert "expected finite dollars above" in refused["refused"]
    third = question(answer(Command(resume={"budget": 0.012})))
    assert (third["budget"], third["refused"]) == (0.012, "")
    ended = answer(Command(resume="stop"))
    assert ended["dollars"] == third["spent"] > second["spent"] > first["spent"]


def test_a_question_is_asked_again_where_the_parent_forgot_it():
    graph, model = search(InMemorySaver(), budget=0.004, on_exhausted="interrupt")
    first = question(pipeline(graph, InMemorySaver()).invoke({"ticket": "a"}, THREAD))
    num_calls = len(model.prompts)
    another = pipeline(graph, InMemorySaver())
    assert question(another.invoke({"ticket": "a"}, THREAD)) == first
    assert len(model.prompts) == num_calls
    assert another.invoke(Command(resume="stop"), THREAD)["dollars"] == first["spent"]


@pytest.mark.parametrize(
    ("saver", "thread", "text"),
    [
        (InMemorySaver(), None, "thread: got None for a graph with a InMemorySaver of its own"),
        (None, lambda state: "a", "thread: got one for a graph with checkpointer None, expected"),
        (True, lambda state: "a", "thread: got one for a graph with checkpointer True, expected"),
    ],
)
def test_a_saver_and_a_thread_go_together(saver, thread, text):
    with pytest.raises(ValueError, match=text):
        as_discovery_node(search(saver)[0], output=OUTPUT, thread=thread)
