"""Clients of Anthropic's SDK, and a model of Anthropic behind the endpoint."""

from collections.abc import Iterator
from typing import Any

import openai
import pytest
from billing_server import BillingServer, Refusal, Reply
from endpoint_clients import TOKEN, ForwardingEndpoint, forwarding
from gateways import until
from pydantic import SecretStr

from costada.models.retries import with_visible_requests
from costada.values.usage import NO_TOKENS, Usage

anthropic = pytest.importorskip("anthropic", reason="the SDK of Anthropic is not installed")
langchain_anthropic = pytest.importorskip(
    "langchain_anthropic", reason="langchain-anthropic is not installed"
)

KEY = "the-key-of-the-run"
HI: Any = [{"role": "user", "content": "hi"}]
PATIENCE = 60.0


@pytest.fixture
def endpoint(server: BillingServer) -> Iterator[ForwardingEndpoint]:
    model = langchain_anthropic.ChatAnthropic(
        model="claude",
        base_url=server.url.removesuffix("/v1"),
        api_key=SecretStr(KEY),
        max_tokens=50,
        max_retries=2,
    )
    with forwarding(with_visible_requests(model)) as running:
        yield running


def sdk(endpoint: ForwardingEndpoint) -> Any:
    client = anthropic.Anthropic(
        base_url=endpoint.url, api_key=TOKEN, max_retries=0, timeout=PATIENCE
    )
    return endpoint.clients.enter_context(client)


def charged(endpoint: ForwardingEndpoint, number: int) -> Usage:
    until(lambda: len(endpoint.ledger.ended) == number)
    return sum((call.usage for call in endpoint.ledger.ended), NO_TOKENS)


def test_the_sdk_of_anthropic_works_unchanged(endpoint: ForwardingEndpoint, server: BillingServer):
    server.default = Reply("hello there", cached_tokens=4)
    whole = sdk(endpoint).messages.create(model="judge", messages=HI, max_tokens=20)
    with sdk(endpoint).messages.stream(model="judge", messages=HI, max_tokens=80) as stream:
        words = "".join(stream.text_stream)
        final = stream.get_final_message()
    assert (whole.content[0].text, words) == ("hello there", "hello there")
    assert (final.usage.input_tokens, final.usage.output_tokens) == (6, 5)
    assert charged(endpoint, 2) == Usage(20, 10, 8)
    assert [body["model"] for body in server.requests] == ["claude", "claude"]
    assert [body["max_tokens"] for body in server.requests] == [20, 50]


def test_errors_are_in_the_words_of_the_provider(
    endpoint: ForwardingEndpoint, server: BillingServer
):
    server.default = Refusal(400, f"no such thing for {KEY}")
    with pytest.raises(anthropic.BadRequestError, match="no such thing") as error:
        sdk(endpoint).messages.create(model="judge", messages=HI, max_tokens=20)
    assert KEY not in str(error.value)
    assert error.value.body["type"] == "error"


def test_failed_requests_are_sent_again_each_on_the_ledger(
    endpoint: ForwardingEndpoint, server: BillingServer
):
    server.script(Refusal(529))
    sdk(endpoint).messages.create(model="judge", messages=HI, max_tokens=20)
    assert charged(endpoint, 2) == Usage(10, 5)
    assert [call.error is None for call in endpoint.ledger.ended] == [False, True]


def test_chat_completions_are_translated(endpoint: ForwardingEndpoint, server: BillingServer):
    client = openai.OpenAI(
        base_url=f"{endpoint.url}/v1", api_key=TOKEN, max_retries=0, timeout=PATIENCE
    )
    asked = endpoint.clients.enter_context(client)
    answer = asked.chat.completions.create(model="judge", messages=HI, max_tokens=20)
    assert answer.choices[0].message.content == "hello"
    assert charged(endpoint, 1) == Usage(10, 5)
    with pytest.raises(openai.BadRequestError, match="has no embeddings"):
        asked.embeddings.create(model="judge", input="hi")
