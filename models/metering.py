"""Metering of one logical call: every model request under it becomes one MeteredCall."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import count
from threading import Lock
from time import monotonic
from typing import Any, Literal
from uuid import UUID

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import BaseMessage
from langchain_core.outputs import ChatGenerationChunk, LLMResult

from costada.models.announcements import Announcement, announced
from costada.models.errors import UnmeteredCall, describe
from costada.models.llm_results import Reply, error_counts, read_reply
from costada.models.provider_errors import may_have_been_billed
from costada.models.replies import answer_text
from costada.models.token_counts import (
    NO_TOKENS,
    TokenCounts,
    counts_from_metadata,
    estimate_counts,
)

_POLICIES = ("raise", "estimate")
_ABANDONED = "no answer arrived: the request was abandoned and may have been billed"


@dataclass(frozen=True, slots=True)
class MeteredCall:
    """One model request that was billed, or may have been.

    Attributes:
        model: Name of the model that was asked, as its provider knows it.
        provider: Name of the provider as LangChain reports it, if it does.
        input_tokens: Billed prompt tokens, cached ones included (T_in, App. D.1).
        output_tokens: Billed answer tokens, reasoning ones included (T_out, App. D.1).
        cached_tokens: The part of the input read from the provider's prompt cache.
        reasoning_tokens: The part of the output that was thought and not shown.
        is_cache_hit: A LangChain cache answered; nothing was billed and all counts are zero.
        is_estimated: The counts are guessed from the text, the provider reported none.
        answer: Text of the answer; for a stream that broke, the text that had arrived.
        finish_reason: Why the model stopped, in the provider's words.
        provider_id: The provider's id of the response.
        duration: Seconds from request to answer.
        error: What went wrong, or None. With zero counts nothing is known to be billed.
        may_be_billed: The provider may have billed more than the counts say.
        number: Of the request among those of its logical call, from 1.
        reported_cost: What the provider says it charged in dollars, if it does.
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


@dataclass(frozen=True, slots=True)
class SentCall:
    """A model request that is about to leave.

    Attributes:
        number: Of the request among those of its logical call, from 1.
        model: Name of the model that is asked, as its provider knows it.
        provider: Name of the provider as LangChain reports it, if it does.
        output_cap: Most answer tokens that the request allows, if it says.
    """

    number: int
    model: str
    provider: str | None
    output_cap: int | None


@dataclass(slots=True)
class _Request:
    """A request under way: who was asked, what was sent, what a stream has brought so far."""

    number: int
    model: str
    provider: str | None
    prompts: tuple[str, ...]
    began: float = field(default_factory=monotonic)
    words: list[str] = field(default_factory=list)
    counts: TokenCounts | None = None


class CallMeter(BaseCallbackHandler):
    """Reports each model request made under one logical call, exactly once.

    Attach a fresh meter to each logical call through the config's callbacks. Retries and
    fallbacks inside the call are requests of their own, each under the name of the model asked.
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
        self._lock = Lock()

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
        prompts = [answer_text(message) for batch in messages for message in batch]
        self._start(run_id, prompts, announced(serialized, metadata, kwargs))

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
        self._start(run_id, prompts, announced(serialized, metadata, kwargs))

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
            request.counts = (request.counts or NO_TOKENS) + counts

    def on_llm_end(self, response: LLMResult, *, run_id: UUID, **kwargs: Any) -> None:
        """Report an answer.

        Raises:
            UnmeteredCall: If it came without token counts and estimates are not allowed.
        """
        request = self._pop(run_id)
        if request is None:
            return
        reply = read_reply(response)
        if reply.is_cache_hit or reply.counts is not None:
            self._report(request, reply, NO_TOKENS if reply.is_cache_hit else reply.counts)
        else:
            self._report_uncounted(request, reply)

    def on_llm_error(self, error: BaseException, *, run_id: UUID, **kwargs: Any) -> None:
        """Report a request that failed, with the counts that came with the error, if any."""
        request = self._pop(run_id)
        if request is None:
            return
        reply = Reply("".join(request.words))
        counts = error_counts(kwargs.get("response")) or request.counts
        is_guess = counts is None and self._estimates and bool(reply.answer)
        if is_guess:
            counts = estimate_counts(request.prompts, reply.answer)
        is_open = counts is None and may_have_been_billed(error)
        self._report(
            request,
            reply,
            counts,
            is_estimated=is_guess,
            error=describe(error),
            may_be_billed=is_open or is_guess,
        )

    def close(self) -> None:
        """Report the requests that began and never ended, e.g. as their task was cancelled."""
        with self._lock:
            abandoned = tuple(self._requests.values())
            self._requests.clear()
        for request in abandoned:
            self._report(
                request,
                Reply("".join(request.words)),
                request.counts,
                error=_ABANDONED,
                may_be_billed=request.counts is None,
            )

    def _start(self, run_id: UUID, prompts: Iterable[str], asked: Announcement) -> None:
        if self._refusal is not None:
            raise UnmeteredCall(self._refusal)
        with self._lock:
            number = next(self._numbers)
            self._requests[run_id] = _Request(number, asked.model, asked.provider, tuple(prompts))
        if self._on_start:
            self._on_start(SentCall(number, asked.model, asked.provider, asked.output_cap))

    def _pop(self, run_id: UUID) -> _Request | None:
        with self._lock:
            return self._requests.pop(run_id, None)

    def _report_uncounted(self, request: _Request, reply: Reply) -> None:
        counts = estimate_counts(request.prompts, reply.answer)
        if self._estimates:
            self._report(request, reply, counts, is_estimated=True)
            return
        self._refusal = (
            f"model {request.model!r} answered without token counts, so the call cannot be "
            "charged: set stream_usage=True on the model if it streams, or "
            'on_missing_usage="estimate" to charge an estimate'
        )
        self._report(request, reply, counts, is_estimated=True, error=self._refusal)
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
        billed = counts or NO_TOKENS
        self._on_call(
            MeteredCall(
                model=request.model,
                provider=request.provider,
                input_tokens=billed.input_tokens,
                output_tokens=billed.output_tokens,
                cached_tokens=billed.cached_tokens,
                reasoning_tokens=billed.reasoning_tokens,
                is_cache_hit=reply.is_cache_hit,
                is_estimated=is_estimated,
                answer=reply.answer,
                finish_reason=reply.finish_reason,
                provider_id=reply.provider_id,
                duration=monotonic() - request.began,
                error=error,
                may_be_billed=may_be_billed,
                number=request.number,
                reported_cost=reply.cost,
            )
        )
