"""The offline model with tools: it tries edits and hands in the better one."""

import pytest

from costada.controller.constants import Constants
from costada.evaluators.problem import Problem
from costada.evaluators.registry import problem
from costada.graph.build import create_discovery_graph
from costada.models.chat_models import chat_model
from costada.models.replies import message_from_text
from costada.nodes.settings import Settings
from costada.store.run_store import RunStore


@pytest.fixture(scope="module")
def packing() -> Problem:
    return problem("circle_packing")


def searched(packing: Problem, store: RunStore, mode: str = "custom"):
    settings = Settings(
        generator="agent", tool_evaluations=2, constants=Constants(max_iterations=3)
    )
    graph = create_discovery_graph(
        packing, chat_model("offline"), budget=1.0, settings=settings, store=store
    )
    return list(graph.stream({}, stream_mode=mode))


@pytest.fixture(scope="module")
def run(packing: Problem) -> tuple[RunStore, list[dict]]:
    store = RunStore()
    return store, searched(packing, store)


def test_each_step_ends_with_the_better_of_what_was_tried(run):
    store, rows = run
    (run_id,) = store.run_ids()
    for row in rows:
        ids = [f"{row['iteration']}.{row['attempts']}.{n}" for n in (1, 2)]
        tried = [each for name in ids if (each := store.candidates.find(run_id, name))]
        assert tried
        assert all(each.is_trial for each in tried)
        assert row["score"] == max(each.score for each in tried)


def test_its_answers_have_tokens_and_call_tools(run):
    store, _ = run
    calls = list(store.call_log.calls(store.run_ids()[0]))
    assert {call.finish_reason for call in calls} == {"tool_calls"}
    assert all(call.output_tokens > 2400 for call in calls)


def test_the_same_seed_makes_the_same_run(run, packing):
    _, rows = run
    assert searched(packing, RunStore()) == rows


def test_streamed_answers_call_tools_and_have_tokens_as_well(packing):
    store = RunStore()
    searched(packing, store, "messages")
    calls = list(store.call_log.calls(store.run_ids()[0]))
    assert {call.finish_reason for call in calls} == {"tool_calls"}
    assert {message_from_text(call.answer).tool_calls[0]["name"] for call in calls} >= {
        "evaluate_candidate",
        "submit",
    }
    assert all(call.output_tokens > 2400 for call in calls)
