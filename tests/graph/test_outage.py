"""A provider that answers nobody for a while pauses a run; nothing of the run is used up by it."""

import asyncio
import logging
import threading
from decimal import Decimal
from time import monotonic

import pytest
from billing_server import BillingServer, HangUp, Refusal, Reply, Silence
from fakes import IDEAS, hashed_answer, is_guide_prompt, rewrite, toy_problem
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.runtime import RunControl

from costada.controller.constants import Constants
from costada.evaluators.sandbox.cancellation import CancellationToken, current_token
from costada.graph.build import create_discovery_graph
from costada.models.chat_models import chat_model
from costada.models.retry_policy import RetryPolicy
from costada.nodes.settings import Settings
from costada.store.run_store import RunStore
from costada.values.prices import Price

THREAD = {"configurable": {"thread_id": "run"}}
BRIEF = RetryPolicy(retry_wait=0.001, longest_wait=0.02)
GOOD = Reply(rewrite(0.3))


def answer_like_a_model(body) -> Reply:
    prompt = body["messages"][-1]["content"]
    return Reply(IDEAS if is_guide_prompt(prompt) else hashed_answer(prompt), 1000, 500)


def graph_of(server, store=None, *, iterations=3, budget=1.0, policy=BRIEF, timeout=20, **settings):
    model = chat_model(
        "openai:stand-in", base_url=server.url, retry_wait=0, timeout=timeout, max_tokens=1000
    )
    return create_discovery_graph(
        toy_problem(),
        model,
        budget=budget,
        settings=Settings(
            price=Price(1, 2),
            constants=Constants(max_iterations=iterations),
            retry_policy=policy,
            **settings,
        ),
        store=store,
        checkpointer=InMemorySaver(),
    )


def decisions(store: RunStore) -> list[dict[str, object]]:
    free = ("spent", "step_cost", "remaining_ratio")
    (run_id,) = store.run_ids()
    return [{k: v for k, v in row.items() if k not in free} for row in store.steps(run_id)]


@pytest.mark.parametrize("failure", [Refusal(503, "down"), Refusal(429, "slow")], ids=str)
def test_a_run_ends_after_an_outage_as_it_would_have_without(
    server: BillingServer, failure: Refusal
) -> None:
    calm, hit = RunStore(), RunStore()
    server.default = answer_like_a_model
    expected = graph_of(server, calm).invoke({}, THREAD)
    asked = len(server.requests)
    server.begin_anew(answer_like_a_model).script(answer_like_a_model, *[failure] * 9)
    result = graph_of(server, hit).invoke({}, THREAD)
    assert len(server.requests) == asked + 9
    assert result == expected
    assert list(hit.steps(hit.run_ids()[0])) == list(calm.steps(calm.run_ids()[0]))


def test_a_pause_says_what_it_waits_for_and_that_it_is_over(
    server: BillingServer, caplog: pytest.LogCaptureFixture
) -> None:
    server.script(GOOD, *[Refusal(503, "down")] * 4, GOOD)
    with caplog.at_level(logging.WARNING, "costada"):
        graph_of(server, iterations=2).invoke({}, THREAD)
    *paused, over = [record.getMessage() for record in caplog.records]
    assert len(paused) == 2
    for line in paused:
        assert line.startswith("Paused: the provider does not answer (")
        assert "Error code: 503" in line
        assert "Next try in 0 s; the run stops, saved, at " in line
    assert over == "The provider answers again after 0 s; the run continues"


def test_one_request_is_enough_to_see_that_an_outage_lasts(server: BillingServer) -> None:
    """The first call has its three requests; each further one asks once, for it may be billed."""
    store = RunStore()
    server.script(GOOD, *[HangUp()] * 7, GOOD)
    result = graph_of(server, store, iterations=2).invoke({}, THREAD)
    lost = [call for call in store.call_log.calls(store.run_ids()[0]) if call.error]
    assert [call.is_in_doubt for call in lost] == [True] * 7
    assert [call.attempt for call in lost] == [1] * 7
    assert result["spent"] == pytest.approx(
        float(sum((call.bound for call in lost), Decimal(0))) + 2 * 20 / 1e6
    )


def test_a_pause_has_an_end_and_the_run_is_resumed_where_it_was(server: BillingServer) -> None:
    calm, hit = RunStore(), RunStore()
    server.default = answer_like_a_model
    expected = graph_of(server, calm).invoke({}, THREAD)
    server.begin_anew(Refusal(503, "down")).script(answer_like_a_model)
    short = RetryPolicy(retry_wait=0.01, longest_wait=0.01, longest_pause=0.1)
    graph = graph_of(server, hit, policy=short)
    began = monotonic()
    with pytest.raises(ValueError, match=r"not answered for longest_pause \(0\.1 s\).*resume"):
        graph.invoke({}, THREAD)
    assert 0.1 <= monotonic() - began < 5
    assert graph.get_state(THREAD).values["iterations"] == 1
    server.default = answer_like_a_model
    assert graph.invoke(None, THREAD) == expected
    assert decisions(hit) == decisions(calm)


def test_a_provider_that_asks_for_no_wait_is_not_flooded(server: BillingServer) -> None:
    """Three requests of the first call, then one each 0.1 seconds."""
    server.script(GOOD)
    server.default = Refusal(429, "slow", headers={"Retry-After": "0"})
    policy = RetryPolicy(retry_wait=0.1, longest_wait=0.1, longest_pause=0.5)
    with pytest.raises(ValueError, match="not answered for longest_pause"):
        graph_of(server, policy=policy).invoke({}, THREAD)
    assert len(server.requests) <= 1 + 3 + 6


@pytest.mark.parametrize("policy", ["crossing", "hard"])
def test_requests_lost_in_an_outage_do_not_make_a_used_up_budget_a_success(
    server: BillingServer, policy: str
) -> None:
    """A request may cost between $0.003 and $0.004, of which the budget bears three."""
    server.script(GOOD)
    server.default = HangUp()
    with pytest.raises(ValueError, match=r"does not answer, and its lost requests may have been"):
        graph_of(server, budget=0.0115, budget_policy=policy).invoke({}, THREAD)
    assert 4 <= len(server.requests) <= 5


def test_a_wait_that_is_too_long_stops_the_run_saved(server: BillingServer) -> None:
    server.script(GOOD, Refusal(429, headers={"Retry-After": "3600"}))
    graph = graph_of(server, iterations=2)
    with pytest.raises(ValueError, match=r"asks to wait 3600 s, longer .* resume after 20"):
        graph.invoke({}, THREAD)
    server.default = Reply(rewrite(0.5))
    assert graph.invoke(None, THREAD)["iterations"] == 2
    assert len(server.requests) == 3


def test_one_call_that_timed_out_is_a_failed_attempt_and_two_in_a_row_are_an_outage(
    server: BillingServer,
) -> None:
    """Each call sends three requests; the outage takes one more to be seen as over."""
    store = RunStore()
    server.script(GOOD, *[Silence()] * 3, *[Silence()] * 5, GOOD)
    graph_of(server, store, iterations=2, timeout=0.1).invoke({}, THREAD)
    assert [row["attempts"] for row in store.steps(store.run_ids()[0])] == [1, 2]


def test_a_request_of_a_pause_that_times_out_is_part_of_the_outage(server: BillingServer) -> None:
    store = RunStore()
    server.script(GOOD, *[Refusal(503, "down")] * 3, Silence(), GOOD)
    graph_of(server, store, iterations=2, timeout=0.1).invoke({}, THREAD)
    assert [row["attempts"] for row in store.steps(store.run_ids()[0])] == [1, 1]


def test_a_pause_ends_as_soon_as_the_run_is_to_stop(server: BillingServer) -> None:
    server.script(GOOD)
    server.default = Refusal(503, "down")
    graph = graph_of(server, policy=RetryPolicy(retry_wait=60))
    interruption = CancellationToken()
    token = current_token.set(interruption)
    ticker = threading.Timer(0.3, interruption.cancel)
    ticker.start()
    try:
        with pytest.raises(InterruptedError, match="asked to stop while it waited"):
            graph.invoke({}, THREAD)
    finally:
        current_token.reset(token)
        ticker.join()
    server.default = GOOD
    assert graph.invoke(None, THREAD)["iterations"] == 3


@pytest.mark.parametrize("num_failures", [1, 9], ids=["between two requests", "paused"])
def test_a_run_that_is_to_drain_waits_no_longer(server: BillingServer, num_failures: int) -> None:
    """Of the nine, three belong to the first call; then the run is paused."""
    server.script(GOOD, *[Refusal(503, "down")] * num_failures)
    server.default = GOOD
    control = RunControl()
    model = chat_model(
        "openai:stand-in", base_url=server.url, retry_wait=60 if num_failures == 1 else 0
    )
    settings = Settings(
        price=Price(1, 2),
        constants=Constants(max_iterations=3),
        retry_policy=RetryPolicy(retry_wait=60),
    )
    graph = create_discovery_graph(
        toy_problem(), model, budget=1, settings=settings, checkpointer=InMemorySaver()
    )
    ticker = threading.Timer(0.3, control.request_drain)
    ticker.start()
    began = monotonic()
    with pytest.raises(InterruptedError, match="asked to stop while it waited"):
        list(graph.stream({}, THREAD, control=control))
    ticker.join()
    assert monotonic() - began < 20
    server.begin_anew(GOOD)
    assert graph.invoke(None, THREAD)["iterations"] == 3


def test_cancelling_a_task_ends_the_pause_of_its_run(server: BillingServer) -> None:
    server.script(GOOD)
    server.default = Refusal(503, "down")
    graph = graph_of(server, policy=RetryPolicy(retry_wait=60))

    async def cancelled() -> None:
        run = asyncio.create_task(graph.ainvoke({}, THREAD))
        while len(server.requests) < 4:
            await asyncio.sleep(0.01)
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run

    began = monotonic()
    asyncio.run(cancelled())  # waits for the threads of the loop
    assert monotonic() - began < 30
    server.default = GOOD
    assert graph.invoke(None, THREAD)["iterations"] == 3
