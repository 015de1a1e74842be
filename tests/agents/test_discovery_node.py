"""A search as a node of a graph with a state of its own: sync, async, streamed, interrupted."""

import asyncio
from functools import cache

import pytest
from fakes import ScriptedModel, hashed_answer, toy_problem
from langchain_core.runnables import RunnableLambda
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command
from typing_extensions import TypedDict

from costada import Choices, create_discovery_graph
from costada.agents.node import as_discovery_node
from costada.graph.build import compile_search
from costada.graph.compiled import DiscoveryGraph
from costada.nodes.settings import Settings
from costada.store.run_store import RunStore
from costada.values.usage import Price

BUDGET = 0.015
THREAD = {"configurable": {"thread_id": "1"}}
NARROW = {"recursion_limit": 25}
"""Superstep limit of a parent: enough for three iterations of a search, not for its run."""

OUTPUT = {"best_program": "code", "spent": "dollars", "iterations": "steps"}


class ReportState(TypedDict, total=False):
    number: int
    code: str
    dollars: float
    steps: int
    text: str


def search(*, problem=None, budget=BUDGET, on_exhausted="stop", **options):
    model = ScriptedModel(answer=hashed_answer, prompts=[])
    settings = Settings(price=Price("1", "2"), on_exhausted=on_exhausted)
    problem = problem or toy_problem()
    graph = compile_search(problem, model, budget=budget, settings=settings, **options)
    return graph, model


def limited_search(**options):
    """A search whose caller chooses its budget."""
    model = ScriptedModel(answer=hashed_answer, prompts=[])
    graph = create_discovery_graph(
        toy_problem(),
        model,
        budget=BUDGET,
        price=Price("1", "2"),
        choices=Choices(max_budget=BUDGET),
        **options,
    )
    return graph, model


def pipeline(graph, saver=None, **options):
    options = {"output": OUTPUT, "input": {"seed": "number"}, **options}
    parent = StateGraph(ReportState)
    parent.add_node("plan", lambda state: {"number": 7})
    parent.add_node("discover", as_discovery_node(graph, **options))
    parent.add_node("write", lambda state: {"text": f"{state['steps']} steps"})
    parent.add_edge(START, "plan")
    parent.add_edge("plan", "discover")
    parent.add_edge("discover", "write")
    parent.add_edge("write", END)
    return parent.compile(checkpointer=saver)


@cache
def alone():
    """Return the result of a search without a parent, and the number of its calls."""
    graph, model = search()
    return graph.invoke({"seed": 7}), len(model.prompts)


def check_reported(state):
    expected, _ = alone()
    assert expected["iterations"] > 3
    assert state == {
        "number": 7,
        "code": expected["best_program"],
        "dollars": expected["spent"],
        "steps": expected["iterations"],
        "text": f"{expected['iterations']} steps",
    }


def test_mappings_translate_between_the_state_and_the_search():
    check_reported(pipeline(search()[0]).invoke({}))


def test_an_async_parent_gets_the_same():
    check_reported(asyncio.run(pipeline(search()[0]).ainvoke({})))


def test_functions_translate_too():
    state = pipeline(
        search()[0],
        input=lambda state: {"seed": state["number"] + 1},
        output=lambda found: {"steps": found["iterations"], "code": found["stop_reason"]},
    ).invoke({})
    assert state["code"] == "budget"
    assert state["steps"] == search()[0].invoke({"seed": 8})["iterations"]


def test_a_key_that_the_state_does_not_have_yet_is_left_to_the_settings():
    parent = StateGraph(ReportState)
    parent.add_node(
        "discover", as_discovery_node(search()[0], input={"seed": "number"}, output=OUTPUT)
    )
    parent.add_edge(START, "discover")
    assert parent.compile().invoke({})["code"] == search()[0].invoke({})["best_program"]


@pytest.mark.parametrize("mode", [None, False])
def test_a_low_limit_of_the_parent_is_not_the_searchs(mode):
    graph, _ = search(checkpointer=mode)
    check_reported(pipeline(graph).invoke({}, NARROW))
    check_reported(asyncio.run(pipeline(graph).ainvoke({}, NARROW)))


def test_a_low_limit_of_the_parent_is_not_the_searchs_with_shared_keys_either():
    class Shared(TypedDict, total=False):
        seed: int
        iterations: int

    parent = StateGraph(Shared)
    parent.add_node("discover", search()[0])
    parent.add_edge(START, "discover")
    assert parent.compile().invoke({"seed": 7}, NARROW)["iterations"] == alone()[0]["iterations"]


def test_chains_batches_and_event_streams_hand_no_limit_down():
    expected = alone()[0]["iterations"]
    graph, _ = search()
    start = RunnableLambda(lambda number: {"seed": number})
    numbered = RunnableLambda(lambda number: {"number": number})

    async def num_steps(chain):
        events = [event async for event in chain.astream_events(7, NARROW, version="v2")]
        ends = [event["name"] for event in events if event["event"] == "on_chain_end"]
        return ends.count("gate_intervention")

    assert (start | graph).invoke(7)["iterations"] == expected
    node = as_discovery_node(graph, input={"seed": "number"}, output=OUTPUT)
    assert (numbered | node).invoke(7)["steps"] == expected
    assert [one["iterations"] for one in (start | graph).batch([7, 7], NARROW)] == [expected] * 2
    assert asyncio.run(num_steps(start | graph)) == expected


def test_a_limit_set_on_the_graph_itself_holds():
    graph, _ = search()
    limited = graph.with_config(recursion_limit=5)
    assert isinstance(limited, DiscoveryGraph)
    with pytest.raises(RecursionError, match="limit of 5 "):
        limited.invoke({})


def test_the_trace_rows_come_out_of_the_parents_stream():
    steps = list(range(1, alone()[0]["iterations"] + 1))
    parent = pipeline(search()[0])
    rows = list(parent.stream({}, stream_mode="custom"))
    assert [row["iteration"] for row in rows] == steps

    async def streamed():
        return [row async for row in parent.astream({}, stream_mode="custom")]

    assert asyncio.run(streamed()) == rows


def breaking_off(number):
    """Return a problem whose `number`-th evaluation is asked to stop."""
    judged = []

    def evaluate(code):
        judged.append(code)
        if len(judged) == number:
            raise InterruptedError("asked to stop")
        return toy_problem().evaluate(code)

    return toy_problem(evaluate=evaluate)


@pytest.mark.parametrize(("mode", "is_kept"), [(None, True), (True, True), (False, False)])
def test_under_a_saver_of_the_parent_a_stopped_search_is_resumed(tmp_path, mode, is_kept):
    path = str(tmp_path / "parent.sqlite")
    with SqliteSaver.from_conn_string(path) as saver, RunStore(tmp_path / "programs") as store:
        graph, _ = search(problem=breaking_off(5), checkpointer=mode, store=store)
        with pytest.raises(InterruptedError):
            pipeline(graph, saver).invoke({}, THREAD, durability="sync")
    with SqliteSaver.from_conn_string(path) as saver, RunStore(tmp_path / "programs") as store:
        graph, model = search(checkpointer=mode, store=store)
        check_reported(pipeline(graph, saver).invoke(None, THREAD, durability="sync"))
    assert (len(model.prompts) < alone()[1]) is is_kept


@pytest.mark.parametrize("mode", [None, True])
def test_under_an_async_saver_of_the_parent_a_stopped_search_is_resumed(tmp_path, mode):
    path = str(tmp_path / "parent.sqlite")

    async def run(given, problem=None):
        async with AsyncSqliteSaver.from_conn_string(path) as saver:
            with RunStore(tmp_path / "programs") as store:
                graph, model = search(problem=problem, checkpointer=mode, store=store)
                return await pipeline(graph, saver).ainvoke(given, THREAD), model

    with pytest.raises(InterruptedError):
        asyncio.run(run({}, breaking_off(5)))
    state, model = asyncio.run(run(None))
    check_reported(state)
    assert len(model.prompts) < alone()[1]


def test_each_visit_of_the_node_is_a_run_of_its_own():
    parent = pipeline(search()[0], InMemorySaver())
    check_reported(parent.invoke({}, THREAD))
    check_reported(parent.invoke({}, THREAD))


def test_each_visit_of_a_node_with_a_lasting_state_is_a_run_of_its_own():
    parent = pipeline(search(checkpointer=True)[0], InMemorySaver())
    check_reported(parent.invoke({}, THREAD))
    check_reported(parent.invoke({}, THREAD))


def question(state):
    (interrupt,) = state["__interrupt__"]
    return interrupt.value


@pytest.mark.parametrize("is_async", [False, True])
def test_every_answer_reaches_the_question_it_was_given_to(is_async):
    graph, _ = search(budget=0.004, on_exhausted="interrupt", checkpointer=True)
    parent = pipeline(graph, InMemorySaver())

    def answer(given):
        return (
            asyncio.run(parent.ainvoke(given, THREAD)) if is_async else parent.invoke(given, THREAD)
        )

    first = question(answer({}))
    assert first["budget"] == 0.004
    second = question(answer(Command(resume={"budget": 0.008})))
    assert second["budget"] == 0.008
    assert second["spent"] > first["spent"]
    refused = question(answer(Command(resume={"budget": 0.006})))
    assert "expected finite dollars above" in refused["refused"]
    assert refused["spent"] == second["spent"]
    third = question(answer(Command(resume={"budget": 0.012})))
    assert third["budget"] == 0.012
    ended = answer(Command(resume="stop"))
    assert ended["dollars"] == third["spent"]
    assert ended["text"] == f"{ended['steps']} steps"


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (
            {"output": {"program": "code"}},
            "output: got key 'program', expected one of best_program",
        ),
        ({"output": {}, "input": {"budget": "b"}}, "input: got key 'budget', expected one of seed"),
    ],
)
def test_a_mapping_of_keys_that_a_search_does_not_have_is_refused(options, text):
    with pytest.raises(ValueError, match=text):
        as_discovery_node(search()[0], **options)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"output": {"best_program": "cod"}}, "output: got 'cod' for 'best_program'"),
        ({"input": {"seed": "nubmer"}}, "input: got 'nubmer' for 'seed'"),
        ({"context": {"budget": "money"}}, "context: got 'money' for 'budget'"),
        ({"context": {"budget": "money"}, "thread": lambda state: "1"}, "context: got 'money' for"),
    ],
)
@pytest.mark.parametrize("is_async", [False, True])
def test_a_key_that_the_state_of_the_outer_graph_lacks_is_refused_before_any_call(
    options, text, is_async
):
    saver = InMemorySaver() if "thread" in options else None
    graph, model = limited_search(checkpointer=saver)
    parent = pipeline(graph, **options)
    expected = f"{text}.*expected one of its keys: number, code, dollars, steps, text"
    with pytest.raises(ValueError, match=expected):
        asyncio.run(parent.ainvoke({})) if is_async else parent.invoke({})
    assert model.prompts == []


def test_a_step_of_a_chain_reads_what_the_step_before_gives():
    graph, _ = limited_search()
    funded = RunnableLambda(lambda state: {"money": 0.005})
    node = as_discovery_node(graph, context={"budget": "money"}, output=OUTPUT)
    parent = StateGraph(ReportState)
    parent.add_node("discover", funded | node)
    parent.add_edge(START, "discover")
    alone = search(budget=0.005)[0].invoke({})
    assert parent.compile().invoke({})["steps"] == alone["iterations"]
