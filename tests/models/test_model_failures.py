from typing import Any

import pytest
from billing_server import Answer, BillingServer, Refusal, Reply, Silence
from impatience import impatient
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.runnables import Runnable, RunnableLambda
from metered_calls import ask
from ports import refusing_port

from costada.models.asking import FailureKind, ModelFailure
from costada.models.chat_models import chat_model
from costada.models.errors import describe
from costada.models.metering import CallMeter, MeteredCall

MESSAGES = [HumanMessage("twelve bytes")]


class Broken(BaseChatModel):
    """A model that raises, or answers with prepared content."""

    error: Any = None
    content: Any = ""

    @property
    def _llm_type(self) -> str:
        return "broken"

    def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        if self.error is not None:
            raise self.error
        return ChatResult(generations=[ChatGeneration(message=AIMessage(self.content))])


def served(server: BillingServer, *answers: Answer, **settings: Any) -> Runnable[Any, AIMessage]:
    server.script(*answers)
    return chat_model("openai:stand-in", **{"base_url": server.url, "retry_wait": 0, **settings})


def failure_of(model: Runnable[Any, Any]) -> ModelFailure:
    failure = ask(model, MESSAGES, {})
    assert isinstance(failure, ModelFailure)
    return failure


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_passing_error_is_a_failure_after_the_last_attempt(server: BillingServer, status: int):
    failure = failure_of(served(server, *[Refusal(status, "busy")] * 3))
    assert f"Error code: {status}" in failure.reason
    assert "busy" in failure.reason
    assert failure.kind is FailureKind.DOWN
    assert len(server.requests) == 3


def test_a_timeout_is_a_failure(server: BillingServer):
    failure = failure_of(impatient(served(server, Silence(), max_attempts=1), server))
    assert "TimeoutError: Request timed out" in failure.reason
    assert failure.kind is FailureKind.TIMEOUT


def test_a_server_that_is_not_there_is_a_failure():
    with refusing_port() as port:
        url = f"http://127.0.0.1:{port}/v1"
        failure = failure_of(chat_model("openai:stand-in", base_url=url, retry_wait=0))
    assert "ConnectionError: Connection error" in failure.reason
    assert failure.kind is FailureKind.DOWN


@pytest.mark.parametrize(
    "body",
    [
        b'{"choices": [',
        b"<html>busy</html>",
        b'"busy"',
        b"[1]",
        b"{}",
        b'{"choices": null}',
        b'{"choices": []}',
        b'{"choices": [{"message": null}]}',
        b'{"error": {"message": "overloaded"}}',
        b'{"error": "overloaded"}',
    ],
)
def test_a_body_that_cannot_be_read_is_a_failure(server: BillingServer, body: bytes):
    failure_of(served(server, Reply(body=body)))
    assert len(server.requests) == 1


@pytest.mark.parametrize("text", ["", " \n", None])
def test_an_answer_without_text_is_a_failure(server: BillingServer, text: str | None):
    failure = failure_of(served(server, Reply(text, finish_reason="length")))
    assert failure == ModelFailure("the answer holds no text (finish reason: length)")


def test_an_answer_of_reasoning_alone_is_a_failure_and_one_in_blocks_is_none():
    reasoning = {"type": "reasoning", "reasoning": "hm"}
    assert failure_of(Broken(content=[reasoning]))
    blocks = [reasoning, {"type": "text", "text": "yes"}]
    assert isinstance(ask(Broken(content=blocks), MESSAGES, {}), AIMessage)


@pytest.mark.parametrize(
    ("status", "remedy"),
    [
        (401, "put a valid API key into the environment"),
        (402, "add credit"),
        (403, "ask the provider for access"),
        (404, "check the model's name and base_url"),
    ],
)
def test_a_refusal_for_good_is_raised_with_model_status_and_remedy(
    server: BillingServer, status: int, remedy: str
):
    expected = f"model 'stand-in' refused the request with status {status}: {remedy}"
    with pytest.raises(ValueError, match=expected):
        ask(served(server, Refusal(status, "no")), MESSAGES, {})
    assert len(server.requests) == 1


@pytest.mark.parametrize("status", [400, 422])
def test_a_request_found_faulty_is_a_refusal_that_another_prompt_may_cure(
    server: BillingServer, status: int
):
    failure = failure_of(served(server, Refusal(status, "no")))
    assert failure.kind is FailureKind.REFUSED
    assert f"status {status}: check the model's parameters" in failure.reason
    assert len(server.requests) == 1


def test_a_refusal_does_not_repeat_the_key(server: BillingServer, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-the-user")
    model = served(server, Refusal(401, "sk-of-the-user is wrong"))
    with pytest.raises(ValueError, match="<OPENAI_API_KEY> is wrong") as caught:
        ask(model, MESSAGES, {})
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None


@pytest.mark.parametrize(
    "kind", [ValueError, TypeError, KeyError, IndexError, AssertionError, OSError]
)
@pytest.mark.parametrize("is_retried", [False, True])
def test_a_programming_error_is_raised(kind: type[BaseException], is_retried: bool):
    model: Any = Broken(error=kind("bug"))
    with pytest.raises(kind, match="bug"):
        ask(model.with_retry(stop_after_attempt=1) if is_retried else model, MESSAGES, {})


def test_a_wrong_option_is_a_programming_error(server: BillingServer):
    with pytest.raises(TypeError, match="no_such_option"):
        ask(served(server).bind(no_such_option=1), MESSAGES, {})


def test_an_error_of_the_meters_receiver_is_raised_and_not_retried(server: BillingServer):
    def broken_pipe(call: MeteredCall) -> None:
        raise BrokenPipeError(f"cannot print {call.request.model}")

    with pytest.raises(BrokenPipeError, match="cannot print stand-in"):
        ask(served(server), MESSAGES, {"callbacks": [CallMeter(broken_pipe)]})
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("error", "kind"),
    [(ConnectionResetError("gone"), FailureKind.DOWN), (TimeoutError("late"), FailureKind.TIMEOUT)],
)
def test_a_lost_connection_of_any_provider_is_a_failure(error: Exception, kind: FailureKind):
    assert failure_of(Broken(error=error)) == ModelFailure(f"{type(error).__name__}: {error}", kind)


def test_something_else_than_a_message_is_refused():
    model: Runnable[Any, Any] = RunnableLambda(lambda messages: "text")
    with pytest.raises(ValueError, match="model must return an AIMessage, got str"):
        ask(model, MESSAGES, {})


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ValueError("bad\n  thing"), "ValueError: bad thing"),
        (TimeoutError(), "TimeoutError: no message"),
        (ValueError("wrong key sk-very-secret"), "ValueError: wrong key <SOME_API_KEY>"),
        (ValueError("x" * 10_000), f"ValueError: {'x' * 488}"),
        (ValueError("x" * 480 + "sk-very-secret"), f"ValueError: {'x' * 480}<SOME_AP"),
    ],
    ids=["one line", "no message", "without keys", "cut", "cut once it has no keys"],
)
def test_an_error_is_described_in_one_short_line(
    monkeypatch: pytest.MonkeyPatch, error: Exception, text: str
):
    monkeypatch.setenv("SOME_API_KEY", "sk-very-secret")
    assert describe(error) == text
