"""Chat completions of models that speak no protocol: offline ones and any of LangChain."""

from collections.abc import Iterator
from typing import Any

import httpx
import openai
import pytest
from billing_server import BillingServer, Refusal, Reply
from endpoint_clients import TOKEN, ForwardingEndpoint, NotedRequests, forwarding
from fakes import ScriptedModel
from gateways import until
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from metered_calls import client
from needed_plugins import offline_model
from pydantic import Field

from costada.models.asking import FailureKind
from costada.models.retries import with_retries
from costada.models.runnable_tree import OutgoingRequest
from costada.values.usage import Usage

PATIENCE = 60.0
HI: Any = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hi"}]
TOOL: Any = {
    "type": "function",
    "function": {
        "name": "look",
        "description": "look",
        "parameters": {"type": "object", "properties": {"at": {"type": "string"}}},
    },
}


class ToolModel(BaseChatModel):
    """Calls the tool that it is given, and says what its messages and parameters were."""

    seen: list[tuple[list[BaseMessage], dict[str, Any]]] = Field(default_factory=list)
    failures: int = 0

    @property
    def _llm_type(self) -> str:
        return "tools"

    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        return self.bind(tools=tools, **{k: v for k, v in kwargs.items() if v is not None})

    def _generate(
        self, messages: list[BaseMessage], stop: Any = None, run_manager: Any = None, **kwargs: Any
    ) -> ChatResult:
        self.seen.append((messages, {**kwargs, **({"stop": stop} if stop else {})}))
        if len(self.seen) <= self.failures:
            raise ConnectionError("lost")
        calls = [{"name": "look", "args": {"at": "x"}, "id": "1"}] if kwargs.get("tools") else []
        message = AIMessage(
            "" if calls else "hello",
            tool_calls=calls,
            usage_metadata={"input_tokens": 10, "output_tokens": 5, "total_tokens": 15},
        )
        return ChatResult(generations=[ChatGeneration(message=message)])


@pytest.fixture
def endpoint() -> Iterator[ForwardingEndpoint]:
    with forwarding(ScriptedModel(answer=lambda prompt: f"said: {prompt}")) as running:
        yield running


def sdk(endpoint: ForwardingEndpoint) -> openai.OpenAI:
    client = openai.OpenAI(
        base_url=f"{endpoint.url}/v1", api_key=TOKEN, max_retries=0, timeout=PATIENCE
    )
    return endpoint.clients.enter_context(client)


def test_a_model_of_langchain_answers_chat_completions(endpoint: ForwardingEndpoint):
    answer = sdk(endpoint).chat.completions.create(model="judge", messages=HI)
    assert "hi" in str(answer.choices[0].message.content)
    assert answer.choices[0].finish_reason == "stop"
    assert answer.model == "judge"
    assert answer.usage is not None
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (1000, 500)
    (call,) = endpoint.ledger.ended
    assert (call.request.number, call.request.model, call.usage) == (
        1,
        "scripted",
        Usage(1000, 500),
    )


@pytest.mark.parametrize("has_asked", [False, True])
def test_a_stream_brings_the_whole_answer(endpoint: ForwardingEndpoint, has_asked: bool):
    options: Any = {"stream_options": {"include_usage": True}} if has_asked else {}
    chunks = list(
        sdk(endpoint).chat.completions.create(model="judge", messages=HI, stream=True, **options)
    )
    words = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert words.startswith("said: ")
    assert [chunk.usage is not None for chunk in chunks] == [False, False] + [True] * has_asked


def test_what_was_answered_is_kept_as_the_client_got_it(endpoint: ForwardingEndpoint):
    bodies = [
        httpx.post(
            f"{endpoint.url}/v1/chat/completions",
            json={"model": "judge", "messages": HI, "stream": is_stream},
            headers={"Authorization": f"Bearer {TOKEN}"},
            timeout=PATIENCE,
        ).text
        for is_stream in (False, True)
    ]
    assert [call.reply.answer for call in endpoint.ledger.ended] == bodies


def test_the_offline_model_answers_without_a_key():
    with forwarding(offline_model()) as endpoint:
        answer = sdk(endpoint).chat.completions.create(model="judge", messages=HI)
    assert answer.choices[0].message.content
    assert endpoint.ledger.ended[0].usage.output_tokens > 0


@pytest.mark.parametrize("is_stream", [False, True], ids=["whole", "stream"])
def test_tools_and_parameters_are_translated(is_stream: bool):
    model = ToolModel()
    with forwarding(model) as endpoint:
        found: Any = sdk(endpoint).chat.completions.create(  # type: ignore[call-overload]
            model="judge",
            messages=HI,
            tools=[TOOL],
            tool_choice="required",
            temperature=0.5,
            stop=["END"],
            max_tokens=20,
            stream=is_stream,
        )
        if is_stream:
            chunks = list(found)
            (call,) = chunks[0].choices[0].delta.tool_calls
            reason = chunks[-1].choices[0].finish_reason
        else:
            (call,) = found.choices[0].message.tool_calls
            reason = found.choices[0].finish_reason
    assert (call.id, call.function.name, call.function.arguments) == ("1", "look", '{"at": "x"}')
    assert reason == "tool_calls"
    messages, parameters = model.seen[0]
    assert [(each.type, each.content) for each in messages] == [
        ("system", "be brief"),
        ("human", "hi"),
    ]
    assert parameters == {
        "tools": [TOOL],
        "tool_choice": "required",
        "temperature": 0.5,
        "stop": ["END"],
        "max_tokens": 20,
    }


def test_the_answers_of_tools_are_translated():
    model = ToolModel()
    called = {"id": "1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    conversation: Any = [
        *HI,
        {"role": "assistant", "content": None, "tool_calls": [called]},
        {"role": "tool", "tool_call_id": "1", "content": "a tree"},
    ]
    with forwarding(model) as endpoint:
        sdk(endpoint).chat.completions.create(model="judge", messages=conversation)
    messages = model.seen[0][0]
    assert messages[2].tool_calls[0]["name"] == "look"  # type: ignore[attr-defined]
    assert messages[3].tool_call_id == "1"  # type: ignore[attr-defined]


def test_the_ledger_may_lower_the_limit_of_an_answer():
    model = ToolModel()
    ledger = NotedRequests(lambda request: request._replace(output_cap=7))
    with forwarding(model, ledger=ledger) as endpoint:
        sdk(endpoint).chat.completions.create(model="judge", messages=HI, max_tokens=20)
    assert model.seen[0][1] == {"max_tokens": 7}


def test_failed_requests_are_sent_again_each_on_the_ledger():
    model = ToolModel(failures=2)
    with forwarding(with_retries(model, 3, 0)) as endpoint:
        sdk(endpoint).chat.completions.create(model="judge", messages=HI)
    ledger = endpoint.ledger
    assert [request.number for request in ledger.begun] == [1, 2, 3]
    assert [call.request.number for call in ledger.ended] == [1, 2, 3]
    assert [call.error is None for call in ledger.ended] == [False, False, True]


def test_an_outage_is_a_failure_of_which_the_run_learns():
    with forwarding(ToolModel(failures=9)) as endpoint, pytest.raises(openai.InternalServerError):
        sdk(endpoint).chat.completions.create(model="judge", messages=HI)
    assert [failure.kind for failure in endpoint.failures] == [FailureKind.DOWN]


def test_a_fallback_is_asked_and_charged_under_its_own_name(server: BillingServer):
    server.script(Refusal(500))
    model = client(server, http_client=httpx.Client()).with_fallbacks([ToolModel()])
    with forwarding(model) as endpoint:
        answer = sdk(endpoint).chat.completions.create(model="judge", messages=HI)
    assert answer.choices[0].message.content == "hello"
    assert [request.model for request in endpoint.ledger.begun] == ["stand-in", "ToolModel"]
    assert [call.error is None for call in endpoint.ledger.ended] == [False, True]


def test_what_never_left_ends_on_the_ledger_without_a_bill(server: BillingServer):
    model = client(server, http_client=httpx.Client()).bind(no_such_parameter=1)
    with forwarding(model) as endpoint, pytest.raises(openai.APIConnectionError):
        sdk(endpoint).chat.completions.create(model="judge", messages=HI)
    until(lambda: len(endpoint.ledger.ended) == len(endpoint.ledger.begun) == 1)
    assert not endpoint.ledger.ended[0].may_be_billed
    assert server.requests == []


def test_nothing_is_asked_that_the_ledger_refuses():
    def refuse(request: OutgoingRequest) -> OutgoingRequest:
        raise InterruptedError("stopped")

    model = ToolModel()
    with (
        forwarding(model, ledger=NotedRequests(refuse)) as endpoint,
        pytest.raises(openai.APIConnectionError),
    ):
        sdk(endpoint).chat.completions.create(model="judge", messages=HI)
    assert (model.seen, endpoint.ledger.ended) == ([], [])


@pytest.mark.parametrize(
    ("path", "body", "named"),
    [
        ("responses", {"input": "hi"}, "answers chat/completions alone"),
        ("embeddings", {"input": "hi"}, "answers chat/completions alone"),
        ("chat/completions", {"messages": []}, "messages: expected a list"),
        ("chat/completions", {"messages": [{"role": "judge"}]}, "messages: cannot be read"),
        ("chat/completions", {"messages": [7]}, "messages: cannot be read"),
        ("chat/completions", {"messages": HI, "n": 2}, "n: got 2"),
        ("chat/completions", {"messages": HI, "logprobs": True}, "logprobs:"),
        ("chat/completions", {"messages": HI, "tools": [TOOL]}, "tools: model 'scripted' has none"),
        (
            "chat/completions",
            {"messages": HI, "response_format": {"type": "json_object"}},
            "response_format: expected text",
        ),
    ],
)
def test_what_cannot_be_translated_is_refused(
    endpoint: ForwardingEndpoint, path: str, body: dict[str, Any], named: str
):
    response = httpx.post(
        f"{endpoint.url}/v1/{path}",
        json={"model": "judge", **body},
        headers={"Authorization": f"Bearer {TOKEN}"},
        timeout=PATIENCE,
    )
    assert response.status_code == 400
    assert named in response.json()["error"]["message"]
    assert endpoint.ledger.ended == []


def test_an_answer_that_reached_its_limit_says_so(server: BillingServer):
    server.default = Reply("hello", finish_reason="length")
    with forwarding(client(server, http_client=httpx.Client())) as endpoint:
        answer = sdk(endpoint).chat.completions.create(model="judge", messages=HI)
    assert answer.choices[0].finish_reason == "length"
