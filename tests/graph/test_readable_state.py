"""What a caller reads of a run: results after each step, small checkpoints, candidates."""

import asyncio
import json

import httpx
import openai
import pytest
from fakes import ScriptedModel, hashed_answer, toy_problem
from langgraph.checkpoint.memory import InMemorySaver
from toy_graph import THREAD, discovery, graph_of, run_until

from costada.controller.constants import Constants
from costada.store.run_store import RunStore
from costada.values.evaluation import Evaluation


def test_values_and_custom_streams_have_the_best_program_after_each_step():
    graph, _ = graph_of()
    best, begun = {}, toy_problem().start.text
    for mode, part in graph.stream({}, stream_mode=["values", "custom"]):
        if mode == "custom":
            best[part["iteration"]] = (part["best_score"], part["best_program"])
        elif not part.get("iterations"):
            assert part["best_program"] == begun
        else:
            assert best[part["iterations"]] == (part["best_score"], part["best_program"])
    assert len(best) > 2
    assert all(f"{score:.4f}" in text for score, text in best.values() if score > 0.1)


def test_checkpoints_hold_the_name_of_the_best_program_and_a_resumed_run_its_text():
    saver, store = InMemorySaver(), RunStore()
    options = {"checkpointer": saver, "store": store, "constants": Constants(max_iterations=6)}
    graph, _ = graph_of(**options)
    run_until(graph, THREAD, 3)
    saved = saver.get_tuple(THREAD).checkpoint["channel_values"]["best_program"]
    again, _ = graph_of(**options)
    text = again.get_state(THREAD).values["best_program"]
    assert len(saved) == 64
    assert store.text(saved) == text
    assert "return" in text
    assert again.invoke(None, THREAD) == graph_of(constants=Constants(max_iterations=6))[0].invoke(
        {}
    )


def two_values(code):
    value = float(code.rpartition("return ")[2].split()[0])
    return Evaluation(
        score=value, objective=value, is_valid=True, metrics={"speed": value, "size": value}
    )


def test_the_front_is_in_the_state_after_each_step_as_the_store_has_it():
    problem = toy_problem(evaluate=two_values, objectives=("speed:max", "size:min"))
    store = RunStore()
    graph = discovery(problem=problem, budget=0.02, store=store)
    fronts = []
    for mode, part in graph.stream({}, stream_mode=["values", "custom"]):
        if mode == "custom":
            fronts.append(part["pareto_front"])
            assert len(part["pareto_front"]) == part["front"]
            assert {"best_program", "iteration", "spent", "remaining_ratio"} < part.keys()
            assert part.keys().isdisjoint(
                ("best_metrics", "in_doubt", "remaining", "iterations", "stop_reason")
            )
        elif part.get("iterations"):
            assert part["pareto_front"] == fronts[-1]
    candidates = {each.id: each for each in graph.candidates()}
    for member in fronts[-1]:
        metrics = candidates[member["candidate_id"]].metrics
        assert member["objectives"] == {
            "speed:max": metrics["speed"],
            "size:min": metrics["size"],
        }
    assert len(fronts[-1]) > 1


def test_the_candidates_of_a_run_in_memory_can_be_read_afterwards():
    store = RunStore()
    graph, _ = graph_of(checkpointer=InMemorySaver(), store=store)
    found = graph.invoke({}, THREAD)
    graph.invoke({"seed": 5}, {"configurable": {"thread_id": "2"}})
    candidates = graph.candidates(THREAD)
    assert candidates[0].program.text == toy_problem().start.text
    assert max(each.score for each in candidates) == found["best_score"]
    rows = store.steps(store.run_ids()[0])
    assert {row["candidate_id"] for row in rows} - {None} < {each.id for each in candidates}
    with pytest.raises(ValueError, match="config: got None, which names no thread_id"):
        graph.candidates()
    with pytest.raises(ValueError, match=r"config: got \{\}, which names no thread_id"):
        graph.candidates({})
    with pytest.raises(ValueError, match="which names no run in the graph's store"):
        graph.candidates({"configurable": {"thread_id": "3"}})


def test_dollars_of_a_call_whose_bill_is_unknown_are_in_doubt():
    """The second call times out: its upper bound is charged, and shown apart."""
    calls = []

    def answer(prompt):
        calls.append(prompt)
        if len(calls) == 2:
            raise openai.APITimeoutError(httpx.Request("POST", "http://localhost"))
        return hashed_answer(prompt)

    store = RunStore()
    model = ScriptedModel(answer=answer, prompts=[])
    graph = discovery(model, budget=0.5, iterations=4, store=store)
    found = graph.invoke({})
    bounds = [call.bound for call in store.call_log.calls(store.run_ids()[0])]
    assert found["in_doubt"] == pytest.approx(float(sum(bounds)))
    assert 0 < found["in_doubt"] < found["spent"]
    assert json.dumps(found)


@pytest.mark.parametrize("is_async", [False, True])
def test_a_saver_that_outlives_a_store_in_memory_keeps_everything_else(is_async):
    saver = InMemorySaver()
    found = discovery(saver=saver, iterations=2).invoke({}, THREAD)
    later = discovery(saver=saver, iterations=4)
    state = asyncio.run(later.aget_state(THREAD)) if is_async else later.get_state(THREAD)
    assert state.values["spent"] == found["spent"]
    assert state.values["best_score"] == found["best_score"]
    assert "best_program" not in state.values
    assert len(list(later.get_state_history(THREAD))) > 10
    with pytest.raises(ValueError, match="which names no run in the graph's store"):
        later.candidates(THREAD)


def test_a_run_without_its_store_is_not_resumed_and_the_error_says_what_is_missing():
    saver = InMemorySaver()
    discovery(saver=saver).invoke({}, THREAD, interrupt_before=["generate"])
    later = discovery(saver=saver)
    with pytest.raises(ValueError, match="the store that the run was started with"):
        later.invoke(None, THREAD)
    assert later.get_state(THREAD).next == ("generate",)


def test_a_run_file_that_lost_the_best_program_is_refused(tmp_path):
    saver = InMemorySaver()
    with RunStore(tmp_path / "first.sqlite") as store:
        discovery(saver=saver, store=store, iterations=1).invoke({}, THREAD)
    with (
        RunStore(tmp_path / "second.sqlite") as store,
        pytest.raises(ValueError, match="the store that the run was started with"),
    ):
        discovery(saver=saver, store=store).get_state(THREAD)
