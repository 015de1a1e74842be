"""The ledger holds what the server billed, whatever the client and the model."""

import asyncio
import json
import socket
import sys
import time
from decimal import Decimal
from typing import Any
from urllib.request import Request, urlopen

import pytest
from billing_server import BillingServer, Page, Refusal, Reply, Silence
from fakes import IDEAS, hashed_answer, is_guide_prompt, program, rewrite
from impatience import PATIENCE, SOON
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.runnables import ConfigurableField
from langchain_openai import ChatOpenAI
from needed_plugins import offline_model
from pydantic import BaseModel, SecretStr
from toy_graph import PRICE, billed, calls_of, client, discovery, events_of, rows_of, spent_by
from warm import PATIENCE_SECONDS, PROCESSES

from costada.models.chat_models import chat_model
from costada.models.errors import UnmeteredCall
from costada.store.run_store import RunStore
from costada.values.usage import Price

CACHED_PRICE = Price("0.60", "1.92", "0.11")


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


def exact_bill(server: BillingServer) -> Decimal:
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
    model = client(server, timeout=timeout)
    return discovery(model, iterations=iterations, store=store, price=CACHED_PRICE)


@pytest.mark.parametrize("mode", ["values", "messages"])
def test_the_ledger_equals_the_bill_to_the_last_digit(server, mode):
    store = RunStore()
    server.default = answer_like_a_model
    assert list(graph_on(server, store).stream({}, stream_mode=mode))
    assert len(server.bill) >= 13
    assert spent_by(store) == exact_bill(server)
    calls = calls_of(store)
    assert {call.role for call in calls} == {"generation", "guide"} | {
        call.role for call in calls if call.attempt > 1
    }
    assert sum(call.usage.reasoning_tokens for call in calls) == server.total().reasoning_tokens


def test_refused_requests_cost_nothing_and_are_on_record(server):
    store = RunStore()
    server.script(Refusal(429), Refusal(500), Reply(rewrite(0.3)))
    graph_on(server, store, iterations=1).invoke({})
    calls = calls_of(store)
    assert [call.cost > 0 for call in calls] == [False, False, True]
    assert [call.bound for call in calls] == [0, 0, 0]
    assert spent_by(store) == exact_bill(server)


NO_CHAT_API = (Reply(body=b"{"), Reply(body=b'{"choices": null}'), Page())
MALFORMED = (Reply(""), *NO_CHAT_API)


@pytest.mark.parametrize("answer", [*MALFORMED, Refusal(400, "content filter")], ids=str)
def test_a_later_answer_that_is_not_usable_is_a_failed_attempt(server, answer):
    store = RunStore()
    server.script(Reply(rewrite(0.2)), answer, answer, Reply(rewrite(0.4)))
    result = graph_on(server, store, iterations=2).invoke({})
    assert result["best_score"] == 0.4
    # The second in a row that no chat API gave is an outage; the attempt is repeated after it.
    assert [row["attempts"] for row in rows_of(store)] == [1, 2 if answer in NO_CHAT_API else 3]


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
    server.default = answer_like_a_model
    graph = discovery(model, iterations=3, store=store, price=CACHED_PRICE)
    assert list(graph.stream({}, stream_mode="messages"))
    assert all(request["stream"] for request in server.requests)
    assert spent_by(store) == exact_bill(server) > 0


def test_an_answer_without_usage_ends_the_run_and_names_the_remedy(server):
    server.default = Reply(rewrite(0.3), reports_usage=False)
    with pytest.raises(UnmeteredCall, match="stream_usage=True"):
        graph_on(server, RunStore()).invoke({})
    assert len(server.requests) == 1


OTHER_PRICES = {"offline": PRICE, "stand-in": PRICE, "Boom": PRICE}


def run(model, *, budget=0.05, iterations=3, policy="crossing", **options):
    store = RunStore()
    options |= {"budget_policy": policy, "other_prices": OTHER_PRICES, "store": store}
    result = discovery(model, budget=budget, iterations=iterations, **options).invoke({})
    return result, calls_of(store)


class Point(BaseModel):
    """A point on a line."""

    x: int


class Boom(BaseChatModel):
    """A chat model that only raises."""

    error: Any = RuntimeError("boom")

    @property
    def _llm_type(self) -> str:
        return "boom"

    def _generate(self, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any):
        raise self.error


class Posting(Boom):
    """A chat model of the user's own: it posts, and then cannot read what came back."""

    url: str

    def _generate(self, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any):
        body = {"model": "stand-in", "messages": [{"role": "user", "content": "hi"}]}
        sent = Request(f"{self.url}/chat/completions", json.dumps(body).encode())
        with urlopen(sent) as response:
            answer = json.loads(response.read())
        text = answer["no such key"]
        return ChatResult(generations=[ChatGeneration(message=AIMessage(text))])


@pytest.mark.parametrize("policy", ["hard", "crossing"])
@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("boom"),
        KeyError("boom"),
        FileNotFoundError("boom"),
        UnicodeEncodeError("utf-8", "\ud800", 0, 1, "surrogates not allowed"),
        ConnectionError("boom"),
        TimeoutError("boom"),
        ConnectionRefusedError("nobody there"),
        socket.gaierror("no such host"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_model_that_only_raises_costs_nothing_before_its_fallback_answers(error, policy):
    result, calls = run(Boom(error=error).with_fallbacks([offline_model()]), policy=policy)
    alone, _ = run(offline_model(), policy=policy)
    assert (result["spent"], result["iterations"]) == (alone["spent"], alone["iterations"])
    assert [call.bound for call in calls if call.model == "Boom"] == [0] * (len(calls) // 2)


def test_what_never_left_costs_nothing_in_an_event_loop_either(server):
    server.default = Reply(rewrite(0.5), 100, 50)
    model = client(server)
    nowhere = chat_model("openai:Boom", base_url="http://127.0.0.1:9/v1", max_attempts=1)
    first = Boom().with_fallbacks([nowhere, model])
    graph = discovery(first, budget=0.05, iterations=2, other_prices=OTHER_PRICES)
    result = asyncio.run(graph.ainvoke({}))
    assert Decimal(str(result["spent"])) == billed(server) > 0


def test_a_fallback_over_the_network_does_not_make_the_first_model_cost_anything(server):
    server.default = lambda body: Reply(hashed_answer(body["messages"][-1]["content"]), 100, 50)
    model = client(server)
    result, calls = run(Boom().with_fallbacks([model]))
    assert Decimal(str(result["spent"])) == billed(server) > 0
    assert {call.model: call.bound for call in calls} == {"Boom": 0, "stand-in": 0}


@pytest.mark.parametrize(
    "address",
    ["http://127.0.0.1:9/v1", "http://no.such.host.invalid/v1", "gopher://127.0.0.1/v1"],
    ids=["refused", "unknown host", "unknown protocol"],
)
def test_an_address_where_nobody_is_costs_nothing(server, address):
    server.default = Reply(rewrite(0.5), 100, 50)
    nowhere = chat_model("openai:Boom", base_url=address, retry_wait=0, max_attempts=1)
    somewhere = client(server)
    result, _ = run(nowhere.with_fallbacks([somewhere]))
    assert Decimal(str(result["spent"])) == billed(server) > 0


@pytest.mark.parametrize(
    ("bound", "error"),
    [
        ({"user": "\ud800"}, "UnicodeEncodeError"),
        ({"no_such_parameter": 1}, "TypeError: AsyncCompletions.create() got an unexpected"),
        ({"tools": [object()]}, "TypeError: argument of type 'object'"),
        ({"response_format": 3}, "TypeError: Unsupported response_format type"),
    ],
    ids=["not encodable", "unknown parameter", "no tool", "no schema"],
)
def test_a_request_that_can_not_be_made_costs_nothing(server, bound, error):
    """The client has connected before, so only where the error came from can tell."""
    server.default = Reply(rewrite(0.5), 100, 50)
    server.keeps_alive = True
    model = ChatOpenAI(
        model="stand-in", base_url=server.url, api_key=SecretStr("none"), max_retries=0
    )
    model.invoke("hello")
    server.reset(Reply(rewrite(0.5), 100, 50))
    result, calls = run(model.bind(**bound).with_fallbacks([model]))
    assert Decimal(str(result["spent"])) == billed(server) > 0
    assert result["iterations"] == 3
    assert str(calls[0].error).startswith(error)


def hooks_of_models(url: str) -> None:
    """Exit with the number of audit hooks, those of OpenAI's client and of an own one."""
    hooks: list[str] = []
    sys.addaudithook(lambda event, _: hooks.append(event) if event == "sys.addaudithook" else None)
    run(chat_model("openai:stand-in", base_url=url), iterations=1)
    run(offline_model(), iterations=1)
    before = len(hooks)
    run(Boom().with_fallbacks([offline_model()]), iterations=1)
    sys.exit(10 * before + len(hooks))


@pytest.mark.process
def test_a_process_that_asks_openai_models_only_gets_no_audit_hook(server):
    """Such a hook cannot be removed, and makes the whole process slower."""
    server.default = Reply(rewrite(0.5), 100, 50)
    process = PROCESSES.Process(target=hooks_of_models, args=(server.url,))
    process.start()
    process.join(PATIENCE_SECONDS)
    assert process.exitcode == 1


@pytest.mark.parametrize(
    "way", ["timeout", "broken off", "unreadable", "not of the schema", "own client"]
)
def test_what_may_have_reached_the_server_keeps_its_upper_bound(server, way):
    """100 answer tokens at most cost $0.0002, and the prompt as many millionths as it has bytes."""
    server.default = Reply(rewrite(0.5), 100, 50)
    options = {"base_url": server.url, "api_key": SecretStr("none"), "max_completion_tokens": 100}
    options["timeout"] = SOON if way == "timeout" else PATIENCE
    model: Any = ChatOpenAI(model="stand-in", max_retries=0, **options)
    if way == "timeout":
        server.default = Silence(is_billed=True)
    elif way == "broken off":
        model = model.model_copy(update={"streaming": True})
        server.default = Reply("one two three", 100, 50, breaks_after=1)
    elif way == "unreadable":
        server.default = Reply(body=b'{"choices": [{"message": 1}], "model": "stand-in"}')
    elif way == "not of the schema":
        model = model.bind(response_format=Point)
        server.default = Reply("no point", 100, 50, reports_usage=False)
    else:
        model = Posting(url=server.url).bind(max_tokens=100)
    _, calls = run(model.with_fallbacks([offline_model()]), iterations=1)
    while not server.num_taken:
        time.sleep(0.01)
    assert len(server.requests) == 1
    assert Decimal("0.0002") < calls[0].cost + calls[0].bound < Decimal("0.005")


@pytest.mark.parametrize("is_streamed", [False, True])
def test_half_a_character_in_an_answer_makes_no_later_request_fail(server, is_streamed):
    def answer(body):
        number = len(server.requests)
        text = program(number / 10).replace("return", "# half of it: \ud83d\n    return")
        return Reply(f"Half \udc00 of it.\n```python\n{text}```", 100, 50)

    server.default = answer
    model = client(server)
    model = model.bind(stream=True) if is_streamed else model
    store = RunStore()
    result = discovery(model, budget=0.05, iterations=4, store=store).invoke({})
    calls = calls_of(store)
    assert len(calls) == len(server.requests) > 4
    assert [call.error for call in calls] == [None] * len(calls)
    assert Decimal(str(result["spent"])) == billed(server)
    assert all("\N{REPLACEMENT CHARACTER}" in call.answer for call in calls)
    assert result["best_score"] == pytest.approx(0.1)
    failures = [str(row["failure"]) for row in rows_of(store)]
    assert all("character that cannot be encoded" in failure for failure in failures)


def test_words_with_half_a_character_do_not_spoil_a_program_without_one(server):
    server.default = Reply(f"Half \udc00 of it.\n{rewrite(0.5)}", 100, 50)
    model = client(server)
    result, _ = run(model)
    assert result["best_score"] == 0.5


CHEAP, DEAR = Price("1", "2"), Price("100", "1000")
FIELD = ConfigurableField(id="llm")


def own_client(server: BillingServer, name: str = "cheap") -> ChatOpenAI:
    return ChatOpenAI(
        model=name,
        base_url=server.url,
        api_key=SecretStr("none"),
        max_retries=0,
        max_completion_tokens=32_000,
        default_headers={"Connection": "close"},
    )


BOUND = {
    "bind": lambda model: model.bind(model="dear"),
    "the outer of two": lambda model: model.bind(model="unheard of").bind(model="dear"),
    "around a configuration": lambda model: model.with_config(tags=["x"]).bind(model="dear"),
    "within retries": lambda model: model.bind(model="dear").with_retry(),
    "around retries": lambda model: model.with_retry().bind(model="dear"),
    "around fallbacks": lambda model: model.with_fallbacks([model]).bind(model="dear"),
    "extra_body": lambda model: model.bind(extra_body={"model": "dear"}),
}
CONFIGURED = {
    "field": lambda model: model.configurable_fields(model_name=FIELD),
    "alternative": lambda model: model.configurable_alternatives(
        FIELD, dear=model.bind(model="dear")
    ),
}


def as_long_as_allowed(body) -> Reply:
    text = IDEAS if is_guide_prompt(body["messages"][-1]["content"]) else rewrite(0.5)
    tokens = min(900, body["max_completion_tokens"])
    return Reply(text, input_tokens=100, output_tokens=tokens)


def bound_run(server, model, policy, *, budget=0.5, config=None, other_prices=None, **options):
    server.default = as_long_as_allowed
    store = RunStore()
    others = {"dear": DEAR} if other_prices is None else other_prices
    options |= {"price": CHEAP, "other_prices": others, "budget_policy": policy, "store": store}
    result = discovery(model, budget=budget, iterations=1, **options).invoke({}, config)
    prices = {"cheap": (1, 2), "dear": (100, 1000)}
    bill = sum(
        entry.input_tokens * prices[entry.model][0] + entry.output_tokens * prices[entry.model][1]
        for entry in server.bill
    )
    return result, spent_by(store), Decimal(bill) / 1_000_000


@pytest.mark.parametrize("policy", ["hard", "crossing"])
@pytest.mark.parametrize("bind", BOUND.values(), ids=BOUND)
def test_the_price_of_the_bound_name_counts(server, bind, policy):
    result, spent, bill = bound_run(server, bind(own_client(server)), policy)
    assert {body["model"] for body in server.requests} == {"dear"}
    assert spent == bill > 0
    assert policy == "crossing" or result["spent"] <= 0.5


@pytest.mark.parametrize("bind", BOUND.values(), ids=BOUND)
def test_a_hard_budget_that_buys_only_the_constructors_model_buys_nothing(server, bind):
    """One call to the dear model costs $0.90; to the cheap one it would be $0.0019."""
    with pytest.raises(ValueError, match=r"expected at least .* the first request to 'dear'"):
        bound_run(server, bind(own_client(server)), "hard", budget=0.05)
    assert server.requests == []


@pytest.mark.parametrize("bind", BOUND.values(), ids=BOUND)
def test_a_bound_name_without_a_price_is_refused_before_anything_is_sent(server, bind):
    with pytest.raises(ValueError, match="model 'dear' has no known price"):
        bound_run(server, bind(own_client(server)), "crossing", other_prices={})
    assert server.requests == []


@pytest.mark.parametrize("is_at_once", [False, True])
@pytest.mark.parametrize("configure", CONFIGURED.values(), ids=CONFIGURED)
def test_a_configured_model_is_priced_by_the_name_it_is_configured_to(
    server, configure, *, is_at_once
):
    chosen, model = {"configurable": {"llm": "dear"}}, configure(own_client(server))
    model = model.with_config(chosen) if is_at_once else model
    _, spent, bill = bound_run(server, model, "crossing", config=None if is_at_once else chosen)
    assert {body["model"] for body in server.requests} == {"dear"}
    assert spent == bill > 0


@pytest.mark.parametrize("configure", CONFIGURED.values(), ids=CONFIGURED)
def test_a_configured_model_can_not_be_asked_under_a_hard_budget(server, configure):
    chosen, model = {"configurable": {"llm": "dear"}}, configure(own_client(server))
    with pytest.raises(ValueError, match="in which answers cannot be limited"):
        bound_run(server, model, "hard", config=chosen)
    assert server.requests == []


def test_a_name_that_is_chosen_while_the_run_continues_needs_a_price_too(server):
    model = own_client(server).configurable_fields(model_name=FIELD)
    with pytest.raises(ValueError, match="model 'unheard of' has no known price"):
        bound_run(server, model, "crossing", config={"configurable": {"llm": "unheard of"}})
    assert server.requests == []


def test_a_guide_that_is_bound_to_another_name_is_held_back_by_its_own_price(server):
    """Answers without a program make the run ask for a guide, which the budget cannot pay for."""
    server.default = Reply("no program", input_tokens=10, output_tokens=10)
    store = RunStore()
    guide = own_client(server, "guide").bind(model="dear")
    options = {"guide_model": guide, "guide_price": CHEAP, "other_prices": {"dear": DEAR}}
    options |= {"price": CHEAP, "budget_policy": "hard", "store": store}
    discovery(own_client(server), budget=0.2, iterations=6, **options).invoke({})
    assert any(event.startswith("guide_scheduled") for event in events_of(store))
    assert {body["model"] for body in server.requests} == {"cheap"}


def test_a_limit_in_the_extra_body_does_not_replace_that_of_a_hard_budget(server):
    model = own_client(server).bind(extra_body={"max_completion_tokens": 100_000})
    bound_run(server, model, "hard", budget=0.003)
    (body,) = server.requests
    assert body["max_completion_tokens"] < 1500
