"""Clients of the endpoint, and a provider that writes its own bill behind it."""

import asyncio
import json
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import openai
import pytest
from billing_server import BillingServer, Drip, HangUp, Page, Refusal, Reply, Silence
from endpoint_clients import POLICY, TOKEN, ForwardingEndpoint, NotedRequests, forwarding
from gateways import Gate, until
from langchain_core.messages import HumanMessage
from langchain_openai import ChatOpenAI, OpenAIEmbeddings
from metered_calls import client
from pydantic import SecretStr

from costada.models.asking import FailureKind, RequestNotSent
from costada.models.chat_models import chat_model
from costada.models.endpoint.client_requests import read_request
from costada.models.endpoint.exchange import Dialect, Postponed
from costada.models.endpoint.forwarding import Forwarder
from costada.models.errors import ModelUnusable, UncountedAnswer, UnmeteredCall
from costada.models.event_loop import MAX_THREADS, paid_loop
from costada.models.providers import RetryPolicy
from costada.models.runnable_tree import OutgoingRequest
from costada.values.usage import NO_TOKENS, Usage

KEY = "the-key-of-the-run"
HI: Any = [{"role": "user", "content": "hi"}]
PATIENCE = 60.0
TOOL: Any = {
    "type": "function",
    "function": {"name": "look", "description": "look", "parameters": {"type": "object"}},
}


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)


def served(server: BillingServer, **options: Any) -> Any:
    return chat_model("openai:stand-in", base_url=server.url, retry_wait=0, **options)


@pytest.fixture
def endpoint(server: BillingServer) -> Iterator[ForwardingEndpoint]:
    with forwarding(served(server)) as running:
        yield running


def sdk(endpoint: ForwardingEndpoint, **options: Any) -> openai.OpenAI:
    given = {"max_retries": 0, "timeout": PATIENCE, **options}
    client = openai.OpenAI(base_url=f"{endpoint.url}/v1", api_key=TOKEN, **given)
    return endpoint.clients.enter_context(client)


def in_loop(coroutine: Any) -> Any:
    return asyncio.run_coroutine_threadsafe(coroutine, paid_loop().loop).result(PATIENCE)


def charged(endpoint: ForwardingEndpoint) -> Usage:
    """The tokens of all requests that have ended; each that began has."""
    ledger = endpoint.ledger
    until(lambda: len(ledger.ended) == len(ledger.begun))
    numbers = [each.number for each in ledger.begun]
    assert sorted(numbers) == list(range(1, len(numbers) + 1))
    assert sorted(call.request.number for call in ledger.ended) == sorted(numbers)
    return sum((call.usage for call in ledger.ended), NO_TOKENS)


def billed(server: BillingServer) -> Usage:
    total = server.total()
    return Usage(
        total.input_tokens, total.output_tokens, total.cached_tokens, total.reasoning_tokens
    )


def test_the_sdk_of_openai_works_unchanged(endpoint: ForwardingEndpoint, server: BillingServer):
    server.default = Reply("hello", cached_tokens=4, reasoning_tokens=3)
    asked = sdk(endpoint)
    whole = asked.chat.completions.create(model="judge", messages=HI)
    chunks = list(asked.chat.completions.create(model="judge", messages=HI, stream=True))
    response = asked.responses.create(model="judge", input="hi")
    events = list(asked.responses.create(model="judge", input="hi", stream=True))
    assert whole.choices[0].message.content == "hello"
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == "hello"
    assert response.output_text == "hello"
    assert events[-1].type == "response.completed"
    assert events[-1].response.output_text == "hello"
    assert charged(endpoint) == billed(server) == Usage(40, 20, 16, 12)
    assert {body["model"] for body in server.requests} == {"stand-in"}
    assert set(server.authorizations) == {f"Bearer {KEY}"}


def test_the_asynchronous_sdk_works_unchanged(endpoint: ForwardingEndpoint, server: BillingServer):
    async def ask_all() -> list[str]:
        async with openai.AsyncOpenAI(
            base_url=f"{endpoint.url}/v1", api_key=TOKEN, timeout=PATIENCE
        ) as asked:
            answers = await asyncio.gather(
                *(asked.chat.completions.create(model="judge", messages=HI) for _ in range(20))
            )
            stream = await asked.chat.completions.create(model="judge", messages=HI, stream=True)
            words = [chunk.choices[0].delta.content or "" async for chunk in stream]
        return [str(each.choices[0].message.content) for each in answers] + ["".join(words)]

    assert asyncio.run(ask_all()) == ["hello"] * 21
    assert charged(endpoint) == billed(server) == Usage(210, 105)


def test_langchain_works_unchanged(endpoint: ForwardingEndpoint, server: BillingServer):
    server.script(Reply("hello"), Reply('{"at": "x"}', tool="look"), Reply("streamed words"))
    model = ChatOpenAI(
        model="judge", base_url=f"{endpoint.url}/v1", api_key=SecretStr(TOKEN), timeout=PATIENCE
    )
    answer = model.invoke([HumanMessage("hi")])
    call = model.bind_tools([TOOL]).invoke([HumanMessage("look")])
    words = "".join(str(part.content) for part in model.stream("hi"))
    assert (answer.content, words) == ("hello", "streamed words")
    assert call.tool_calls[0]["name"] == "look"  # type: ignore[attr-defined]
    assert answer.usage_metadata is not None  # type: ignore[attr-defined]
    assert answer.usage_metadata["total_tokens"] == 15  # type: ignore[attr-defined]
    assert server.requests[1]["tools"] == [TOOL]
    assert charged(endpoint) == billed(server) == Usage(30, 15)


def test_embeddings_are_charged_for_what_was_sent(
    endpoint: ForwardingEndpoint, server: BillingServer
):
    found = sdk(endpoint).embeddings.create(model="judge", input=["hi", "you"])
    plain = sdk(endpoint).embeddings.create(model="judge", input="hi", encoding_format="float")
    vectors = OpenAIEmbeddings(
        model="judge",
        base_url=f"{endpoint.url}/v1",
        api_key=SecretStr(TOKEN),
        check_embedding_ctx_length=False,
    ).embed_documents(["one", "two", "three"])
    assert [each.embedding for each in found.data] == [[0.5, 0.25]] * 2
    assert [each.embedding for each in plain.data] == [[0.5, 0.25]]
    assert vectors == [[0.5, 0.25]] * 3
    assert charged(endpoint) == billed(server) == Usage(30, 0)
    assert [request.output_cap for request in endpoint.ledger.begun] == [0, 0, 0]
    assert "max_completion_tokens" not in server.requests[0]


def test_a_client_that_asks_for_the_counts_of_a_stream_gets_them(
    endpoint: ForwardingEndpoint, server: BillingServer
):
    chunks = list(
        sdk(endpoint).chat.completions.create(
            model="judge", messages=HI, stream=True, stream_options={"include_usage": True}
        )
    )
    assert chunks[-1].usage is not None
    assert (chunks[-1].usage.prompt_tokens, chunks[-1].usage.completion_tokens) == (10, 5)


def test_what_was_answered_is_kept_as_the_client_got_it(
    endpoint: ForwardingEndpoint, server: BillingServer
):
    bodies = []
    for is_stream in (False, True):
        body = {"model": "judge", "messages": HI, "stream": is_stream}
        headers = {"Authorization": f"Bearer {TOKEN}"}
        response = httpx.post(
            f"{endpoint.url}/v1/chat/completions", json=body, headers=headers, timeout=PATIENCE
        )
        bodies.append(response.text)
    charged(endpoint)
    assert [call.reply.answer for call in endpoint.ledger.ended] == bodies
    assert [call.reply.provider_id for call in endpoint.ledger.ended] == ["answer-1", "answer-2"]
    assert [call.reply.finish_reason for call in endpoint.ledger.ended] == ["stop", "stop"]


def test_a_request_is_written_down_before_it_leaves_and_its_end_before_the_client_sees_it(
    server: BillingServer,
):
    seen: list[tuple[str, int]] = []
    answered = threading.Event()

    class Watching(NotedRequests):
        def begin(self, request: OutgoingRequest) -> OutgoingRequest:
            seen.append(("begin", len(server.requests)))
            return super().begin(request)

        def finish(self, call: Any) -> None:
            seen.append(("finish", len(server.requests)))
            assert not answered.wait(0.1)
            super().finish(call)

    with forwarding(served(server), ledger=Watching()) as endpoint:
        for is_stream in (False, True):
            answer: Any = sdk(endpoint).chat.completions.create(
                model="judge", messages=HI, stream=is_stream
            )
            if is_stream:
                list(answer)
            answered.set()
            assert len(endpoint.ledger.ended) == len(server.requests)
            answered.clear()
    assert seen == [("begin", 0), ("finish", 1), ("begin", 1), ("finish", 2)]


def test_the_ledger_may_lower_the_limit_of_an_answer(server: BillingServer):
    ledger = NotedRequests(lambda request: request._replace(output_cap=7))
    with forwarding(served(server, max_tokens=50), ledger=ledger) as endpoint:
        sdk(endpoint).chat.completions.create(model="judge", messages=HI, max_tokens=20)
        sdk(endpoint).responses.create(model="judge", input="hi")
    assert server.requests[0]["max_tokens"] == 7
    assert server.requests[1]["max_output_tokens"] == 7


def test_the_lower_limit_of_client_and_model_counts(server: BillingServer):
    with forwarding(served(server, max_tokens=50)) as endpoint:
        for cap in (20, 80):
            sdk(endpoint).chat.completions.create(
                model="judge", messages=HI, max_completion_tokens=cap
            )
    assert [request.output_cap for request in endpoint.ledger.begun] == [20, 50]
    assert [body["max_completion_tokens"] for body in server.requests] == [20, 50]


def test_nothing_leaves_that_the_ledger_refuses(server: BillingServer):
    def refuse(request: OutgoingRequest) -> OutgoingRequest:
        raise RequestNotSent("nothing is left")

    ledger = NotedRequests(refuse)
    with forwarding(served(server), ledger=ledger) as endpoint:
        model, request = served(server), endpoint.requests
        assert request == []
        with pytest.raises(openai.APIConnectionError):
            sdk(endpoint).chat.completions.create(model="judge", messages=HI)
        with pytest.raises(RequestNotSent):
            in_loop(endpoint.forwarder.send(endpoint.requests[0], model))
    assert (server.requests, ledger.begun, ledger.ended) == ([], [], [])


@pytest.mark.parametrize("is_translated", [False, True], ids=["forwarded", "translated"])
def test_requests_that_wait_leave_threads_to_those_that_end(
    server: BillingServer, is_translated: bool
):
    gate = Gate()
    server.script(gate)
    waited = Counter[int]()

    def admit(request: OutgoingRequest) -> OutgoingRequest:
        if server.requests and not ledger.ended:
            waited[request.number] += 1
            raise Postponed(0.01)
        return request

    ledger = NotedRequests(admit)
    model: Any = client(server, http_client=httpx.Client()) if is_translated else served(server)
    number = MAX_THREADS + 20

    async def ask_all() -> list[Any]:
        forwarder = Forwarder(ledger, POLICY)
        body = {"model": "judge", "messages": HI}
        request = read_request(Dialect.CHAT, {}, json.dumps(body).encode())
        first = asyncio.create_task(forwarder.send(request, model))
        while not server.requests:
            await asyncio.sleep(0.01)
        others = [asyncio.create_task(forwarder.send(request, model)) for _ in range(number)]
        while len(waited) <= number:
            await asyncio.sleep(0.01)
        gate.opened.set()
        return await asyncio.gather(first, *others)

    answers = in_loop(ask_all())
    assert {each.status for each in answers} == {200}
    assert len(ledger.ended) == len(server.bill) == number + 1


def test_failed_requests_are_sent_again_each_on_the_ledger(
    endpoint: ForwardingEndpoint, server: BillingServer
):
    server.script(Refusal(500), Refusal(503))
    answer = sdk(endpoint).chat.completions.create(model="judge", messages=HI)
    assert answer.choices[0].message.content == "hello"
    assert [call.error is None for call in endpoint.ledger.ended] == [False, False, True]
    assert charged(endpoint) == billed(server) == Usage(10, 5)


def test_an_outage_is_a_failure_of_which_the_run_learns(
    endpoint: ForwardingEndpoint, server: BillingServer
):
    server.default = Refusal(503)
    with pytest.raises(openai.InternalServerError):
        sdk(endpoint).chat.completions.create(model="judge", messages=HI)
    assert [failure.kind for failure in endpoint.failures] == [FailureKind.DOWN]
    assert len(server.requests) == 3
    assert charged(endpoint) == NO_TOKENS
    assert not any(call.may_be_billed for call in endpoint.ledger.ended)


def test_a_rate_limit_that_stays_is_an_outage_too(
    endpoint: ForwardingEndpoint, server: BillingServer
):
    server.default = Refusal(429)
    with pytest.raises(openai.InternalServerError):
        sdk(endpoint).chat.completions.create(model="judge", messages=HI)
    assert [failure.kind for failure in endpoint.failures] == [FailureKind.DOWN]


@pytest.mark.parametrize("status", [400, 403, 404, 422])
def test_what_a_request_itself_causes_is_answered_in_the_providers_words(
    endpoint: ForwardingEndpoint, server: BillingServer, status: int
):
    server.default = Refusal(status, f"no such thing for {KEY}", code="bad_thing")
    with pytest.raises(openai.APIStatusError, match="no such thing") as error:
        sdk(endpoint, max_retries=2).chat.completions.create(model="judge", messages=HI)
    assert (error.value.status_code, error.value.code) == (status, "bad_thing")
    assert KEY not in str(error.value)
    assert len(server.requests) == 1
    assert endpoint.failures == []


@pytest.mark.parametrize(
    "refusal", [Refusal(401), Refusal(402), Refusal(429, code="insufficient_quota")]
)
def test_a_provider_that_refuses_the_run_for_good_ends_it(
    endpoint: ForwardingEndpoint, server: BillingServer, refusal: Refusal
):
    server.default = refusal
    with pytest.raises(openai.APIConnectionError):
        sdk(endpoint).chat.completions.create(model="judge", messages=HI)
    with pytest.raises(ModelUnusable):
        in_loop(endpoint.forwarder.send(endpoint.requests[0], served(server)))


def test_a_lost_connection_may_have_been_billed(server: BillingServer):
    server.script(HangUp())
    with forwarding(served(server)) as endpoint:
        sdk(endpoint).chat.completions.create(model="judge", messages=HI)
    assert [call.may_be_billed for call in endpoint.ledger.ended] == [True, False]


def test_a_request_that_cannot_reach_its_provider_is_not_billed(server: BillingServer):
    model = chat_model("openai:stand-in", base_url="http://127.0.0.1:9/v1", max_attempts=1)
    with forwarding(model) as endpoint, pytest.raises(openai.InternalServerError):
        sdk(endpoint).chat.completions.create(model="judge", messages=HI)
    assert [call.may_be_billed for call in endpoint.ledger.ended] == [False]


def test_a_silent_provider_is_given_up_at_the_deadline(server: BillingServer):
    server.default = Silence()
    policy = RetryPolicy(call_timeout=0.3, retry_wait=0.01)
    with (
        forwarding(served(server), policy=policy) as endpoint,
        pytest.raises(openai.InternalServerError),
    ):
        sdk(endpoint).chat.completions.create(model="judge", messages=HI)
    assert [failure.kind for failure in endpoint.failures] == [FailureKind.TIMEOUT]
    assert [call.may_be_billed for call in endpoint.ledger.ended] == [True]


@pytest.mark.parametrize("is_stream", [False, True], ids=["whole", "stream"])
def test_a_web_page_in_the_place_of_an_answer_is_told_to_the_run(
    endpoint: ForwardingEndpoint, server: BillingServer, is_stream: bool
):
    server.default = Page()
    with pytest.raises(openai.InternalServerError):
        sdk(endpoint).chat.completions.create(model="judge", messages=HI, stream=is_stream)
    assert [failure.kind for failure in endpoint.failures] == [FailureKind.NO_PROTOCOL]


@pytest.mark.parametrize("body", [b"[" * 100_000, b"{" + b'"a":{' * 100_000, b"\xff", b"[]"])
def test_a_response_that_cannot_be_read_ends_on_the_ledger(
    endpoint: ForwardingEndpoint, server: BillingServer, body: bytes
):
    server.default = Reply(body=body)
    with pytest.raises((openai.APIConnectionError, openai.InternalServerError)):
        sdk(endpoint).chat.completions.create(model="judge", messages=HI)
    until(lambda: endpoint.ledger.ended)
    assert [call.may_be_billed for call in endpoint.ledger.ended] == [True]


@pytest.mark.parametrize("tokens", [-5, 0, True, "many", None])
def test_embeddings_without_a_usable_count_are_uncounted(
    endpoint: ForwardingEndpoint, server: BillingServer, tokens: object
):
    body = {"object": "list", "data": [], "usage": {"prompt_tokens": tokens}}
    server.default = Reply(body=json.dumps(body).encode())
    with pytest.raises(openai.APIConnectionError):
        sdk(endpoint).embeddings.create(model="judge", input="hi")
    assert [call.is_uncounted for call in endpoint.ledger.ended] == [True]


def test_a_stream_that_breaks_breaks_for_the_client_too_and_is_in_doubt(
    endpoint: ForwardingEndpoint, server: BillingServer
):
    server.default = Reply("three words here", breaks_after=2)
    with pytest.raises((openai.APIError, httpx.HTTPError)):
        list(sdk(endpoint).chat.completions.create(model="judge", messages=HI, stream=True))
    charged(endpoint)
    (call,) = endpoint.ledger.ended
    assert (call.may_be_billed, call.reply.answer) == (True, "three words")
    assert len(server.requests) == 1
    assert [failure.kind for failure in endpoint.failures] == [FailureKind.DOWN]


def test_an_error_event_in_a_stream_reaches_the_client(
    endpoint: ForwardingEndpoint, server: BillingServer
):
    server.default = Reply("three words here", fails_after=2)
    with pytest.raises(openai.APIError, match="upstream broke"):
        list(sdk(endpoint).chat.completions.create(model="judge", messages=HI, stream=True))
    charged(endpoint)
    assert [call.may_be_billed for call in endpoint.ledger.ended] == [True]
    assert [failure.kind for failure in endpoint.failures] == [FailureKind.DOWN]


def test_a_stream_that_flows_beyond_the_deadline_is_given_up_and_told_to_the_run(
    server: BillingServer,
):
    server.default = Drip()
    policy = RetryPolicy(call_timeout=0.3, retry_wait=0.01)
    with forwarding(served(server), policy=policy) as endpoint:
        with pytest.raises((openai.APIError, httpx.HTTPError)):
            list(sdk(endpoint).chat.completions.create(model="judge", messages=HI, stream=True))
        in_loop(endpoint.forwarder.close(PATIENCE))
    assert [failure.kind for failure in endpoint.failures] == [FailureKind.TIMEOUT]
    assert [call.may_be_billed for call in endpoint.ledger.ended] == [True]


def test_an_error_without_a_status_in_the_place_of_an_answer_is_a_failure(
    endpoint: ForwardingEndpoint, server: BillingServer
):
    server.default = Reply(body=b'{"error": "upstream broke"}')
    with pytest.raises(openai.InternalServerError, match="upstream broke"):
        sdk(endpoint).chat.completions.create(model="judge", messages=HI)
    assert [failure.kind for failure in endpoint.failures] == [FailureKind.OTHER]


@pytest.mark.parametrize("is_stream", [False, True], ids=["whole", "stream"])
def test_a_response_is_read_to_its_end_although_its_client_has_left(
    endpoint: ForwardingEndpoint, server: BillingServer, is_stream: bool
):
    gate = Gate(Reply("late words of an answer"))
    server.default = gate
    body = {"model": "judge", "messages": HI, "stream": is_stream}
    with pytest.raises(httpx.ReadTimeout):
        httpx.post(
            f"{endpoint.url}/v1/chat/completions",
            json=body,
            headers={"Authorization": f"Bearer {TOKEN}"},
            timeout=httpx.Timeout(PATIENCE, read=0.2),
        )
    assert gate.arrived.wait(PATIENCE)
    gate.opened.set()
    until(lambda: endpoint.ledger.ended)
    assert charged(endpoint) == billed(server) == Usage(10, 5)
    assert not endpoint.ledger.ended[0].may_be_billed


def test_a_client_reads_a_stream_while_it_is_written(
    endpoint: ForwardingEndpoint, server: BillingServer
):
    drip = Drip()
    server.default = drip
    with (
        httpx.Client(timeout=PATIENCE, headers={"Authorization": f"Bearer {TOKEN}"}) as asked,
        asked.stream(
            "POST",
            f"{endpoint.url}/v1/chat/completions",
            json={"model": "judge", "messages": HI, "stream": True},
        ) as response,
    ):
        assert next(response.iter_bytes()).startswith(b":\n\n")
    assert endpoint.ledger.ended == []
    in_loop(endpoint.forwarder.close(0))
    assert drip.was_hung_up.wait(PATIENCE)
    assert [call.may_be_billed for call in endpoint.ledger.ended] == [True]
    assert endpoint.failures == []


def test_closing_waits_for_what_is_in_flight(server: BillingServer):
    gate = Gate()
    server.default = gate
    with forwarding(served(server)) as endpoint, ThreadPoolExecutor(2) as pool:
        asked = pool.submit(sdk(endpoint).chat.completions.create, model="judge", messages=HI)
        assert gate.arrived.wait(PATIENCE)
        closing = pool.submit(in_loop, endpoint.forwarder.close(PATIENCE))
        gate.opened.set()
        closing.result(PATIENCE)
        assert [call.error for call in endpoint.ledger.ended] == [None]
        assert asked.result(PATIENCE).choices[0].message.content == "late"


def test_closing_gives_up_what_does_not_end_and_counts_it_as_lost(server: BillingServer):
    silence = Silence()
    server.default = silence
    with forwarding(served(server)) as endpoint, ThreadPoolExecutor(1) as pool:
        asked = pool.submit(sdk(endpoint).chat.completions.create, model="judge", messages=HI)
        until(lambda: server.requests)
        in_loop(endpoint.forwarder.close(0))
        assert [call.may_be_billed for call in endpoint.ledger.ended] == [True]
        with pytest.raises(openai.APIConnectionError):
            asked.result(PATIENCE)


@pytest.mark.parametrize("is_stream", [False, True], ids=["whole", "stream"])
def test_an_answer_without_counts_ends_what_the_client_may_ask(
    server: BillingServer, is_stream: bool
):
    server.default = Reply("hello", reports_usage=False)
    with forwarding(served(server)) as endpoint:
        with pytest.raises((openai.APIError, httpx.HTTPError)):
            list(
                sdk(endpoint).chat.completions.create(  # type: ignore[call-overload]
                    model="judge", messages=HI, stream=is_stream
                )
            )
        until(lambda: endpoint.ledger.ended)
        assert [call.is_uncounted for call in endpoint.ledger.ended] == [True]
        with pytest.raises(UncountedAnswer):
            in_loop(endpoint.forwarder.close(PATIENCE))
        with pytest.raises(UncountedAnswer):
            in_loop(endpoint.forwarder.send(endpoint.requests[0], served(server)))
    assert len(server.requests) == 1


@pytest.mark.parametrize("is_stream", [False, True], ids=["whole", "stream"])
def test_an_answer_without_counts_is_estimated_where_that_is_allowed(
    server: BillingServer, is_stream: bool
):
    server.default = Reply("hello", reports_usage=False)
    with forwarding(served(server), on_missing_usage="estimate") as endpoint:
        answer: Any = sdk(endpoint).chat.completions.create(
            model="judge", messages=HI, stream=is_stream
        )
        if is_stream:
            list(answer)
        charged(endpoint)
    (call,) = endpoint.ledger.ended
    assert (call.is_estimated, call.error, call.usage.output_tokens) == (True, None, 2)


def test_counts_that_a_request_cannot_have_caused_end_what_the_client_may_ask(
    server: BillingServer,
):
    server.default = Reply("hello", output_tokens=21)
    with forwarding(served(server)) as endpoint:
        with pytest.raises(openai.APIConnectionError):
            sdk(endpoint).chat.completions.create(model="judge", messages=HI, max_tokens=20)
        assert charged(endpoint) == billed(server)
        with pytest.raises(UnmeteredCall, match="21 output tokens, expected at most 20"):
            in_loop(endpoint.forwarder.close(PATIENCE))


def test_several_choices_are_billed_and_bounded(
    endpoint: ForwardingEndpoint, server: BillingServer
):
    answer = sdk(endpoint).chat.completions.create(model="judge", messages=HI, n=3)
    assert len(answer.choices) == 3
    assert endpoint.ledger.begun[0].choices == 3
    assert charged(endpoint) == billed(server)


def test_a_service_tier_of_another_price_is_refused(
    endpoint: ForwardingEndpoint, server: BillingServer
):
    with pytest.raises(openai.BadRequestError, match="service_tier: got 'priority'"):
        sdk(endpoint).chat.completions.create(model="judge", messages=HI, service_tier="priority")
    assert server.requests == []


def test_the_service_tier_of_the_model_is_asked_for_and_noted(server: BillingServer):
    server.default = Reply("hello", service_tier="flex")
    with forwarding(served(server, service_tier="flex")) as endpoint:
        sdk(endpoint).chat.completions.create(model="judge", messages=HI)
    assert server.requests[0]["service_tier"] == "flex"
    assert endpoint.ledger.ended[0].reply.service_tier == "flex"


def test_a_request_in_the_protocol_of_anthropic_is_refused_by_a_model_of_openai(
    endpoint: ForwardingEndpoint, server: BillingServer
):
    response = httpx.post(
        f"{endpoint.url}/v1/messages",
        json={"model": "judge", "messages": HI, "max_tokens": 10},
        headers={"x-api-key": TOKEN, "anthropic-version": "2023-06-01"},
        timeout=PATIENCE,
    )
    assert response.status_code == 400
    assert response.json()["type"] == "error"
    assert "expected a request in the protocol of openai" in response.json()["error"]["message"]
    assert server.requests == []


def test_requests_at_once_are_all_on_the_bill_and_on_the_ledger(
    endpoint: ForwardingEndpoint, server: BillingServer
):
    def ask(number: int) -> None:
        sdk(endpoint).chat.completions.create(model="judge", messages=HI, stream=number % 2 == 0)

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(ask, range(64)))
    until(lambda: len(endpoint.ledger.ended) == 64)
    assert charged(endpoint) == billed(server) == Usage(640, 320)


def test_a_client_of_the_user_with_its_own_http_client_is_served_by_translation(
    server: BillingServer,
):
    with httpx.Client() as http:
        model = client(server, http_client=http)
        with forwarding(model) as endpoint:
            answer = sdk(endpoint).chat.completions.create(model="judge", messages=HI)
    assert answer.choices[0].message.content == "hello"
    assert charged(endpoint) == billed(server) == Usage(10, 5)
