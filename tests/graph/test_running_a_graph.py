"""The ways to run the graph: streamed, awaited, nested, drained, resumed."""

import asyncio
import json

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, StateGraph
from toy_graph import graph_of, run_until, trace
from typing_extensions import TypedDict

from costada.controller.constants import Constants
from costada.graph.build import superstep_limit


def test_the_same_seed_gives_the_same_run_and_another_seed_another_one():
    graph, _ = graph_of()
    assert trace(graph, {"seed": 7}) == trace(graph, {"seed": 7})
    assert trace(graph, {"seed": 7}) != trace(graph, {"seed": 8})


@pytest.mark.parametrize(
    "mode", ["values", "updates", "custom", "messages", "debug", "checkpoints", "tasks"]
)
def test_every_stream_mode_works_and_is_metered_alike(mode):
    graph, _ = graph_of(checkpointer=InMemorySaver())
    config = {"configurable": {"thread_id": mode}}
    chunks = list(graph.stream({}, config, stream_mode=mode))
    assert chunks
    plain, _ = graph_of()
    assert graph.get_state(config).values["spent"] == plain.invoke({})["spent"]


def test_ainvoke_gives_the_same_result_as_invoke():
    graph, _ = graph_of()
    assert asyncio.run(graph.ainvoke({})) == graph.invoke({})


def test_as_a_node_of_a_parent_graph_only_shared_keys_flow():
    class ParentState(TypedDict, total=False):
        seed: int
        best_program: str
        note: str

    child, _ = graph_of()
    parent = StateGraph(ParentState)
    parent.add_node("discover", child)
    parent.add_node("write", lambda state: {"note": state["best_program"][:5]})
    parent.add_edge(START, "discover")
    parent.add_edge("discover", "write")
    parent.add_edge("write", END)
    compiled = parent.compile(checkpointer=InMemorySaver())
    result = compiled.invoke({"seed": 7}, {"configurable": {"thread_id": "1"}})
    assert set(result) == {"seed", "best_program", "note"}
    assert result["best_program"] == child.invoke({"seed": 7})["best_program"]


@pytest.mark.parametrize("iteration", [1, 4, 9])
def test_a_drained_run_resumed_from_its_file_ends_as_an_undisturbed_one(tmp_path, iteration):
    config = {"configurable": {"thread_id": "1"}}
    path = str(tmp_path / "run.sqlite")
    with SqliteSaver.from_conn_string(path) as saver:
        graph, _ = graph_of(checkpointer=saver)
        first = run_until(graph, config, iteration)
    with SqliteSaver.from_conn_string(path) as saver:
        graph, _ = graph_of(checkpointer=saver)
        rest = list(graph.stream(None, config, stream_mode="custom"))
        resumed = graph.get_state(config).values
    undisturbed, _ = graph_of()
    assert first + rest == trace(undisturbed)
    assert resumed["best_program"] == undisturbed.invoke({})["best_program"]


def test_resuming_a_finished_run_returns_its_result_and_spends_nothing():
    graph, model = graph_of(checkpointer=InMemorySaver())
    config = {"configurable": {"thread_id": "1"}}
    first = graph.invoke({}, config)
    num_calls = len(model.prompts)
    assert graph.invoke(None, config) == first
    assert len(model.prompts) == num_calls


def test_a_new_input_on_a_finished_thread_starts_a_new_run_with_its_own_account():
    graph, _ = graph_of(checkpointer=InMemorySaver())
    config = {"configurable": {"thread_id": "1"}}
    first = graph.invoke({"seed": 7}, config)
    assert graph.invoke({"seed": 8}, config) != first
    assert graph.invoke({"seed": 7}, config) == first


def test_the_state_is_plain_small_and_passes_a_strict_serializer():
    strict = InMemorySaver(serde=JsonPlusSerializer(allowed_msgpack_modules=None))
    graph, _ = graph_of(checkpointer=strict, budget=0.2)
    config = {"configurable": {"thread_id": "1"}}
    graph.invoke({}, config)
    values = graph.get_state(config).values
    assert json.loads(json.dumps(values)) == values
    assert len(json.dumps({**values, "best_program": ""})) < 3000


def test_a_resumed_run_without_its_programs_names_the_remedy():
    saver = InMemorySaver()
    config = {"configurable": {"thread_id": "1"}}
    graph, _ = graph_of(checkpointer=saver)
    run_until(graph, config, 2)
    other, _ = graph_of(checkpointer=saver)
    with pytest.raises(ValueError, match="give create_discovery_graph the store"):
        other.invoke(None, config)


def test_a_run_needs_no_recursion_limit_from_the_user():
    graph, _ = graph_of()
    assert graph.config["recursion_limit"] == superstep_limit(Constants())
    worst = Constants(max_iterations=4)
    failing, _ = graph_of(lambda prompt: "no", constants=worst, budget=10.0)
    assert failing.invoke({})["iterations"] == 4
