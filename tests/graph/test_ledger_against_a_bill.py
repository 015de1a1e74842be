"""Real client, real server: what the ledger holds is what the server billed."""

from decimal import Decimal

import pytest
from billing_server import BillingServer, Refusal, Reply, Silence
from fakes import IDEAS, hashed_answer, is_guide_prompt, rewrite, toy_problem
from langchain_openai import ChatOpenAI

from costada.controller.constants import Constants
from costada.graph.build import create_discovery_graph
from costada.models.chat_models import chat_model
from costada.models.errors import UnmeteredCall
from costada.nodes.settings import Settings
from costada.store.run_store import RunStore
from costada.values.prices import Price

PRICE = Price("0.60", "1.92", "0.11")


@pytest.fixture
def server(server: BillingServer) -> BillingServer:
    server.default = answer_like_a_model
    return server


def answer_like_a_model(body) -> Reply:
    """Answer by the prompt, with token counts that differ from call to call."""
    prompt = body["messages"][-1]["content"]
    text = IDEAS if is_guide_prompt(prompt) else hashed_answer(prompt)
    return Reply(
        text,
        input_tokens=len(prompt),
        output_tokens=2000 + len(prompt) % 997,
        cached_tokens=len(prompt) % 61,
        reasoning_tokens=1000 + len(prompt) % 13,
    )


def billed(server: BillingServer) -> Decimal:
    """Return the server's own bill: a sum over its requests, written down independently."""
    return sum(
        (
            Decimal(entry.input_tokens - entry.cached_tokens) * 60
            + Decimal(entry.cached_tokens) * 11
            + Decimal(entry.output_tokens) * 192
            for entry in server.bill
        ),
        Decimal(0),
    ) / Decimal(100_000_000)


def graph_on(server: BillingServer, store: RunStore, *, iterations: int = 12, timeout: float = 20):
    model = chat_model("openai:stand-in", base_url=server.url, retry_wait=0, timeout=timeout)
    settings = Settings(price=PRICE, constants=Constants(max_iterations=iterations))
    return create_discovery_graph(toy_problem(), model, budget=1.0, settings=settings, store=store)


def spent(store: RunStore) -> Decimal:
    (run_id,) = store.run_ids()
    return store.call_log.spent(run_id, 10**9)


@pytest.mark.parametrize("mode", ["values", "messages"])
def test_the_ledger_equals_the_bill_to_the_last_digit(server, mode):
    store = RunStore()
    for _ in graph_on(server, store).stream({}, stream_mode=mode):
        pass
    assert len(server.bill) >= 13
    assert spent(store) == billed(server)
    calls = list(store.call_log.calls(store.run_ids()[0]))
    assert {call.role for call in calls} == {"generation", "guide"} | {
        call.role for call in calls if call.attempt > 1
    }
    assert sum(call.usage.reasoning_tokens for call in calls) == server.total().reasoning_tokens


def test_refused_requests_cost_nothing_and_are_on_record(server):
    store = RunStore()
    server.script(Refusal(429), Refusal(500), Reply(rewrite(0.3)))
    graph_on(server, store, iterations=1).invoke({})
    calls = list(store.call_log.calls(store.run_ids()[0]))
    assert [call.cost > 0 for call in calls] == [False, False, True]
    assert spent(store) == billed(server)


@pytest.mark.parametrize(
    "answer", [Reply(""), Reply(body=b"{"), Reply(body=b'{"choices": null}')], ids=str
)
def test_an_empty_or_malformed_answer_is_a_failed_attempt(server, answer):
    store = RunStore()
    server.script(Reply(rewrite(0.2)), answer, answer, Reply(rewrite(0.4)))
    result = graph_on(server, store, iterations=2).invoke({})
    assert result["best_score"] == 0.4
    assert [row["attempts"] for row in store.steps(store.run_ids()[0])] == [1, 3]


def test_a_slow_answer_is_a_failed_attempt(server):
    store = RunStore()
    server.script(Reply(rewrite(0.2)), Silence(), Silence(), Silence(), Reply(rewrite(0.4)))
    result = graph_on(server, store, iterations=2, timeout=0.2).invoke({})
    assert result["best_score"] == 0.4
    assert [row["attempts"] for row in store.steps(store.run_ids()[0])] == [1, 2]


@pytest.mark.parametrize("status", [401, 404])
def test_a_refusal_that_no_retry_cures_ends_the_run_after_one_request(server, status):
    server.default = Refusal(status)
    with pytest.raises(ValueError, match=f"'stand-in' refused the request with status {status}"):
        graph_on(server, RunStore()).invoke({})
    assert len(server.requests) == 1


@pytest.mark.parametrize("stream_usage", [None, False])
def test_a_model_of_the_callers_own_is_metered_exactly_where_the_graph_streams_it(
    server, stream_usage
):
    store = RunStore()
    model = ChatOpenAI(
        model="stand-in",
        base_url=server.url,
        api_key="none",
        stream_usage=stream_usage,
        default_headers={"Connection": "close"},
    )
    constants = Constants(max_iterations=3)
    graph = create_discovery_graph(
        toy_problem(),
        model,
        budget=1.0,
        settings=Settings(price=PRICE, constants=constants),
        store=store,
    )
    assert list(graph.stream({}, stream_mode="messages"))
    assert all(request["stream"] for request in server.requests)
    assert spent(store) == billed(server) > 0


def test_an_answer_without_usage_ends_the_run_and_names_the_remedy(server):
    server.default = Reply(rewrite(0.3), reports_usage=False)
    with pytest.raises(UnmeteredCall, match="stream_usage=True"):
        graph_on(server, RunStore()).invoke({})
    assert len(server.requests) == 1
