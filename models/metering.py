"""Metering of one logical call: every model request under it becomes one MeteredCall."""

import logging
import sys
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar, Token
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import count
from threading import RLock
from time import monotonic
from typing import Any, Literal, Self
from uuid import UUID

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import BaseMessage
from langchain_core.outputs import ChatGenerationChunk, LLMResult
from langchain_core.tracers.context import register_configure_hook

from costada.models.errors import UncountedAnswer, UnmeteredCall, describe
from costada.models.langchain_openai import ERRORS_TELL_ORIGIN, RequestFacts
from costada.models.provider_errors import may_have_been_billed
from costada.models.providers import NO_PROVIDER
from costada.models.reply_content import (
    NO_REPLY,
    Reply,
    answer_text,
    encodable_text,
    estimated_usage,
    is_cumulative,
    read_failure,
    read_reply,
    response_id,
    streamed_usage,
    text_with_tool_calls,
    usage_from_metadata,
    visible_text,
)
from costada.models.runnable_tree import OutgoingRequest, outgoing_request
from costada.values.usage import NO_TOKENS, Usage

MAX_OUTPUT = 1_000_000
"""Answer tokens that no model exceeds where a request sets no limit."""

MAX_INPUT = 20_000_000
"""Prompt tokens that no model reads at once, whatever the prompt refers to."""

UNSEEN_INPUT = 4_000
"""Prompt tokens that a server may add unseen: its own instructions, and the format of tools."""

ABANDONED = "no answer arrived: the request was abandoned and may have been billed"
_OVER = "this call has ended, so no further request of it is sent"
_NOT_ACCOUNTED = "a request of this call could not be recorded, so no further one is sent"
_UNSEEN = (
    "the model answered, but no request was seen that could be charged: call chat models in the "
    "thread and context in which the model is called, or pass the config on to them"
)


@dataclass(frozen=True, slots=True)
class MeteredCall:
    """One model request that was billed, or may have been.

    Attributes:
        request: Who was asked, and the limits of the request.
        reply: What came back; of a stream that broke, the text that had arrived.
        usage: The tokens to charge: those of the reply, or a guess. From a cache all are zero.
        is_estimated: The counts are guessed from the text, the provider reported none.
        duration: Seconds from request to answer.
        error: What went wrong, or None. With zero counts nothing is known to be billed.
        is_uncounted: A complete answer came without counts, and estimates are not allowed.
        may_be_billed: The provider may have billed more than the counts say.
    """

    request: OutgoingRequest
    reply: Reply = NO_REPLY
    usage: Usage = NO_TOKENS
    is_estimated: bool = False
    duration: float = 0.0
    error: str | None = None
    is_uncounted: bool = False
    may_be_billed: bool = False


_CONNECTION_EVENTS = frozenset(
    {"http.client.send", "socket.connect", "socket.sendmsg", "socket.sendto", "subprocess.Popen"}
)


@dataclass(slots=True)
class _ConnectionCount:
    """How many connections were opened, or programs started, in one context."""

    number: int = 0

    @property
    def total(self) -> int:
        """Those of this context and those of threads that run outside any context of a call."""
        return self.number if self is _UNATTRIBUTED else self.number + _UNATTRIBUTED.number


_UNATTRIBUTED = _ConnectionCount()
_CONNECTIONS: ContextVar[_ConnectionCount] = ContextVar(
    "costada_connections", default=_UNATTRIBUTED
)


@cache
def _count_connections() -> None:
    """Start counting, once per process: an audit hook cannot be removed.

    What is sent over a network opens a connection, and Python reports those of every client
    written in Python as audit events. The hook makes whatever raises many audit events slower,
    `copy.deepcopy` for one, so it serves only chat models whose errors do not show whether they
    have sent anything.
    """

    # Defaults, as the interpreter clears the names of this module at its end and still audits.
    def hook(
        event: str,
        _: object,
        events: frozenset[str] = _CONNECTION_EVENTS,
        current: ContextVar[_ConnectionCount] = _CONNECTIONS,
    ) -> None:
        if event in events:
            current.get().number += 1

    sys.addaudithook(hook)


@dataclass(slots=True)
class _Inflight:
    """A request in flight: who was asked, what was sent, what has been streamed so far."""

    request: OutgoingRequest
    prompts: tuple[str, ...]
    model_class: tuple[str, ...]
    connections_before: tuple[int, int]
    began: float = field(default_factory=monotonic)
    words: list[str] = field(default_factory=list)
    parts: list[Usage] = field(default_factory=list)
    response_id: str | None = None

    @property
    def arrived(self) -> str:
        return encodable_text("".join(self.words))


def _is_not_ours(record: logging.LogRecord) -> bool:
    """Whether LangChain logs another error than one of a `CallMeter`, which it raises as well."""
    return not (isinstance(record.args, tuple) and CallMeter.__name__ in record.args)


logging.getLogger("langchain_core.callbacks.manager").addFilter(_is_not_ours)


class CallMeter(BaseCallbackHandler):
    """Reports each model request made under one logical call, exactly once.

    Attach a fresh meter to each logical call through the config's callbacks, and make the call in
    a `with` block of the meter: it then sees requests that are made without the config too, and
    reports those that never ended. Retries and fallbacks inside the call are requests of their
    own, each under the name of the model asked.
    """

    # Without it LangChain logs what a callback raises, and sends the request all the same.
    raise_error = True
    run_inline = False
    """What receives the reports writes to a database, which must not stop an event loop."""

    ignore_chain = ignore_agent = ignore_retriever = ignore_retry = ignore_custom_event = True

    def __init__(
        self,
        on_call: Callable[[MeteredCall], None],
        *,
        on_start: Callable[[OutgoingRequest], None] | None = None,
        on_missing_usage: Literal["raise", "estimate"] = "raise",
    ) -> None:
        """Create a meter.

        Args:
            on_call: Receives the report of each request, in the order in which they end.
            on_start: Called with each request before it leaves.
            on_missing_usage: What to do with an answer without token counts. "raise" reports it
                with estimated counts and an error text, raises UncountedAnswer and refuses further
                requests of this logical call. "estimate" reports it with estimated counts and
                continues; so it does with a stream that broke. See `estimated_usage`.

        Raises:
            ValueError: If `on_missing_usage` is neither.
        """
        if on_missing_usage not in ("raise", "estimate"):
            raise ValueError(
                f'on_missing_usage must be "raise" or "estimate", got {on_missing_usage!r}'
            )
        self._on_call = on_call
        self._on_start = on_start
        self._numbers = count(1)
        self._estimates = on_missing_usage == "estimate"
        self._inflight: dict[UUID, _Inflight] = {}
        self._refusal: UnmeteredCall | None = None
        self._has_seen_request = False
        self._has_counted_answer = False
        self._outer: list[tuple[Token[CallMeter | None], Token[_ConnectionCount]]] = []
        self._connections = _ConnectionCount()
        self._recording = RLock()

    def __enter__(self) -> Self:
        """See every request in this context."""
        self._outer.append((_METER.set(self), _CONNECTIONS.set(self._connections)))
        return self

    def __exit__(self, *exc: object) -> None:
        """Report the requests that never ended, and refuse further ones.

        The thread of an abandoned call may still be retrying. What it is recording in this moment
        is waited for, so that no report comes after the end of the block.
        """
        meter, connections = self._outer.pop()
        _CONNECTIONS.reset(connections)
        _METER.reset(meter)
        with self._recording:
            self._refusal = self._refusal or UnmeteredCall(_OVER)
            self.close()

    def close(self) -> None:
        """Report the requests that began and never ended, e.g. as their task was cancelled."""
        with self._recording:
            abandoned = tuple(self._inflight.values())
            self._inflight.clear()
            for each in abandoned:
                usage = streamed_usage(each.parts)
                self._report(each, Reply(each.arrived), usage, error=ABANDONED, may_be_billed=True)

    @property
    def has_counted_answer(self) -> bool:
        """Whether a provider answered with token counts: it is a chat API."""
        return self._has_counted_answer

    def check_seen(self) -> None:
        """Raise `UnmeteredCall` if the call was answered and no request was ever seen."""
        if not self._has_seen_request:
            raise UnmeteredCall(_UNSEEN)

    def on_chat_model_start(
        self,
        serialized: dict[str, Any],
        messages: list[list[BaseMessage]],
        *,
        run_id: UUID,
        metadata: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Note a chat request; raises `UnmeteredCall` after an answer that cannot be charged."""
        sent = [message for batch in messages for message in batch]
        self._start(run_id, sent, serialized, metadata, kwargs)

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
        self._start(run_id, prompts, serialized, metadata, kwargs)

    def _start(
        self,
        run_id: UUID,
        prompts: Sequence[BaseMessage | str],
        serialized: Mapping[str, Any] | None,
        metadata: Mapping[str, Any] | None,
        extras: Mapping[str, Any],
    ) -> None:
        params = extras.get("invocation_params") or {}
        facts = RequestFacts(params, metadata or {}, serialized or {})
        model_class = tuple(map(str, facts.serialized.get("id") or ()))
        if model_class not in ERRORS_TELL_ORIGIN and model_class[:1] != ("costada",):
            _count_connections()
        with self._recording:
            if self._refusal is not None:
                # A new one, as the traceback of one that is raised again would grow.
                raise type(self._refusal)(*self._refusal.args)
            request = outgoing_request(facts, prompts)._replace(number=next(self._numbers))
            # First: a request that cannot be recorded is not sent, as what is raised here ends it.
            if self._on_start:
                self._on_start(request)
            self._inflight[run_id] = _Inflight(
                request,
                tuple(
                    each if isinstance(each, str) else text_with_tool_calls(each)
                    for each in prompts
                ),
                model_class,
                connections_before=(self._connections.number, self._connections.total),
            )
            self._has_seen_request = True

    def on_llm_new_token(
        self, token: str | list[str | dict[str, Any]], *, run_id: UUID, **kwargs: Any
    ) -> None:
        """Keep what a stream brings, in case it breaks before its end."""
        inflight, chunk = self._inflight.get(run_id), kwargs.get("chunk")
        if inflight is None or not isinstance(chunk, ChatGenerationChunk):
            return
        inflight.words.append(answer_text(chunk.message))
        inflight.response_id = inflight.response_id or response_id(chunk.message)
        usage = usage_from_metadata(getattr(chunk.message, "usage_metadata", None))
        if usage is not None:
            inflight.parts.append(usage)

    def on_llm_end(self, response: LLMResult, *, run_id: UUID, **kwargs: Any) -> None:
        """Report an answer.

        Raises:
            UncountedAnswer: If it came without token counts and estimates are not allowed.
            UnmeteredCall: If its request cannot have caused the counts that it came with.
        """
        with self._recording:
            inflight = self._pop(run_id)
            if inflight is None:
                return
            reply = read_reply(response)
            # LangChain adds up the counts of all parts, as if each counted only itself.
            if is_cumulative(inflight.parts):
                reply = replace(reply, usage=streamed_usage(inflight.parts))
            if reply.is_cache_hit:
                self._report(inflight, reply, NO_TOKENS)
            elif reply.usage is not None and reply.is_counted:
                self._has_counted_answer = True
                self._report_counted(inflight, reply, reply.usage)
            else:
                self._report_uncounted(inflight, reply)

    def on_llm_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        """Report a request that failed, with the counts that came with the error, if any.

        What the parts of a stream had counted is a part of the bill only.

        Raises:
            UnmeteredCall: If the request cannot have caused these counts.
        """
        with self._recording:
            inflight = self._pop(run_id)
            if inflight is not None:
                self._report_failed(inflight, error, kwargs.get("response"))
        if not isinstance(error, Exception):
            raise error  # LangChain would take it for an answer

    def _report_failed(self, inflight: _Inflight, error: BaseException, result: object) -> None:
        reply = read_failure(result, inflight.arrived)
        usage = reply.usage or streamed_usage(inflight.parts)
        # Those of threads without a context count: the client may have started one.
        is_connected = self._connections.total != inflight.connections_before[1]
        may_be_sent = is_connected or inflight.model_class in _CONNECTED | ERRORS_TELL_ORIGIN
        is_billed = bool(inflight.words or inflight.parts) or may_have_been_billed(
            error, may_be_sent
        )
        is_guess = usage is None and self._estimates and bool(reply.answer)
        if is_guess:
            usage = estimated_usage(inflight.prompts, visible_text(reply.answer))
        self._report_counted(
            inflight,
            reply,
            usage or NO_TOKENS,
            is_estimated=is_guess,
            error=describe(error),
            may_be_billed=reply.usage is None and is_billed,
        )

    def _pop(self, run_id: UUID) -> _Inflight | None:
        inflight = self._inflight.pop(run_id, None)
        # Own connections only: those of threads without a context may be of another model.
        if inflight and self._connections.number != inflight.connections_before[0]:
            _CONNECTED.add(inflight.model_class)
        return inflight

    def _report_counted(
        self,
        inflight: _Inflight,
        reply: Reply,
        usage: Usage,
        *,
        is_estimated: bool = False,
        **facts: Any,
    ) -> None:
        """Report an answer as it was counted; impossible counts end the call.

        The answer is paid for and kept, so that a run that is resumed does not ask for it again.
        """
        impossible = impossible_counts(usage, inflight.request, is_estimated=is_estimated)
        if impossible is not None:  # before the report, which may raise
            self._refusal = UnmeteredCall(impossible)
        self._report(inflight, reply, usage, is_estimated=is_estimated, **facts)
        if impossible is not None:
            raise UnmeteredCall(impossible)

    def _report_uncounted(self, inflight: _Inflight, reply: Reply) -> None:
        usage = estimated_usage(inflight.prompts, visible_text(reply.answer))
        if reply.usage is not None:
            usage = replace(reply.usage, output_tokens=usage.output_tokens)
        if self._estimates:
            self._report_counted(inflight, reply, usage, is_estimated=True)
            return
        refusal = uncounted_answer(inflight.request)
        self._refusal = UncountedAnswer(refusal)
        self._report(
            inflight,
            reply,
            usage,
            is_estimated=True,
            is_uncounted=True,
            error=refusal,
            may_be_billed=True,
        )
        raise UncountedAnswer(refusal)

    def _report(self, inflight: _Inflight, reply: Reply, usage: Usage | None, **facts: Any) -> None:
        """Pass a report on; if that fails, no further request is sent."""
        reply = replace(reply, provider_id=reply.provider_id or inflight.response_id)
        call = MeteredCall(
            inflight.request,
            reply,
            usage or NO_TOKENS,
            duration=monotonic() - inflight.began,
            **facts,
        )
        try:
            self._on_call(call)
        except BaseException as error:  # raised again: whatever it is, a request is unaccounted for
            self._refusal = self._refusal or UnmeteredCall(f"{_NOT_ACCOUNTED} ({describe(error)})")
            raise


def uncounted_answer(request: OutgoingRequest) -> str:
    """What is said of an answer without token counts where estimates are not allowed."""
    return (
        f"model {request.model!r} answered without token counts, so the call cannot"
        " be charged: to charge an estimate, use --on-missing-usage estimate (Python:"
        ' on_missing_usage="estimate"); if the model streams, set stream_usage=True on it'
    )


def impossible_counts(usage: Usage, request: OutgoingRequest, *, is_estimated: bool) -> str | None:
    """Why a request cannot have caused the tokens that its answer counts, if it cannot.

    Answers without a limit, and prompts that are not all text, are held to what any model does. An
    estimate of the output may exceed its limit and says nothing against the server. Models without
    a provider make their counts up: nothing is billed.
    """
    if request.provider == NO_PROVIDER:
        return None
    cap = MAX_OUTPUT if request.output_cap is None else request.output_cap
    most_read = request.input_bound + (UNSEEN_INPUT if request.is_all_text else MAX_INPUT)
    given = 0 if is_estimated else usage.output_tokens
    limits = (
        ("input", usage.input_tokens, most_read, "as no more bytes were sent"),
        ("output", given, cap * request.choices, "as the request allows no more"),
    )
    for kind, counted, most, reason in limits:
        if counted > most:
            return (
                f"model {request.model!r} counts {counted:,} {kind} tokens, expected at most"
                f" {most:,}, {reason}: the call is charged as counted and nothing more is sent;"
                " the server miscounts or ignores the limit of an answer"
            )
    return None


_CONNECTED: set[tuple[str, ...]] = set()
"""Classes of chat models that have opened a connection: they may keep it and use it unseen."""

_METER: ContextVar[CallMeter | None] = ContextVar("costada_meter", default=None)
# LangChain adds the meter of the context to requests that are made without the config.
register_configure_hook(_METER, inheritable=True)
