"""A run in which no request is ever answered usably ends as failed, after a few requests."""

import pytest
from billing_server import BillingServer, HangUp, Page, Refusal, Reply
from fakes import IDEAS, is_guide_prompt, rewrite, toy_problem
from langgraph.checkpoint.memory import InMemorySaver

from costada.controller.constants import Constants
from costada.graph.build import create_discovery_graph
from costada.models.chat_models import chat_model
from costada.nodes.settings import Settings
from costada.store.run_store import RunStore
from costada.values.prices import Price

DOUBT = 0.064
"""Dollars that one unanswered request may have cost: 32,000 tokens at $2 a million, and more."""

THREAD = {"configurable": {"thread_id": "run"}}


def graph_of(server, store=None, *, guide=None, attempts=3, step_attempts=3, **settings):
    model = chat_model("openai:stand-in", base_url=server.url, retry_wait=0, max_attempts=attempts)
    constants = Constants(max_iterations=9, max_attempts=step_attempts)
    return create_discovery_graph(
        toy_problem(),
        model,
        budget=DOUBT,
        guide_model=guide,
        settings=Settings(price=Price(1, 2), constants=constants, **settings),
        store=store,
        checkpointer=InMemorySaver(),
    )


@pytest.mark.parametrize("body", [b"<html>hello</html>", b"[1]", b"{}", b'{"choices": null}'])
@pytest.mark.parametrize("mode", ["values", "messages"])
def test_an_answer_that_is_not_of_the_protocol_ends_the_run_after_one_request(
    server: BillingServer, body: bytes, mode: str
) -> None:
    server.default = Page(body)
    with pytest.raises(ValueError, match=r"'stand-in' .* check the model's name and base_url"):
        list(graph_of(server).stream({}, THREAD, stream_mode=mode))
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (HangUp(), "Connection error"),
        (Refusal(503, "busy"), "busy"),
        (Refusal(429, "slow down"), "slow down"),
        (Reply(""), "the answer holds no text"),
        (Reply(body=b'{"error": {"message": "upstream", "code": 502}}'), "upstream"),
    ],
    ids=str,
)
@pytest.mark.parametrize("attempts", [1, 3])
def test_a_run_without_one_usable_answer_fails_after_three_requests_with_the_reason(
    server: BillingServer, answer: object, reason: str, attempts: int
) -> None:
    server.default = answer
    with pytest.raises(ValueError, match=f"none of the 3 requests .* answered.*{reason}"):
        graph_of(server, attempts=attempts).invoke({}, THREAD)
    assert len(server.requests) == 3


def test_such_a_run_goes_on_from_there_once_the_provider_answers(server: BillingServer) -> None:
    server.script(HangUp(), HangUp(), HangUp())
    graph = graph_of(server)
    with pytest.raises(ValueError, match="none of the 3 requests"):
        graph.invoke({}, THREAD)
    server.default = Reply(rewrite(0.5))
    result = graph.invoke(None, THREAD)
    assert (result["best_score"], result["stop_reason"]) == (0.5, "budget")
    assert result["spent"] > 3 * DOUBT


@pytest.mark.parametrize("policy", ["crossing", "hard"])
def test_doubtful_requests_that_reach_the_budget_first_are_a_failure_and_no_success(
    server: BillingServer, policy: str
) -> None:
    """One lost request already reaches the budget; the step allows no second one."""
    server.default = HangUp()
    graph = graph_of(server, attempts=1, step_attempts=1, budget_policy=policy)
    result = graph.invoke({}, THREAD)
    assert result["stop_reason"] == "failures"
    assert "no request was ever answered" in result["last_failure"]
    assert "Connection error" in result["last_failure"]


def test_a_last_iteration_without_any_answer_is_a_failure_too(server: BillingServer) -> None:
    server.default = Refusal(500, "broken")
    model = chat_model("openai:stand-in", base_url=server.url, retry_wait=0, max_attempts=1)
    constants = Constants(max_iterations=1, max_attempts=2)
    graph = create_discovery_graph(
        toy_problem(), model, budget=1, settings=Settings(price=Price(1, 2), constants=constants)
    )
    result = graph.invoke({})
    assert (result["stop_reason"], result["iterations"]) == ("failures", 1)
    assert "broken" in result["last_failure"]


def test_a_budget_that_pays_for_no_first_request_is_used_up_and_no_failure(
    server: BillingServer,
) -> None:
    settings = Settings(price=Price(1, 2), budget_policy="hard")
    model = chat_model("openai:stand-in", base_url=server.url)
    graph = create_discovery_graph(toy_problem(), model, budget=1e-6, settings=settings)
    assert graph.invoke({})["stop_reason"] == "budget"
    assert server.requests == []


def test_pages_after_a_good_answer_are_failed_attempts(server: BillingServer) -> None:
    store = RunStore()
    server.script(Reply(rewrite(0.2)), Page(), Reply(rewrite(0.4)))
    model = chat_model("openai:stand-in", base_url=server.url, retry_wait=0)
    constants = Constants(max_iterations=2)
    graph = create_discovery_graph(
        toy_problem(),
        model,
        budget=1,
        settings=Settings(price=Price(1, 2), constants=constants),
        store=store,
    )
    assert graph.invoke({})["best_score"] == 0.4
    assert [row["attempts"] for row in store.steps(store.run_ids()[0])] == [1, 2]


def test_a_guide_of_its_own_that_never_answers_ends_the_run_as_well(server: BillingServer) -> None:
    """What the generating model answers says nothing about another server."""

    def answer(body):
        is_guide = body["model"] == "guide"
        assert is_guide == is_guide_prompt(body["messages"][-1]["content"])
        return Page() if is_guide else Reply(rewrite(0.3))

    server.default = answer
    guide = chat_model("openai:guide", base_url=server.url, retry_wait=0)
    model = chat_model("openai:stand-in", base_url=server.url, retry_wait=0)
    settings = Settings(
        price=Price(1, 2), guide_price=Price(1, 2), constants=Constants(max_iterations=60)
    )
    graph = create_discovery_graph(
        toy_problem(), model, budget=9, guide_model=guide, settings=settings
    )
    with pytest.raises(ValueError, match=r"'guide' .* check the model's name and base_url"):
        graph.invoke({})
    assert [body["model"] for body in server.requests].count("guide") == 1
    assert IDEAS not in str(server.requests)
