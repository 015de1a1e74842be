"""Metering of one logical call: every model request under it becomes one MeteredCall."""

import sys
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar, Token
from dataclasses import asdict, dataclass, field, replace
from decimal import Decimal
from functools import cache
from itertools import count
from threading import Lock
from time import monotonic
from typing import Any, Literal, Self
from uuid import UUID

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import BaseMessage
from langchain_core.outputs import ChatGenerationChunk, LLMResult
from langchain_core.tracers.context import register_configure_hook

from costada.models.deadline import check_time_left
from costada.models.errors import UnmeteredCall, describe, may_have_been_billed
from costada.models.replies import (
    NO_TOKENS,
    Reply,
    TokenCounts,
    answer_text,
    counts_from_metadata,
    encodable_text,
    estimate_counts,
    read_failure,
    read_reply,
    repeats,
    streamed_counts,
    text_with_tool_calls,
    visible_text,
)
from costada.models.requests import ModelRequest, model_request
from costada.models.runnable_tree import RequestFacts

MOST_OUTPUT = 1_000_000
"""Answer tokens that no model exceeds where a request sets no limit."""

MOST_INPUT = 20_000_000
"""Prompt tokens that no model reads at once, whatever the prompt refers to."""

UNSEEN_INPUT = 4_000
"""Prompt tokens that a server may add unseen: instructions of its own, and the form of tools."""

NO_PROVIDER = "costada"
"""What the offline and the simulated model name as their provider."""

_POLICIES = ("raise", "estimate")
_ABANDONED = "no answer arrived: the request was abandoned and may have been billed"
_OVER = "this call has ended, so no other request of it may leave"
_NOT_ACCOUNTED = "a request of this call could not be accounted for, so no other may leave"
_UNHEARD = (
    "the model answered, but no request was seen that could be charged: call chat models in the "
    "thread and context in which the model is called, or hand the config on to them"
)


@dataclass(frozen=True, slots=True)
class MeteredCall:
    """One model request that was billed, or may have been.

    Attributes:
        model: Name of the model that was asked, as its provider knows it.
        provider: Name of the provider as LangChain reports it, if it does.
        input_tokens: Billed prompt tokens, those read from or written to a cache included (T_in,
            App. D.1).
        output_tokens: Billed answer tokens, reasoning ones included (T_out, App. D.1).
        cached_tokens: The part of the input read from the provider's prompt cache.
        reasoning_tokens: The part of the output that was thought and not shown.
        is_cache_hit: A LangChain cache answered; nothing was billed and all counts are zero.
        is_estimated: The counts are guessed from the text, the provider reported none.
        answer: Text of the answer, as `written` makes it of one that calls tools; for a stream
            that broke, the text that had arrived.
        finish_reason: Why the model stopped, in the provider's words.
        provider_id: The provider's id of the response.
        duration: Seconds from request to answer.
        error: What went wrong, or None. With zero counts nothing is known to be billed.
        may_be_billed: The provider may have billed more than the counts say.
        number: Of the request among those of its logical call, from 1.
        reported_cost: What the provider says it charged in dollars, if it does.
        cache_write_tokens: The part of the input written to the provider's prompt cache.
        cache_write_1h_tokens: The part of what was written that is kept for an hour.
    """

    model: str
    provider: str | None
    input_tokens: int
    output_tokens: int
    cached_tokens: int
    reasoning_tokens: int
    is_cache_hit: bool
    is_estimated: bool
    answer: str
    finish_reason: str | None
    provider_id: str | None
    duration: float
    error: str | None
    may_be_billed: bool = False
    number: int = 1
    reported_cost: Decimal | None = None
    cache_write_tokens: int = 0
    cache_write_1h_tokens: int = 0


_EVENTS = frozenset(
    {
        "http.client.send",
        "socket.connect",
        "socket.sendmsg",
        "socket.sendto",
        "subprocess.Popen",
    }
)


@dataclass(slots=True)
class ConnectionCount:
    """How many connections were opened, or programs started, in one context."""

    number: int = 0

    @property
    def total(self) -> int:
        """Those of this context and those of threads that run outside any context of a call."""
        return self.number if self is _UNATTRIBUTED else self.number + _UNATTRIBUTED.number


_CountVar = ContextVar[ConnectionCount]

_UNATTRIBUTED = ConnectionCount()
_CURRENT: _CountVar = ContextVar("costada_connections", default=_UNATTRIBUTED)


@cache
def _count_connections() -> None:
    """Begin to count, once for the life of the process: an audit hook cannot be removed.

    It makes whatever raises many audit events slower, `copy.deepcopy` for one, so it is for chat
    models only of which nothing else tells whether they have sent anything.
    """

    def hook(
        event: str,
        _: object,
        events: frozenset[str] = _EVENTS,
        current: _CountVar = _CURRENT,
    ) -> None:
        if event in events:
            current.get().number += 1

    sys.addaudithook(hook)


@dataclass(slots=True)
class _Request:
    """A request under way: who was asked, what was sent, what a stream has brought so far."""

    sent: ModelRequest
    prompts: tuple[str, ...]
    kind: tuple[str, ...]
    connections_before: tuple[int, int]
    began: float = field(default_factory=monotonic)
    words: list[str] = field(default_factory=list)
    parts: list[TokenCounts] = field(default_factory=list)

    @property
    def arrived(self) -> str:
        """The text that a stream has brought."""
        return encodable_text("".join(self.words))


class CallMeter(BaseCallbackHandler):
    """Reports each model request made under one logical call, exactly once.

    Attach a fresh meter to each logical call through the config's callbacks, and make the call in
    a `with` block of the meter: it then hears of requests that are made without the config too,
    and reports those that never ended. Retries and fallbacks inside the call are requests of their
    own, each under the name of the model asked.
    """

    raise_error = True
    run_inline = True

    def __init__(
        self,
        on_call: Callable[[MeteredCall], None],
        *,
        on_start: Callable[[ModelRequest], None] | None = None,
        on_missing_usage: Literal["raise", "estimate"] = "raise",
    ) -> None:
        """Create a meter.

        Args:
            on_call: Receives the report of each request, in the order in which they end.
            on_start: Hears of each request before it leaves.
            on_missing_usage: What to do with an answer without token counts. "raise" reports it
                with estimated counts and an error text, raises UnmeteredCall and lets no further
                request of this logical call out. "estimate" reports it with estimated counts and
                goes on; so it does with a stream that broke. See `estimate_counts`.

        Raises:
            ValueError: If `on_missing_usage` is neither.
        """
        if on_missing_usage not in _POLICIES:
            raise ValueError(
                f'on_missing_usage must be "raise" or "estimate", got {on_missing_usage!r}'
            )
        self._on_call = on_call
        self._on_start = on_start
        self._numbers = count(1)
        self._estimates = on_missing_usage == "estimate"
        self._requests: dict[UUID, _Request] = {}
        self._refusal: str | None = None
        self._has_heard = False
        self._outer: list[tuple[Token[CallMeter | None], Token[ConnectionCount]]] = []
        self._connections = ConnectionCount()
        self._lock = Lock()

    def __enter__(self) -> Self:
        """Hear of every request in this context."""
        self._outer.append((_METER.set(self), _CURRENT.set(self._connections)))
        return self

    def __exit__(self, *exc: object) -> None:
        """Report the requests that began and never ended, and let no further one leave.

        A call that was given up may still be retrying in a thread of its own.
        """
        meter, connections = self._outer.pop()
        _CURRENT.reset(connections)
        _METER.reset(meter)
        self._refusal = self._refusal or _OVER
        self.close()

    def on_chat_model_start(
        self,
        serialized: dict[str, Any],
        messages: list[list[BaseMessage]],
        *,
        run_id: UUID,
        metadata: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Note a chat request; raises UnmeteredCall after an answer without counts."""
        sent = [message for batch in messages for message in batch]
        self._start(run_id, sent, _facts(serialized, metadata, kwargs))

    def on_llm_start(
        self,
        serialized: dict[str, Any],
        prompts: list[str],
        *,
        run_id: UUID,
        metadata: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Note a request to a text-completion model, as for a chat model."""
        self._start(run_id, prompts, _facts(serialized, metadata, kwargs))

    def on_llm_new_token(
        self, token: str | list[str | dict[str, Any]], *, run_id: UUID, **kwargs: Any
    ) -> None:
        """Keep what a stream brings, in case it breaks before its end."""
        request, chunk = self._requests.get(run_id), kwargs.get("chunk")
        if request is None or not isinstance(chunk, ChatGenerationChunk):
            return
        request.words.append(answer_text(chunk.message))
        counts = counts_from_metadata(getattr(chunk.message, "usage_metadata", None))
        if counts is not None:
            request.parts.append(counts)

    def on_llm_end(self, response: LLMResult, *, run_id: UUID, **kwargs: Any) -> None:
        """Report an answer.

        Raises:
            UnmeteredCall: If it came without token counts and estimates are not allowed, or with
                counts that its request cannot have caused.
        """
        request = self._pop(run_id)
        if request is None:
            return
        reply = read_reply(response)
        if repeats(request.parts):
            reply = replace(reply, counts=streamed_counts(request.parts))
        if reply.is_cache_hit:
            self._report(request, reply, NO_TOKENS)
        elif reply.counts is not None and reply.is_counted:
            self._report_counted(request, reply, reply.counts)
        else:
            self._report_uncounted(request, reply)

    def on_llm_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        """Report a request that failed, with the counts that came with the error, if any.

        What the parts of a stream had counted is a part of the bill only.

        Raises:
            UnmeteredCall: If the request cannot have caused these counts.
        """
        request = self._pop(run_id)
        if request is None:
            return
        reply = read_failure(kwargs.get("response"), request.arrived)
        counts = reply.counts or streamed_counts(request.parts)
        is_guess = counts is None and self._estimates and bool(reply.answer)
        is_connected = self._connections.total != request.connections_before[1]
        has_left = is_connected or request.kind in _CONNECTED | _TOLD_BY_PLACE
        is_billed = bool(request.words or request.parts) or may_have_been_billed(error, has_left)
        if is_guess:
            counts = estimate_counts(request.prompts, visible_text(reply.answer))
        self._report_counted(
            request,
            reply,
            counts or NO_TOKENS,
            is_estimated=is_guess,
            error=describe(error),
            may_be_billed=reply.counts is None and is_billed,
        )

    def close(self) -> None:
        """Report the requests that began and never ended, e.g. as their task was cancelled."""
        with self._lock:
            abandoned = tuple(self._requests.values())
            self._requests.clear()
        for request in abandoned:
            self._report(
                request,
                Reply(request.arrived),
                streamed_counts(request.parts),
                error=_ABANDONED,
                may_be_billed=True,
            )

    def check_heard(self) -> None:
        """Raise `UnmeteredCall` if the call was answered and no request was ever seen."""
        if not self._has_heard:
            raise UnmeteredCall(_UNHEARD)

    def _start(
        self, run_id: UUID, prompts: Sequence[BaseMessage | str], facts: RequestFacts
    ) -> None:
        check_time_left()
        if self._refusal is not None:
            raise UnmeteredCall(self._refusal)
        sent = model_request(facts, prompts)._replace(number=next(self._numbers))
        if self._on_start:
            self._on_start(sent)
        kind = tuple(map(str, facts.serialized.get("id") or ()))
        if kind not in _TOLD_BY_PLACE and kind[:1] != ("costada",):
            _count_connections()
        request = _Request(
            sent,
            prompts=tuple(
                each if isinstance(each, str) else text_with_tool_calls(each) for each in prompts
            ),
            kind=kind,
            connections_before=(self._connections.number, self._connections.total),
        )
        with self._lock:
            self._requests[run_id] = request
            self._has_heard = True

    def _pop(self, run_id: UUID) -> _Request | None:
        with self._lock:
            request = self._requests.pop(run_id, None)
        if request is not None and self._connections.number != request.connections_before[0]:
            _CONNECTED.add(request.kind)
        return request

    def _report_counted(
        self,
        request: _Request,
        reply: Reply,
        counts: TokenCounts,
        *,
        is_estimated: bool = False,
        **facts: Any,
    ) -> None:
        """Report an answer as it was counted; if that cannot be, no further request may leave.

        The answer is paid for and kept, so that a run that is resumed does not ask for it again. An
        estimate of the output may exceed its limit and says nothing against the server.
        """
        told = replace(counts, output_tokens=0) if is_estimated else counts
        wrong = _impossible(told, request.sent)
        if wrong is not None:
            self._refusal = wrong
        self._report(request, reply, counts, is_estimated=is_estimated, **facts)
        if wrong is not None:
            raise UnmeteredCall(wrong)

    def _report_uncounted(self, request: _Request, reply: Reply) -> None:
        counts = estimate_counts(request.prompts, visible_text(reply.answer))
        if reply.counts is not None:
            counts = replace(reply.counts, output_tokens=counts.output_tokens)
        if self._estimates:
            self._report_counted(request, reply, counts, is_estimated=True)
            return
        self._refusal = (
            f"model {request.sent.model!r} answered without token counts, so the call cannot be "
            "charged: set stream_usage=True on the model if it streams, or "
            'on_missing_usage="estimate" to charge an estimate'
        )
        self._report(
            request, reply, counts, is_estimated=True, error=self._refusal, may_be_billed=True
        )
        raise UnmeteredCall(self._refusal)

    def _report(
        self,
        request: _Request,
        reply: Reply,
        counts: TokenCounts | None,
        *,
        is_estimated: bool = False,
        error: str | None = None,
        may_be_billed: bool = False,
    ) -> None:
        call = MeteredCall(
            model=request.sent.model,
            provider=request.sent.provider,
            **asdict(counts or NO_TOKENS),
            is_cache_hit=reply.is_cache_hit,
            is_estimated=is_estimated,
            answer=reply.answer,
            finish_reason=reply.finish_reason,
            provider_id=reply.provider_id,
            duration=monotonic() - request.began,
            error=error,
            may_be_billed=may_be_billed,
            number=request.sent.number,
            reported_cost=reply.cost,
        )
        self._put_on_record(call)

    def _put_on_record(self, call: MeteredCall) -> None:
        """Hand a report on; if that fails, no further request may leave."""
        try:
            self._on_call(call)
        except Exception as error:  # raised again: whatever it is, a request is unaccounted for
            self._refusal = self._refusal or f"{_NOT_ACCOUNTED} ({describe(error)})"
            raise


def _facts(
    serialized: Mapping[str, Any] | None,
    metadata: Mapping[str, Any] | None,
    extras: Mapping[str, Any],
) -> RequestFacts:
    return RequestFacts(extras.get("invocation_params") or {}, metadata or {}, serialized or {})


def _impossible(counts: TokenCounts, sent: ModelRequest) -> str | None:
    """Return why a request cannot have caused the tokens that its answer counts, if it cannot.

    Answers without a limit, and prompts that are not all text, are held to what any model does.
    Models without a provider make their counts up: nothing is billed.
    """
    if sent.provider == NO_PROVIDER:
        return None
    cap = MOST_OUTPUT if sent.output_cap is None else sent.output_cap
    most_read = sent.input_bound + (UNSEEN_INPUT if sent.is_all_text else MOST_INPUT)
    limits = (
        ("input", counts.input_tokens, most_read, "as no more bytes were sent"),
        ("output", counts.output_tokens, cap * sent.choices, "as the request allows no more"),
    )
    for kind, counted, most, reason in limits:
        if counted > most:
            return (
                f"model {sent.model!r} counts {counted:,} {kind} tokens, expected at most {most:,},"
                f" {reason}: the call is charged as counted and nothing more is sent; the server"
                " miscounts or ignores the limit of an answer"
            )
    return None


_TOLD_BY_PLACE = frozenset(
    {
        ("langchain", "chat_models", "openai", "ChatOpenAI"),
        ("langchain", "chat_models", "azure_openai", "AzureChatOpenAI"),
    }
)
"""Chat models whose errors tell by the place they come from whether anything was sent."""

_CONNECTED: set[tuple[str, ...]] = set()
"""Classes of chat models that have opened a connection: they may keep it and use it unseen."""

_METER: ContextVar[CallMeter | None] = ContextVar("costada_meter", default=None)
register_configure_hook(_METER, inheritable=True)
