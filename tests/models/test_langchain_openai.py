"""The contract between us and the private names of langchain-core, langchain-openai and the SDK.

`make test-lowest` and `make test-highest` run it with the lowest and the highest versions that
pyproject.toml allows; a name that has moved fails here, and models/langchain_openai.py is the one
file to change.
"""

import asyncio
import json
import re
import sys
import tomllib
from collections import Counter
from functools import cached_property, reduce, wraps
from importlib.metadata import version
from operator import add
from pathlib import Path
from types import FrameType
from typing import Any

import httpx
import langchain_openai.chat_models.base as openai_base
import openai
import openai._base_client
import pytest
from billing_server import BillingServer, Drip, Refusal, Reply, Silence
from fakes import ScriptedModel, hashed_answer
from impatience import PATIENCE, SOON
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.language_models import BaseChatModel, FakeListChatModel
from langchain_core.messages import HumanMessage, SystemMessage
from langchain_core.runnables.retry import RunnableRetry
from langchain_openai import AzureChatOpenAI, ChatOpenAI
from metered_calls import client
from openai import OpenAI
from openai.resources.chat.completions import AsyncCompletions
from pydantic import SecretStr

from costada.models.event_loop import run
from costada.models.langchain_openai import (
    ERRORS_TELL_ORIGIN,
    RequestFacts,
    client_address,
    client_retries,
    failed_before_sending,
    failed_reading_response,
    is_openai,
    loses_response_ids,
    messages_of,
    raised_by_model_code,
    request_facts,
    safe_in_loop,
    send_body,
    sending_sdk,
    with_address,
    with_response_ids,
    without_client_retries,
    without_key,
)

PYPROJECT = Path(__file__).parents[2] / "pyproject.toml"
KEY = SecretStr("none")
PROTOCOLS = pytest.mark.parametrize(
    "protocol", [{}, {"use_responses_api": True}], ids=["chat completions", "responses"]
)
WAYS = pytest.mark.parametrize("is_streamed", [False, True], ids=["whole", "streamed"])


def azure(**options: Any) -> AzureChatOpenAI:
    return AzureChatOpenAI(
        azure_endpoint="http://127.0.0.1:9",
        api_version="1",
        azure_deployment="x",
        api_key=KEY,
        **options,
    )


class Starts(BaseCallbackHandler):
    """Notes what LangChain passes to the callbacks of each request."""

    def __init__(self):
        self.facts: list[RequestFacts] = []
        self.messages: list[Any] = []

    def on_chat_model_start(self, serialized: Any, messages: Any, **kwargs: Any):
        params = kwargs["invocation_params"]
        self.facts.append(RequestFacts(params, kwargs["metadata"], serialized))
        self.messages += messages


def error_of(model: Any, is_streamed: bool, **options: Any) -> Exception:
    with pytest.raises(Exception, match=r"(?s).*") as caught:
        list(model.stream("hi", **options)) if is_streamed else model.invoke("hi", **options)
    return caught.value


@pytest.mark.parametrize("package", ["langchain-core", "langchain-openai", "openai"])
def test_the_installed_versions_are_supported_ones(package: str):
    wanted = tomllib.loads(PYPROJECT.read_text())["project"]["dependencies"]
    (least,) = (each for each in wanted if re.split(r"[<>=,\[]", each)[0] == package)
    lowest = re.search(r">=([\d.]+)", least)
    assert lowest is not None
    installed, bound = (tuple(map(int, v.split(".")[:2])) for v in (version(package), lowest[1]))
    assert installed >= bound[: len(installed)]


@pytest.mark.parametrize(
    ("owner", "names"),
    [
        (BaseChatModel, "_get_ls_params _get_invocation_params _convert_input _generate _stream"),
        (BaseChatModel, "invoke ainvoke stream astream"),
        (ChatOpenAI, "_create_chat_result _convert_chunk_to_generation_chunk"),
        (ChatOpenAI, "_get_request_payload _use_responses_api"),
        (openai_base, "_construct_lc_result_from_responses_api"),
        (openai._base_client.SyncAPIClient, "_build_request"),
        (RunnableRetry, "_kwargs_retrying _sync_retrying"),
    ],
)
def test_the_private_names_exist(owner: object, names: str):
    assert [name for name in names.split() if not hasattr(owner, name)] == []


@PROTOCOLS
@pytest.mark.parametrize("bound", [{}, {"model": "other", "n": 2, "extra_body": {"a": 1}}])
def test_the_facts_of_a_request_are_those_that_callbacks_get(
    server: BillingServer, protocol: dict[str, bool], bound: dict[str, Any]
):
    starts = Starts()
    bound = {} if protocol else bound
    model = client(server, **protocol)
    model.bind(**bound).invoke("hi", {"callbacks": [starts]})
    (passed,), facts = starts.facts, request_facts(model, bound)
    for name in ("model", "model_name", "n", "extra_body", "max_completion_tokens"):
        assert facts.params.get(name) == passed.params.get(name)
    for name in ("ls_provider", "ls_model_name", "ls_temperature"):
        assert facts.metadata.get(name) == passed.metadata.get(name)
    assert [list(messages_of(model, "hi"))] == starts.messages


def test_the_classes_whose_errors_tell_their_origin_are_known_by_their_ids(server: BillingServer):
    starts = Starts()
    client(server).invoke("hi", {"callbacks": [starts]})
    error_of(azure(max_retries=0).with_config(callbacks=[starts]), is_streamed=False)
    assert {tuple(facts.serialized["id"]) for facts in starts.facts} == ERRORS_TELL_ORIGIN


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        (ChatOpenAI(model="x", api_key=KEY, base_url="http://h/v1"), "http://h/v1/"),
        (ChatOpenAI(model="x", api_key=KEY), "https://api.openai.com/v1/"),
        (azure(), "http://127.0.0.1:9/openai/deployments/x/"),
        (FakeListChatModel(responses=["x"]), None),
    ],
)
def test_the_address_of_a_model_is_that_of_its_client(model: BaseChatModel, expected: str | None):
    assert client_address(model) == expected
    assert is_openai(model) is isinstance(model, ChatOpenAI)


@WAYS
@PROTOCOLS
def test_a_model_with_another_address_calls_it_with_its_headers(
    server: BillingServer, protocol: dict[str, bool], is_streamed: bool
):
    nowhere = ChatOpenAI(
        model="x", api_key=KEY, base_url="http://127.0.0.1:9/v1", max_retries=0, **protocol
    )
    model = with_address(nowhere, server.url, {"X-Token": "t"}, {"mark": 1})
    list(model.stream("hi")) if is_streamed else model.invoke("hi")
    assert len(server.requests) == 1
    assert model.root_client.default_headers["X-Token"] == "t"
    assert model.metadata == {**(nowhere.metadata or {}), "mark": 1}
    assert client_address(nowhere) == "http://127.0.0.1:9/v1/"


class Lazy(ScriptedModel):
    """Builds its client on first use, as Anthropic's class does."""

    max_retries: int = 2

    @cached_property
    def _client(self) -> OpenAI:
        return OpenAI(api_key="none", max_retries=self.max_retries)


@pytest.mark.parametrize(
    ("model", "retries"),
    [
        (ChatOpenAI(model="x", api_key=KEY), 2),
        (ChatOpenAI(model="x", api_key=KEY, max_retries=4), 4),
        (azure(), 2),
        (Lazy(answer=hashed_answer), 2),
    ],
    ids=["default", "stated", "azure", "lazy"],
)
def test_retries_inside_the_sdk_are_seen_and_taken_out_of_a_copy(
    model: BaseChatModel, retries: int
):
    assert client_retries(model) == retries
    assert client_retries(without_client_retries(model)) == 0
    assert client_retries(model) == retries


def test_a_model_without_an_sdk_client_says_nothing_of_retries():
    model = FakeListChatModel(responses=["x"])
    assert client_retries(model) is None
    assert without_client_retries(model) is model


@WAYS
@PROTOCOLS
def test_without_retries_of_its_client_one_request_is_sent(
    server: BillingServer, protocol: dict[str, bool], is_streamed: bool
):
    server.default = Refusal(503)
    error_of(without_client_retries(client(server, max_retries=3, **protocol)), is_streamed)
    assert len(server.requests) == 1


@WAYS
@pytest.mark.parametrize(
    "options",
    [
        {"no_such_option": 1},
        {"use_responses_api": True, "no_such_option": 1},
        {"extra_body": {"a": object()}},
        {"extra_headers": {"a": object()}},
        {"use_responses_api": True, "extra_body": {"a": object()}},
        {"use_responses_api": True, "extra_headers": {"a": object()}},
    ],
    ids=[
        *("unknown parameter", "unknown parameter, responses", "body", "header"),
        *("body, responses", "header, responses"),
    ],
)
def test_a_request_that_cannot_be_written_fails_before_it_is_sent(
    server: BillingServer, is_streamed: bool, options: dict[str, Any]
):
    protocol = {name: value for name, value in options.items() if name == "use_responses_api"}
    bound = {name: value for name, value in options.items() if name not in protocol}
    error = error_of(client(server, **protocol), is_streamed, **bound)
    assert failed_before_sending(error)
    assert not failed_reading_response(error)
    assert server.requests == []


@WAYS
@PROTOCOLS
@pytest.mark.parametrize(
    "answer", [Refusal(400), Refusal(429), Refusal(500), Silence()], ids=lambda each: str(each)[:12]
)
def test_a_refusal_or_timeout_is_neither_unsent_nor_unreadable(
    server: BillingServer, protocol: dict[str, bool], is_streamed: bool, answer: Any
):
    server.default = answer
    error = error_of(client(server, timeout=SOON, **protocol), is_streamed)
    assert not failed_before_sending(error)
    assert not failed_reading_response(error)


def plain(server: BillingServer, **options: Any) -> ChatOpenAI:
    """A model whose requests are plain, with clients that may be used in any loop."""
    model = safe_in_loop(client(server, **options))
    assert isinstance(model, ChatOpenAI)
    return model


def with_completions_of_the_sdk(model: ChatOpenAI) -> ChatOpenAI:
    return model.model_copy(update={"async_client": model.root_async_client.chat.completions})


TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}


@pytest.mark.parametrize(
    ("model_options", "bound", "content"),
    [
        ({}, {}, "improve it"),
        ({"model": "o3", "reasoning_effort": "low"}, {"seed": 3}, "improve it"),
        ({"service_tier": "flex", "temperature": 0.2}, {"stop": ["END"]}, "improve it"),
        ({"extra_body": {"top_k": 5, "model": "other"}}, {"max_tokens": 7}, "improve it"),
        ({}, {"tools": [TOOL]}, "improve it"),
        ({}, {"extra_headers": {"X-Call": "1"}, "extra_query": {"v": "2"}}, "improve it"),
        ({}, {"response_format": {"type": "json_object"}}, "improve it"),
        ({"use_responses_api": True}, {}, "improve it"),
        ({}, {}, [{"type": "text", "text": "what is it?"}, IMAGE]),
    ],
    ids=[
        *("text", "reasoning", "tier and stop", "body of the caller", "tools", "headers"),
        *("structured", "responses", "image"),
    ],
)
@pytest.mark.parametrize("is_streamed", [False, True], ids=["whole", "streamed"])
def test_a_plain_request_and_its_answer_are_those_of_the_sdk(
    server: BillingServer,
    model_options: dict[str, Any],
    bound: dict[str, Any],
    content: Any,
    is_streamed: bool,
):
    if is_streamed and "response_format" in bound:
        pytest.skip("the server streams no structured answers")
    server.default = Reply(json.dumps("hello") if "response_format" in bound else "hello")
    prompt = [SystemMessage("be brief"), HumanMessage(content)]

    async def answer(model: ChatOpenAI) -> Any:
        if not is_streamed:
            return await model.ainvoke(prompt, **bound)
        return reduce(add, [part async for part in model.astream(prompt, **bound)])

    model = plain(server, **model_options)
    answers = [asyncio.run(answer(each)) for each in (model, with_completions_of_the_sdk(model))]
    own_name = {"id": True, "response_metadata": {"id"}}
    ours, theirs = (each.model_dump(exclude=own_name) for each in answers)
    assert ours == theirs
    sent, expected = server.requests
    assert sent == expected


def test_what_stands_in_for_the_method_of_the_sdk_sees_the_messages(
    server: BillingServer, monkeypatch: pytest.MonkeyPatch
):
    """As the instrumentation of tracers does."""
    seen, real = [], AsyncCompletions.create

    @wraps(real)
    async def create(self: AsyncCompletions, **given: Any) -> Any:
        seen.append(given["messages"][-1]["content"])
        return await real(self, **given)

    server.default = Reply("hello")
    monkeypatch.setattr(AsyncCompletions, "create", create)
    asyncio.run(plain(server).ainvoke("improve it"))
    assert seen == ["improve it"]
    monkeypatch.undo()
    asyncio.run(plain(server).ainvoke("improve it"))
    assert len(server.requests) == 2


def test_the_sdk_looks_up_no_type_of_a_plain_message(server: BillingServer):
    def lookups(num_messages: int) -> int:
        called = Counter[str]()

        def count(frame: FrameType, event: str, argument: object) -> None:
            if event == "call":
                called[frame.f_globals.get("__name__", "")] += 1

        async def ask() -> None:
            sys.setprofile(count)
            try:
                await plain(server).ainvoke([HumanMessage("hi")] * num_messages)
            finally:
                sys.setprofile(None)

        asyncio.run(ask())
        return called["openai._utils._transform"]

    lookups(1)  # fills what the SDK caches
    assert lookups(1) == lookups(50) > 0


@pytest.mark.parametrize(
    "bound",
    [{"no_such_option": 1}, {"extra_body": {"a": object()}}, {"extra_headers": {"a": object()}}],
    ids=["unknown parameter", "body", "header"],
)
def test_a_plain_request_that_cannot_be_written_fails_before_it_is_sent(
    server: BillingServer, bound: dict[str, Any]
):
    with pytest.raises(TypeError) as caught:
        asyncio.run(plain(server).ainvoke("hi", **bound))
    assert failed_before_sending(caught.value)
    assert not failed_reading_response(caught.value)
    assert server.requests == []


@pytest.mark.parametrize("body", [b"<html>", b'"busy"', b"[1]", b"{}", b'{"choices": ['])
def test_the_body_of_a_plain_request_fails_while_it_is_read(server: BillingServer, body: bytes):
    server.default = Reply(body=body)
    with pytest.raises(Exception, match=r"(?s).*") as caught:
        asyncio.run(plain(server).ainvoke("hi"))
    assert failed_reading_response(caught.value)
    assert not failed_before_sending(caught.value)


def test_plain_requests_stay_plain_without_the_retries_of_a_client(server: BillingServer):
    model: Any = plain(server, max_retries=3)
    changed: Any = without_client_retries(model)
    assert type(changed.async_client) is type(model.async_client)
    assert type(model.async_client) is not type(model.root_async_client.chat.completions)


@PROTOCOLS
@pytest.mark.parametrize(
    "body", [b"<html>", b'"busy"', b"[1]", b"{}", b'{"error": {"code": 502}}', b'{"choices": [']
)
def test_a_body_that_is_no_answer_fails_while_it_is_read(
    server: BillingServer, protocol: dict[str, bool], body: bytes
):
    server.default = Reply(body=body)
    error = error_of(client(server, **protocol), is_streamed=False)
    assert failed_reading_response(error)
    assert not failed_before_sending(error)


class Empty(FakeListChatModel):
    """Streams nothing."""

    def _stream(self, *args: Any, **kwargs: Any) -> Any:
        yield from ()


def test_a_stream_without_an_answer_fails_while_it_is_read():
    assert failed_reading_response(error_of(Empty(responses=["x"]), is_streamed=True))


class Raising(FakeListChatModel):
    """Fails in its own code."""

    def _generate(self, *args: Any, **kwargs: Any) -> Any:
        raise ConnectionError("its own")


def test_an_error_of_the_models_own_code_is_told_from_one_of_the_network(server: BillingServer):
    own = error_of(Raising(responses=["x"]), is_streamed=False)
    server.default = Refusal(500)
    assert raised_by_model_code(own)
    assert not failed_reading_response(own)
    assert not raised_by_model_code(error_of(client(server), is_streamed=False))
    assert not failed_reading_response(ValueError("elsewhere"))


def test_messages_are_made_of_any_input(server: BillingServer):
    message = HumanMessage("hi")
    assert list(messages_of(client(server), [message])) == [message]


@PROTOCOLS
def test_a_stream_can_say_which_response_it_is(server: BillingServer, protocol: dict[str, Any]):
    plain = client(server, **protocol)
    named = with_response_ids(plain)
    assert (loses_response_ids(plain), loses_response_ids(named)) == (True, False)
    assert type(named) is ChatOpenAI
    assert reduce(add, named.stream("hi")).id == "answer-1"


def test_a_body_is_sent_once_and_its_response_comes_as_it_is(server: BillingServer):
    async def send() -> tuple[int, bytes, str]:
        model = plain(server, max_retries=3)
        assert sending_sdk(model) == "openai"
        response = await send_body(model, "/chat/completions", {"model": "x"}, {"X-Own": "1"})
        body = await response.aread()
        await response.aclose()
        return response.status_code, body, response.request.headers["X-Own"]

    status, body, header = run(send())
    assert (status, json.loads(body)["model"], header) == (200, "x-as-served", "1")
    assert server.requests == [{"model": "x"}]
    assert server.authorizations == ["Bearer none"]


def test_a_body_that_is_refused_is_not_sent_again_by_the_client(server: BillingServer):
    server.default = Refusal(500, "busy")

    async def send() -> None:
        await send_body(plain(server, max_retries=3), "/responses", {"model": "x"}, {})

    with pytest.raises(openai.InternalServerError, match="busy"):
        run(send())
    assert len(server.requests) == 1


def test_a_response_can_be_read_while_it_arrives(server: BillingServer):
    drip = Drip()
    server.default = drip
    model = plain(server)  # its connections live as long as it does

    async def send() -> bytes:
        body = {"model": "x", "stream": True}
        response = await send_body(model, "/chat/completions", body, {})
        first: bytes = await anext(response.aiter_bytes())
        await response.aclose()
        return first

    assert run(send()).startswith(b":")
    assert drip.was_hung_up.wait(PATIENCE)


class Overriding(ChatOpenAI):
    """Makes its requests itself, perhaps others than it is given."""


def test_bodies_are_sent_by_clients_of_langchain_only(server: BillingServer):
    with httpx.Client() as http:
        own_client = client(server, http_client=http)
        assert sending_sdk(own_client) is None
        assert sending_sdk(safe_in_loop(own_client)) is None
    assert sending_sdk(safe_in_loop(client(server))) == "openai"
    assert sending_sdk(Overriding(model="x", api_key=KEY)) is None
    assert sending_sdk(FakeListChatModel(responses=["x"])) is None


def test_the_key_of_a_model_is_left_out_of_a_text(server: BillingServer):
    model = plain(server, api_key=SecretStr("the-secret"))
    assert without_key("got the-secret, expected another", model) == "got <key>, expected another"
