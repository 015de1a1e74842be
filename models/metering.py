"""Metering of one logical call: every model request under it becomes one MeteredCall."""

from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar, Token
from dataclasses import asdict, dataclass, field, replace
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
from costada.models.identity import RequestFacts
from costada.models.replies import (
    Reply,
    answer_text,
    encodable,
    read_failure,
    read_reply,
    shown,
    spoken,
)
from costada.models.requests import (
    CURRENT,
    ConnectionCount,
    MeteredCall,
    SentCall,
    announced,
    count_connections,
)
from costada.models.usage import (
    NO_TOKENS,
    TokenCounts,
    counts_from_metadata,
    estimate_counts,
    repeats,
    streamed_counts,
)

__all__ = ["CallMeter", "MeteredCall", "SentCall"]

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


@dataclass(slots=True)
class _Request:
    """A request under way: who was asked, what was sent, what a stream has brought so far."""

    sent: SentCall
    prompts: tuple[str, ...]
    kind: tuple[str, ...]
    connections_before: tuple[int, int]
    began: float = field(default_factory=monotonic)
    words: list[str] = field(default_factory=list)
    parts: list[TokenCounts] = field(default_factory=list)

    @property
    def arrived(self) -> str:
        """The text that a stream has brought."""
        return encodable("".join(self.words))


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
        on_start: Callable[[SentCall], None] | None = None,
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
        self._outer.append((_METER.set(self), CURRENT.set(self._connections)))
        return self

    def __exit__(self, *exc: object) -> None:
        """Report the requests that began and never ended, and let no further one leave.

        A call that was given up may still be retrying in a thread of its own.
        """
        meter, connections = self._outer.pop()
        CURRENT.reset(connections)
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
            counts = estimate_counts(request.prompts, shown(reply.answer))
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
        sent = SentCall(next(self._numbers), *announced(facts, prompts))
        if self._on_start:
            self._on_start(sent)
        kind = tuple(map(str, facts.serialized.get("id") or ()))
        if kind not in _TOLD_BY_PLACE and kind[:1] != ("costada",):
            count_connections()
        request = _Request(
            sent,
            prompts=tuple(each if isinstance(each, str) else spoken(each) for each in prompts),
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
        counts = estimate_counts(request.prompts, shown(reply.answer))
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


def _impossible(counts: TokenCounts, sent: SentCall) -> str | None:
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
