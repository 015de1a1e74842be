"""Chat completions of models that have no such API: any LangChain chat model, also offline ones.

A request becomes messages and parameters of LangChain, and the answer a completion. A stream brings
the whole answer as one piece.
"""

import asyncio
import json
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from dataclasses import replace
from threading import Lock
from time import time
from typing import Any, Literal
from uuid import uuid4

from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.messages import AIMessage, BaseMessage, convert_to_messages
from langchain_core.runnables import Runnable, RunnableConfig
from pydantic import ConfigDict

from costada.models.asking import ModelFailure, ask, limit_parameters
from costada.models.endpoint.client_responses import stored_response
from costada.models.endpoint.exchange import (
    ClientRequest,
    ClientResponse,
    Dialect,
    Postponed,
    Refusal,
    RequestLedger,
)
from costada.models.event_loop import ModelWrapper, off_the_clock
from costada.models.metering import ABANDONED, CallMeter, MeteredCall
from costada.models.providers import RetryPolicy
from costada.models.reply_content import answer_text, message_from_text
from costada.models.retries import sleep_between_requests
from costada.models.runnable_tree import (
    AskedModel,
    OutgoingRequest,
    bounded_request,
    with_every_model_changed,
)
from costada.values.usage import Usage

_PASSED = ("temperature", "top_p", "stop")
"""Parameters that LangChain's classes have by the same name."""

_UNSUPPORTED = ("functions", "function_call", "logit_bias", "logprobs", "top_logprobs")

_SHORTENED = frozenset({"length", "max_tokens", "MAX_TOKENS"})
"""What providers call an answer that reached its limit."""


async def completion(
    request: ClientRequest,
    model: Runnable[LanguageModelInput, AIMessage],
    ledger: RequestLedger,
    policy: RetryPolicy,
    on_missing_usage: Literal["raise", "estimate"],
) -> ClientResponse | ModelFailure:
    """The completion of a request, or why there is none, as `ask` says it.

    Raises:
        Refusal: The request needs more than messages, tools and usual parameters.
        Exception: What `ask` and the ledger raise.
    """
    messages = _messages(request)
    account = _Account(request, ledger)

    def accounted(part: BaseChatModel) -> Runnable[Any, Any]:
        return _AccountedModel(
            bound=part, asked=part, account=account, parameters=_parameters(part, request)
        )

    counted = with_every_model_changed(model, accounted, "requests cannot be accounted for")
    meter = CallMeter(account.finish, on_start=account.note, on_missing_usage=on_missing_usage)
    try:
        with meter:
            answer = await ask(counted, messages, RunnableConfig(callbacks=[meter]), policy)
    finally:
        account.close()
    if isinstance(answer, ModelFailure):
        return answer
    meter.check_seen()
    return stored_response(request, account.body)


def _messages(request: ClientRequest) -> list[BaseMessage]:
    if request.dialect is not Dialect.CHAT:
        raise Refusal(
            400,
            "protocol",
            f"model {request.model!r}: answers {Dialect.CHAT} alone, got {request.dialect}",
        )
    given = request.body
    for name in _UNSUPPORTED:
        if given.get(name):
            raise Refusal(400, "unsupported", f"{name}: model {request.model!r} has none")
    if request.choices > 1:
        raise Refusal(400, "unsupported", f"n: got {request.choices}, expected 1")
    if (given.get("response_format") or {}) not in ({}, {"type": "text"}):
        raise Refusal(400, "unsupported", "response_format: expected text")
    messages = given.get("messages")
    if not isinstance(messages, list) or not messages:
        raise Refusal(400, "invalid_value", "messages: expected a list of at least one message")
    try:
        return convert_to_messages(messages)
    except (AttributeError, KeyError, NotImplementedError, TypeError, ValueError) as error:
        raise Refusal(400, "invalid_value", f"messages: cannot be read ({error})") from None


def _parameters(model: BaseChatModel, request: ClientRequest) -> dict[str, Any]:
    """The parameters of a request as a chat model takes them."""
    given = request.body
    found = {name: given[name] for name in _PASSED if given.get(name) is not None}
    tools = given.get("tools")
    if tools and given.get("tool_choice") != "none":
        choice = given.get("tool_choice")
        try:
            bound = model.bind_tools(tools, tool_choice=choice)
        except (NotImplementedError, ValueError) as error:
            name = AskedModel(model).name
            raise Refusal(400, "unsupported", f"tools: model {name!r} has none ({error})") from None
        found |= getattr(bound, "kwargs", {})
    if request.output_cap is not None:
        found |= limit_parameters(model, found, request.output_cap)
    return found


_CURRENT: ContextVar[OutgoingRequest | None] = ContextVar("costada_endpoint_request", default=None)
"""The request that is being sent, as the ledger has it."""


class _Account:
    """Passes on to a ledger which requests a model sends for one request of a client.

    Attributes:
        body: The completion that was kept last.
    """

    def __init__(self, request: ClientRequest, ledger: RequestLedger) -> None:
        self._request, self._ledger = request, ledger
        self._unsent: list[OutgoingRequest] = []
        self._sent: dict[int, OutgoingRequest] = {}
        self._is_closed = False
        # A thread may still begin a request when its call has been cancelled.
        self._lock = Lock()
        self.body = ""

    def begin(self, request: OutgoingRequest) -> OutgoingRequest:
        """Write a request down that is about to leave."""
        begun = self._ledger.begin(request)
        with self._lock:
            if not self._is_closed:
                self._unsent.append(begun)
                return begun
        self._ledger.finish(MeteredCall(begun, error=ABANDONED))
        return begun

    def note(self, request: OutgoingRequest) -> None:
        """Note which of the requests a meter sees leave."""
        begun = _CURRENT.get()
        if begun is not None:
            with self._lock:
                self._unsent.remove(begun)
            self._sent[request.number] = begun

    def finish(self, call: MeteredCall) -> None:
        """Write down how a request ended, with the completion that a client gets."""
        begun = self._sent.pop(call.request.number)
        answer = call.reply.answer
        if call.error is None or call.is_uncounted:
            answer = self.body = completion_body(self._request, call)
        self._ledger.finish(replace(call, request=begun, reply=replace(call.reply, answer=answer)))

    def close(self) -> None:
        """Write down that nothing left of what was to leave and did not."""
        with self._lock:
            self._is_closed = True
            unsent, self._unsent = self._unsent, []
        for begun in unsent:
            self._ledger.finish(MeteredCall(begun, error="the request was not sent"))


class _AccountedModel(ModelWrapper):  # type: ignore[no-redef]
    """One chat model; each request to it is written down first, with the client's parameters."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    asked: BaseChatModel
    account: _Account
    parameters: dict[str, Any]

    async def ainvoke(
        self, input: LanguageModelInput, config: RunnableConfig | None = None, **kwargs: Any
    ) -> AIMessage:
        """Ask."""
        given = {**self.parameters, **kwargs}
        request = bounded_request(self.asked, input, given)
        begun = None
        while begun is None:
            try:
                begun = await asyncio.to_thread(self.account.begin, request)
            except Postponed as error:
                with off_the_clock():
                    await sleep_between_requests.get()(error.seconds)
        if begun.output_cap is not None and begun.output_cap != request.output_cap:
            given |= limit_parameters(self.asked, given, begun.output_cap)
        outer = _CURRENT.set(begun)
        try:
            return await super().ainvoke(input, config, **given)
        finally:
            _CURRENT.reset(outer)


def completion_body(request: ClientRequest, call: MeteredCall) -> str:
    """An answer as a completion, or as the events of one."""
    message = message_from_text(call.reply.answer)
    calls = [
        {
            "id": each["id"] or f"call-{uuid4().hex}",
            "type": "function",
            "function": {"name": each["name"], "arguments": json.dumps(each["args"])},
        }
        for each in message.tool_calls
    ]
    said: dict[str, Any] = {"role": "assistant", "content": answer_text(message) or None}
    if calls:
        reason = "tool_calls"
    else:
        reason = "length" if call.reply.finish_reason in _SHORTENED else "stop"
    kind = "chat.completion.chunk" if request.is_stream else "chat.completion"
    head: dict[str, Any] = {
        "id": call.reply.provider_id or f"chatcmpl-{uuid4().hex}",
        "object": kind,
        "created": int(time()),
        "model": request.model,
    }
    usage = _usage_record(call.usage)
    if not request.is_stream:
        whole = said | ({"tool_calls": calls} if calls else {})
        choice = {"index": 0, "message": whole, "finish_reason": reason, "logprobs": None}
        return json.dumps(head | {"choices": [choice], "usage": usage})
    numbered = [{"index": number, **each} for number, each in enumerate(calls)]
    delta = said | ({"tool_calls": numbered} if calls else {})
    return "".join(_events(request, head, delta, reason, usage))


def _events(
    request: ClientRequest,
    head: Mapping[str, Any],
    delta: Mapping[str, Any],
    reason: str,
    usage: Mapping[str, Any],
) -> Iterator[str]:
    def event(facts: Mapping[str, Any]) -> str:
        return f"data: {json.dumps({**head, **facts})}\n\n"

    yield event({"choices": [{"index": 0, "delta": delta, "finish_reason": None}]})
    yield event({"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]})
    options = request.body.get("stream_options")
    if isinstance(options, Mapping) and options.get("include_usage"):
        yield event({"choices": [], "usage": usage})
    yield "data: [DONE]\n\n"


def _usage_record(usage: Usage) -> dict[str, Any]:
    return {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.input_tokens + usage.output_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
    }
