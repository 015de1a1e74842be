"""Real chat models that call through a gateway, and what they are billed."""

import asyncio

import pytest
from billing_server import BillingServer, Refusal, Reply
from gateways import Gateway
from langchain_core.messages import AIMessage
from langchain_core.runnables import Runnable
from metered_calls import Point, client

from costada.models.asking import has_gateway, with_call_key
from costada.models.chat_models import chat_model
from costada.plugins.gateway.client import through_gateway, upstreams
from costada.plugins.gateway.gateway_protocol import GatewayAddress

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def model(running_server: BillingServer, running_gateway: Gateway) -> Runnable:
    return through_gateway(
        chat_model("openai:stand-in", base_url=running_server.url, retry_wait=0),
        running_gateway.address,
    )


@pytest.mark.parametrize(
    ("answers", "executions", "num_sent"),
    [
        ([Reply("one")], [["one"], ["one"]], 1),
        ([Reply("one"), Reply("two")], [["one", "two"], ["one", "two"]], 2),
        ([Refusal(500), Refusal(429), Reply("third")], [["third"], ["third"]], 3),
    ],
    ids=["asked again", "asked twice in each execution", "retried"],
)
def test_a_later_execution_gets_the_answers_of_the_first_one(
    model: Runnable, server: BillingServer, gateway: Gateway, answers, executions, num_sent
):
    server.script(*answers)
    metadata = []
    for texts in executions:
        keyed = with_call_key(model, gateway.call)
        received = [keyed.invoke("hi") for _ in texts]
        assert [each.content for each in received] == texts
        metadata.append([(each.response_metadata, each.usage_metadata) for each in received])
    assert metadata[0] == metadata[1]
    assert len(server.requests) == num_sent
    assert len(server.bill) == sum(isinstance(each, Reply) for each in answers)


def test_calls_with_different_keys_are_billed_each(model: Runnable, server: BillingServer):
    for attempt in (1, 2):
        with_call_key(model, f"run/1/retry/{attempt}").invoke("hi")
    assert len(server.bill) == 2


def test_a_stream_and_an_asynchronous_call_are_kept_as_well(
    model: Runnable, server: BillingServer, gateway: Gateway
):
    server.script(Reply("one two three"), Reply("later"))

    def text() -> str:
        return "".join(
            str(chunk.content) for chunk in with_call_key(model, gateway.call).stream("hi")
        )

    async def asynchronous() -> AIMessage:
        return await with_call_key(model, "run/1/guide/1").ainvoke("hi")

    assert [text(), text()] == ["one two three"] * 2
    assert [asyncio.run(asynchronous()).content for _ in range(2)] == ["later"] * 2
    assert len(server.bill) == 2


def test_the_key_reaches_models_in_fallbacks_sequences_and_bindings(
    server: BillingServer, gateway: Gateway
):
    server.default = Reply('{"x": 3}')
    broken, whole = client(server), client(server)
    structured = whole.bind(temperature=0).with_structured_output(Point)  # type: ignore[attr-defined]
    composed = through_gateway(broken.with_fallbacks([structured]), gateway.address)
    with_call_key(composed, gateway.call).invoke("hi")
    server.script(Refusal(400))
    for _ in range(2):
        assert with_call_key(composed, "run/2/guide/1").invoke("hi") == Point(x=3)
        server.script(Refusal(400))
    assert len(server.bill) == 2


def test_a_model_behind_a_gateway_is_not_called_without_a_key(model: Runnable):
    with pytest.raises(Exception, match="header X-CostAda-Call: got none"):
        model.invoke("hi")


def test_models_of_other_servers_are_left_alone(server: BillingServer, gateway: Gateway):
    with BillingServer() as other:
        stranger = client(other)
        assert through_gateway(stranger, gateway.address) is stranger
        assert with_call_key(stranger, gateway.call) is stranger
        assert not has_gateway(stranger)
    assert upstreams(stranger.with_fallbacks([client(server)])) == {other.url, server.url}


def test_a_model_is_not_changed_by_sending_a_copy_of_it_through_a_gateway(
    server: BillingServer, gateway: Gateway
):
    original = client(server)
    through_gateway(original, gateway.address)
    assert original.invoke("hi").content == "hello"
    assert len(server.bill) == 1


def test_a_proxy_of_the_environment_does_not_come_between(
    server: BillingServer, gateway: Gateway, monkeypatch: pytest.MonkeyPatch
):
    for name in ("http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    address: GatewayAddress = gateway.address
    model = through_gateway(client(server), address)
    assert with_call_key(model, gateway.call).invoke("hi").content == "hello"
