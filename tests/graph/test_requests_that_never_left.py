"""What never left the machine costs nothing; what may have reached a server counts in full."""

import asyncio
import json
import socket
import sys
from decimal import Decimal
from typing import Any
from urllib.request import Request, urlopen

import pytest
from billing_server import BillingServer, Reply, Silence
from fakes import hashed_answer, program, rewrite, toy_problem
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_openai import ChatOpenAI
from pydantic import BaseModel, SecretStr
from warm import PATIENCE_SECONDS, PROCESSES

from costada.controller.constants import Constants
from costada.graph.build import create_discovery_graph
from costada.models.chat_models import chat_model
from costada.models.offline import OfflineModel
from costada.nodes.settings import Settings
from costada.store.run_store import RunStore
from costada.values.prices import Price

PRICE = Price("1", "2")


def run(model, *, budget=0.05, iterations=3, policy="crossing", **options):
    """Return the result of a run and the rows of its calls."""
    store = RunStore()
    settings = Settings(
        price=PRICE,
        other_prices={"offline": PRICE, "stand-in": PRICE, "Boom": PRICE},
        budget_policy=policy,
        constants=Constants(max_iterations=iterations),
    )
    graph = create_discovery_graph(
        toy_problem(), model, budget=budget, settings=settings, store=store, **options
    )
    result = graph.invoke({})
    return result, list(store.call_log.calls(store.run_ids()[0]))


def billed(server: BillingServer) -> Decimal:
    total = server.total()
    return Decimal(total.input_tokens + 2 * total.output_tokens) / 1_000_000


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
    result, calls = run(Boom(error=error).with_fallbacks([OfflineModel()]), policy=policy)
    alone, _ = run(OfflineModel(), policy=policy)
    assert (result["spent"], result["iterations"]) == (alone["spent"], alone["iterations"])
    assert [call.bound for call in calls if call.model == "Boom"] == [0] * (len(calls) // 2)


def test_what_never_left_costs_nothing_in_an_event_loop_either(server):
    server.default = Reply(rewrite(0.5), 100, 50)
    model = chat_model("openai:stand-in", base_url=server.url, retry_wait=0)
    nowhere = chat_model("openai:Boom", base_url="http://127.0.0.1:9/v1", max_attempts=1)
    settings = Settings(
        price=PRICE,
        other_prices={"stand-in": PRICE, "Boom": PRICE},
        constants=Constants(max_iterations=2),
    )
    first = Boom().with_fallbacks([nowhere, model])
    graph = create_discovery_graph(toy_problem(), first, budget=0.05, settings=settings)
    result = asyncio.run(graph.ainvoke({}))
    assert Decimal(str(result["spent"])) == billed(server) > 0


def test_a_fallback_over_the_network_does_not_make_the_first_model_cost_anything(server):
    server.default = lambda body: Reply(hashed_answer(body["messages"][-1]["content"]), 100, 50)
    model = chat_model("openai:stand-in", base_url=server.url, retry_wait=0)
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
    somewhere = chat_model("openai:stand-in", base_url=server.url, retry_wait=0)
    result, _ = run(nowhere.with_fallbacks([somewhere]))
    assert Decimal(str(result["spent"])) == billed(server) > 0


@pytest.mark.parametrize(
    ("bound", "error"),
    [
        ({"user": "\ud800"}, "UnicodeEncodeError"),
        ({"no_such_parameter": 1}, "TypeError: Completions.create() got an unexpected keyword"),
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
    server.begin_anew(Reply(rewrite(0.5), 100, 50))
    result, calls = run(model.bind(**bound).with_fallbacks([model]))
    assert Decimal(str(result["spent"])) == billed(server) > 0
    assert result["iterations"] == 3
    assert str(calls[0].error).startswith(error)


def hooks_of_models(url: str) -> None:
    """Exit with the number of audit hooks, those of OpenAI's client and of an own one."""
    hooks: list[str] = []
    sys.addaudithook(lambda event, _: hooks.append(event) if event == "sys.addaudithook" else None)
    run(chat_model("openai:stand-in", base_url=url), iterations=1)
    run(OfflineModel(), iterations=1)
    before = len(hooks)
    run(Boom().with_fallbacks([OfflineModel()]), iterations=1)
    sys.exit(10 * before + len(hooks))


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
    model: Any = ChatOpenAI(model="stand-in", max_retries=0, timeout=0.3, **options)
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
    _, calls = run(model.with_fallbacks([OfflineModel()]), iterations=1)
    assert len(server.requests) == 1
    assert Decimal("0.0002") < calls[0].cost + calls[0].bound < Decimal("0.005")


@pytest.mark.parametrize("is_streamed", [False, True])
def test_half_a_character_in_an_answer_makes_no_later_request_fail(server, is_streamed):
    def answer(body):
        number = len(server.requests)
        text = program(number / 10).replace("return", "# half of it: \ud83d\n    return")
        return Reply(f"Half \udc00 of it.\n```python\n{text}```", 100, 50)

    server.default = answer
    model = chat_model("openai:stand-in", base_url=server.url, retry_wait=0)
    model = model.bind(stream=True) if is_streamed else model
    store = RunStore()
    settings = Settings(price=PRICE, constants=Constants(max_iterations=4))
    graph = create_discovery_graph(
        toy_problem(), model, budget=0.05, settings=settings, store=store
    )
    result = graph.invoke({})
    run_id = store.run_ids()[0]
    calls = list(store.call_log.calls(run_id))
    assert len(calls) == len(server.requests) > 4
    assert [call.error for call in calls] == [None] * len(calls)
    assert Decimal(str(result["spent"])) == billed(server)
    assert all("\N{REPLACEMENT CHARACTER}" in call.answer for call in calls)
    assert result["best_score"] == pytest.approx(0.1)
    failures = [str(row["failure"]) for row in store.steps(run_id)]
    assert all("character that cannot be encoded" in failure for failure in failures)


def test_words_with_half_a_character_do_not_spoil_a_program_without_one(server):
    server.default = Reply(f"Half \udc00 of it.\n{rewrite(0.5)}", 100, 50)
    model = chat_model("openai:stand-in", base_url=server.url, retry_wait=0)
    result, _ = run(model)
    assert result["best_score"] == 0.5
