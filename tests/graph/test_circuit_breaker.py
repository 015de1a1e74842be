"""Too many attempts in a row without a usable program stop a run."""

from collections.abc import Iterator

import pytest
from billing_server import BillingServer, Refusal, Reply
from fakes import ScriptedModel, is_guide_prompt, rewrite, toy_problem
from langgraph.checkpoint.memory import InMemorySaver
from toy_graph import PRICE

from costada.controller.constants import Constants
from costada.graph.build import create_discovery_graph
from costada.models.chat_models import chat_model
from costada.nodes.settings import Settings
from costada.nodes.state import SearchState
from costada.store.run_store import RunStore

THREAD = {"configurable": {"thread_id": "run"}}
NOTHING = "I would rather not."
INVALID = rewrite(1.5)
"""A program that the evaluator refuses."""


def run(model, max_failures, *, iterations=30, store=None, max_attempts=3, checkpointer=None):
    settings = Settings(
        price=PRICE,
        max_failures=max_failures,
        constants=Constants(max_iterations=iterations, max_attempts=max_attempts),
    )
    graph = create_discovery_graph(
        toy_problem(), model, budget=1.0, settings=settings, store=store, checkpointer=checkpointer
    )
    return graph, graph.invoke({}, THREAD)


def saying(*answers: str) -> ScriptedModel:
    """Return a model that gives each answer once, then only refuses; guides bring nothing."""
    left: Iterator[str] = iter(answers)
    return ScriptedModel(
        answer=lambda prompt: NOTHING if is_guide_prompt(prompt) else next(left, NOTHING),
        prompts=[],
    )


def attempts(store: RunStore) -> list[object]:
    return [row["attempts"] for row in store.steps(store.run_ids()[0])]


@pytest.mark.parametrize("useless", [NOTHING, INVALID], ids=["no program", "refused program"])
def test_attempts_without_a_usable_program_are_counted_across_iterations(useless: str) -> None:
    store = RunStore()
    _, result = run(saying(*[useless] * 30), 7, store=store)
    assert (result["stop_reason"], result["iterations"]) == ("failures", 3)
    assert attempts(store) == [3, 3, 1]


def test_refused_requests_count_and_cost_no_more_than_the_limit(server: BillingServer) -> None:
    server.script(Reply(NOTHING))
    server.default = Refusal(400, "broken")
    model = chat_model("openai:stand-in", base_url=server.url, max_attempts=1)
    _, result = run(model, 5)
    assert len(server.requests) == 5
    assert result["stop_reason"] == "failures"
    assert "broken" in result["last_failure"]


def test_the_result_says_what_was_wrong_with_the_last_attempt() -> None:
    _, result = run(saying(*[NOTHING] * 3, INVALID), 4)
    assert result["last_failure"] == "value is 1.5; expected at most 1"


def test_a_usable_program_starts_the_count_anew() -> None:
    store = RunStore()
    good = rewrite(0.05)
    _, result = run(saying(*[NOTHING] * 4, good, *[NOTHING] * 3, good), 5, store=store)
    assert attempts(store) == [3, 2, 3, 1, 3, 2]
    assert result["stop_reason"] == "failures"


def test_a_run_that_succeeds_at_the_last_attempt_allowed_goes_on() -> None:
    good = rewrite(0.05)
    _, result = run(saying(*[NOTHING] * 2, good, *[NOTHING] * 2, good), 3, iterations=2)
    assert result["stop_reason"] == "iterations"
    assert "last_failure" not in result


def test_a_run_gone_on_with_has_all_its_attempts_again() -> None:
    store = RunStore()
    graph, _ = run(saying(), 4, store=store, checkpointer=InMemorySaver())
    graph.update_state(THREAD, SearchState(stop_reason=""), as_node="gate_intervention")
    result = graph.invoke(None, THREAD)
    assert (attempts(store), result["stop_reason"]) == ([3, 1, 3, 1], "failures")


def test_a_guide_without_tactics_is_no_attempt() -> None:
    store = RunStore()
    model = saying(*(rewrite(0.09 - number / 1000) for number in range(30)))
    _, result = run(model, 2, iterations=12, store=store)
    assert "guide" in {call.role for call in store.call_log.calls(store.run_ids()[0])}
    assert result["stop_reason"] == "iterations"
