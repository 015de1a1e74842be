"""The ways to run the graph: streamed, awaited, nested, drained, resumed."""

import asyncio
import json
from functools import cache

import pytest
from fakes import ScriptedModel, rewrite, toy_problem
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command
from toy_graph import PRICE, graph_of, run_until, trace
from typing_extensions import TypedDict

from costada.controller.constants import Constants
from costada.graph.build import create_discovery_graph, superstep_limit
from costada.nodes.settings import Settings

THREAD = {"configurable": {"thread_id": "1"}}
CONSTANTS = Constants(max_iterations=10)


def search(**options):
    graph, _ = graph_of(constants=CONSTANTS, **options)
    return graph


@cache
def undisturbed():
    """Return the rows and the result of a run that nothing stops; it buys a guide."""
    graph = search(checkpointer=InMemorySaver())
    rows = trace(graph, config=THREAD)
    assert any("guide_charged" in row["events"] for row in rows)
    return rows, graph.invoke(None, THREAD)


def test_the_same_seed_gives_the_same_run_and_another_seed_another_one():
    graph = search()
    assert trace(graph) == undisturbed()[0]
    assert trace(graph, {"seed": 8}) != undisturbed()[0]


@pytest.mark.parametrize(
    "mode", ["values", "updates", "custom", "messages", "debug", "checkpoints", "tasks"]
)
def test_every_stream_mode_works_and_is_metered_alike(mode):
    graph = search(checkpointer=InMemorySaver())
    chunks = list(graph.stream({}, THREAD, stream_mode=mode))
    assert chunks
    assert graph.get_state(THREAD).values["spent"] == undisturbed()[1]["spent"]


def test_ainvoke_gives_the_same_result_as_invoke():
    assert asyncio.run(search().ainvoke({})) == undisturbed()[1]


def test_as_a_node_of_a_parent_graph_only_shared_keys_flow():
    class ParentState(TypedDict, total=False):
        seed: int
        best_program: str
        note: str

    child = search()
    parent = StateGraph(ParentState)
    parent.add_node("discover", child)
    parent.add_node("write", lambda state: {"note": state["best_program"][:5]})
    parent.add_edge(START, "discover")
    parent.add_edge("discover", "write")
    parent.add_edge("write", END)
    compiled = parent.compile(checkpointer=InMemorySaver())
    result = compiled.invoke({"seed": 7}, THREAD)
    assert set(result) == {"seed", "best_program", "note"}
    assert result["best_program"] == child.invoke({"seed": 7})["best_program"]


@pytest.mark.parametrize("iteration", [1, 5, 9])
def test_a_drained_run_resumed_from_its_file_ends_as_an_undisturbed_one(tmp_path, iteration):
    path = str(tmp_path / "run.sqlite")
    with SqliteSaver.from_conn_string(path) as saver:
        first = run_until(search(checkpointer=saver), THREAD, iteration)
    with SqliteSaver.from_conn_string(path) as saver:
        graph = search(checkpointer=saver)
        rest = list(graph.stream(None, THREAD, stream_mode="custom"))
        resumed = graph.get_state(THREAD).values
    rows, result = undisturbed()
    assert first + rest == rows
    assert resumed["best_program"] == result["best_program"]


def test_resuming_a_finished_run_returns_its_result_and_spends_nothing():
    graph, model = graph_of(checkpointer=InMemorySaver(), constants=CONSTANTS)
    first = graph.invoke({}, THREAD)
    num_calls = len(model.prompts)
    assert graph.invoke(None, THREAD) == first
    assert len(model.prompts) == num_calls


def test_a_new_input_on_a_finished_thread_starts_a_new_run_with_its_own_account():
    graph = search(checkpointer=InMemorySaver())
    first = graph.invoke({"seed": 7}, THREAD)
    assert graph.invoke({"seed": 8}, THREAD) != first
    assert graph.invoke({"seed": 7}, THREAD) == first


def test_a_new_run_on_a_thread_begins_with_nothing_of_the_last():
    """The first run fails at every attempt; the second is asked about its labels before a step."""
    answers = []
    settings = Settings(
        price=PRICE,
        method="evox",
        seed=3,
        max_failures=2,
        approve_guides=True,
        constants=Constants(max_iterations=2),
    )
    graph = create_discovery_graph(
        toy_problem(),
        ScriptedModel(answer=lambda prompt: answers.pop() if answers else "no", prompts=[]),
        budget=0.5,
        settings=settings,
        checkpointer=InMemorySaver(),
    )
    graph.invoke({"seed": 8}, THREAD)
    first = graph.invoke(Command(resume=False), THREAD)
    assert (first["stop_reason"], first["spent"] > 0) == ("failures", True)
    old = graph.get_state(THREAD).values
    answers.extend(map(rewrite, (0.6, 0.5)))
    (question,) = graph.invoke({}, THREAD)["__interrupt__"]
    assert (question.value["spent"], question.value["remaining"]) == (0.0, 0.5)
    begun = graph.get_state(THREAD).values
    kept = {name for name, value in old.items() if value and begun.get(name) == value}
    assert kept <= {"best", "best_score", "best_objective", "best_metrics", "controller"} | {
        "credit",
        "labels",
    }
    assert (begun["run_seed"], begun["best_score"]) == (3, 0.1)
    second = graph.invoke(Command(resume=False), THREAD)
    assert (second["stop_reason"], second["last_failure"]) == ("iterations", "")


def test_the_state_is_plain_small_and_passes_a_strict_serializer():
    strict = InMemorySaver(serde=JsonPlusSerializer(allowed_msgpack_modules=None))
    graph, _ = graph_of(checkpointer=strict, constants=Constants(max_iterations=25), budget=0.2)
    graph.invoke({}, THREAD)
    values = graph.get_state(THREAD).values
    saved = strict.get_tuple(THREAD).checkpoint["channel_values"]
    assert json.loads(json.dumps(saved)) == saved
    assert len(json.dumps({**saved, "best_program": ""})) < 3000
    typed = {name for name, value in values.items() if saved.get(name) != value}
    assert typed == {"controller", "credit"}


def test_a_resumed_run_without_its_programs_names_the_remedy():
    saver = InMemorySaver()
    run_until(search(checkpointer=saver), THREAD, 2)
    with pytest.raises(ValueError, match="give create_discovery_graph the store"):
        search(checkpointer=saver).invoke(None, THREAD)


def test_a_run_needs_no_recursion_limit_from_the_user():
    graph, _ = graph_of()
    assert graph.config["recursion_limit"] == superstep_limit(Constants())
    worst = Constants(max_iterations=4)
    failing, _ = graph_of(lambda prompt: "no", constants=worst, budget=10.0)
    assert failing.invoke({})["iterations"] == 4
