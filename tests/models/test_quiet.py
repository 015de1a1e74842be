from functools import cached_property
from typing import Any

import pytest
from billing_server import BillingServer, Refusal, Reply
from bills import as_billed
from fakes import ScriptedModel, hashed_answer, toy_problem
from langchain_core.runnables import Runnable, RunnableLambda
from langchain_openai import AzureChatOpenAI, ChatOpenAI
from openai import OpenAI
from pydantic import BaseModel, SecretStr

from costada.graph.build import create_discovery_graph
from costada.models.chat_models import chat_model
from costada.models.errors import UnmeteredCall
from costada.models.metering import CallMeter, MeteredCall
from costada.models.retries import hidden_retries, with_visible_requests
from costada.models.retry_policy import RetryPolicy
from costada.models.runnable_tree import model_identity, returns_raw_answers, underlying_models
from costada.nodes.settings import Settings
from costada.values.prices import Price

KEY = SecretStr("none")


class Point(BaseModel):
    x: int


class Lazy(ScriptedModel):
    """Builds its client on first use, as Anthropic's class does."""

    max_retries: int = 2

    @cached_property
    def _client(self) -> OpenAI:
        return OpenAI(api_key="none", max_retries=self.max_retries)


class Stubborn(ScriptedModel):
    """Retries in a way that nobody can see or change."""

    max_retries: int = 6


def loud(server: BillingServer, **options: Any) -> ChatOpenAI:
    headers = {"Connection": "close"}
    settings = {"model": "stand-in", "timeout": 5.0, "default_headers": headers, **options}
    return ChatOpenAI(base_url=server.url, api_key=KEY, **settings)


def retries(runnable: Runnable[Any, Any]) -> list[int]:
    return [hidden_retries(model) for model in underlying_models(runnable)]


WRAPPED: dict[str, Any] = {
    "bare": lambda model: model,
    "bound": lambda model: model.bind(stop=["x"]),
    "with tools": lambda model: model.bind_tools([Point]),
    "structured": lambda model: model.with_structured_output(Point),
    "configured": lambda model: model.with_config(tags=["x"]),
    "retried": lambda model: model.with_retry(),
    "with fallbacks": lambda model: model.with_fallbacks([model.bind(stop=["x"])]),
    "in a sequence": lambda model: RunnableLambda(list) | model | RunnableLambda(str),
}


@pytest.mark.parametrize("wrapped", WRAPPED)
def test_no_client_retries_and_the_given_one_still_does(
    server: BillingServer, wrapped: str
) -> None:
    model = loud(server)
    given = WRAPPED[wrapped](model)
    changed = with_visible_requests(given)
    assert set(retries(changed)) == {0}
    assert set(retries(given)) == {2}
    assert (model.max_retries, model.root_client.max_retries) == (None, 2)


def test_each_retry_is_a_request_of_its_own(
    server: BillingServer, calls: list[MeteredCall]
) -> None:
    server.script(Refusal(500), Refusal(429), Reply("at last", 70, 20))
    model = with_visible_requests(loud(server), RetryPolicy(retry_wait=1e-9))
    assert model.invoke("hi", {"callbacks": [CallMeter(calls.append)]}).text == "at last"
    assert [call.error is None for call in calls] == [False, False, True]
    assert as_billed(calls) == server.bill


def test_as_many_requests_are_sent_as_the_client_would_have_sent(server: BillingServer) -> None:
    server.default = Refusal(503)
    with pytest.raises(Exception, match="refused"):
        with_visible_requests(loud(server, max_retries=4), RetryPolicy(retry_wait=1e-9)).invoke(
            "hi"
        )
    assert len(server.requests) == 5


def test_the_copy_is_the_same_model(server: BillingServer) -> None:
    model = loud(server, default_query={"a": "b"}, temperature=0.3)
    (copy,) = underlying_models(with_visible_requests(model))
    assert isinstance(copy, ChatOpenAI)
    assert model_identity(copy) == model_identity(model)
    assert (copy.temperature, copy.root_client.timeout) == (0.3, 5.0)
    assert copy.root_client.default_query == {"a": "b"}
    assert returns_raw_answers(with_visible_requests(model))


def test_what_hides_nothing_is_returned_as_it_is(server: BillingServer) -> None:
    quiet = (
        chat_model("openai:stand-in", base_url=server.url),
        chat_model("offline"),
        loud(server, max_retries=0, stream_usage=True).with_retry(),
    )
    assert [with_visible_requests(model) is model for model in quiet] == [True, True, True]


def test_a_client_that_is_built_on_first_use_does_not_retry() -> None:
    model = Lazy(answer=hashed_answer)
    assert model._client.max_retries == 2
    (copy,) = underlying_models(with_visible_requests(model))
    assert isinstance(copy, Lazy)
    assert (copy._client.max_retries, model._client.max_retries) == (0, 2)


def test_azure_models_do_not_retry() -> None:
    model = AzureChatOpenAI(
        azure_endpoint="http://127.0.0.1:9", api_version="1", azure_deployment="x", api_key=KEY
    )
    assert retries(model) == [2]
    assert retries(with_visible_requests(model)) == [0]


@pytest.mark.parametrize("in_a_function", [False, True])
def test_a_model_that_cannot_be_kept_from_retrying_is_refused(
    server: BillingServer, in_a_function: bool
) -> None:
    inner, stubborn = loud(server), Stubborn(answer=hashed_answer)
    given = RunnableLambda(lambda prompt: inner.invoke(prompt)) if in_a_function else stubborn
    name = "stand-in" if in_a_function else "scripted"
    with pytest.raises(ValueError, match=f"'{name}' sends a failed request again .* max_retries=0"):
        with_visible_requests(given)


@pytest.mark.parametrize(
    ("address", "is_whole"),
    [("https://openrouter.ai/api/v1", True), ("https://api.openai.com/v1", False)],
)
def test_answers_arrive_in_one_piece_where_a_stream_would_lose_their_cost(
    address: str, is_whole: bool
) -> None:
    model = ChatOpenAI(model="x", base_url=address, api_key=KEY, max_retries=0)
    (copy,) = underlying_models(with_visible_requests(model))
    assert (copy.disable_streaming, model.disable_streaming) == (is_whole, False)


@pytest.mark.parametrize("wrapped", ["bare", "bound", "retried", "with fallbacks"])
@pytest.mark.parametrize("max_retries", [0, 2])
def test_streams_tell_their_counts_at_any_address(
    server: BillingServer, calls: list[MeteredCall], wrapped: str, max_retries: int
) -> None:
    server.script(Reply("one two", 70, 20, cached_tokens=30))
    given = loud(server, max_retries=max_retries)
    model = with_visible_requests(WRAPPED[wrapped](given))
    assert list(model.stream("hi", {"callbacks": [CallMeter(calls.append)]}))
    assert as_billed(calls) == server.bill
    assert given.stream_usage is None


def test_a_server_whose_streams_tell_no_counts_is_refused(
    server: BillingServer, calls: list[MeteredCall]
) -> None:
    server.script(Reply("one two", reports_usage=False))
    model = with_visible_requests(loud(server))
    with pytest.raises(UnmeteredCall, match="answered without token counts"):
        list(model.stream("hi", {"callbacks": [CallMeter(calls.append)]}))
    assert server.requests[0]["stream_options"] == {"include_usage": True}


def test_a_graph_makes_its_models_accountable(server: BillingServer) -> None:
    settings = Settings(price=Price(1, 2))
    create_discovery_graph(toy_problem(), loud(server), budget=1.0, settings=settings)
    with pytest.raises(ValueError, match="sends a failed request again by itself"):
        create_discovery_graph(
            toy_problem(), Stubborn(answer=hashed_answer), budget=1.0, settings=settings
        )
