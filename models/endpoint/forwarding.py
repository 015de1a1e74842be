"""Requests of clients on their way to the provider, with the key of the run, which no client sees.

A request is written down before it leaves, and again when it has ended, before its client sees the
end. It is read to its end even if its client leaves, so that what it costs is known.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Mapping
from contextvars import copy_context
from dataclasses import replace
from functools import partial
from itertools import count
from time import monotonic
from typing import Any, Literal, TypeVar

from costada.models.asking import FailureKind, ModelFailure, failure_of
from costada.models.endpoint.client_responses import (
    EVENT_STREAM,
    EventReader,
    ReportedError,
    error_response,
    read_answer,
    stored_response,
)
from costada.models.endpoint.exchange import (
    BrokenStream,
    ClientRequest,
    ClientResponse,
    Dialect,
    Postponed,
    RequestLedger,
)
from costada.models.endpoint.target import ChatModel, Target, check_protocol, target_of
from costada.models.endpoint.translated import completion
from costada.models.errors import (
    ModelUnusable,
    UncountedAnswer,
    UnmeteredCall,
    describe,
    without_secrets,
)
from costada.models.event_loop import CallTimeout, deadline, off_the_clock
from costada.models.langchain_openai import without_key
from costada.models.metering import ABANDONED, MeteredCall, impossible_counts, uncounted_answer
from costada.models.provider_errors import (
    http_status,
    is_out_of_quota,
    is_provider_failure,
    is_transient,
    may_have_been_billed,
)
from costada.models.providers import RetryPolicy
from costada.models.rate_limits import request_queue
from costada.models.reply_content import Reply, estimated_usage
from costada.models.retries import sleep_between_requests
from costada.models.runnable_tree import OutgoingRequest, underlying_models
from costada.values.usage import NO_TOKENS, Usage

Result = TypeVar("Result")
Answered = asyncio.Future[ClientResponse | ModelFailure]

_SHOWN_BYTES = 200
"""How much is shown of what is not a response of the protocol."""

_OF_CALLER = (401, 402)
"""Statuses by which a provider refuses the key of the run or its account, whatever is asked."""


class _ReportedFailure(Exception):
    """A provider reports an error in a response of status 200."""

    def __init__(self, reported: ReportedError) -> None:
        super().__init__(reported.message)
        self.status_code = reported.status


class _NoProtocol(Exception):
    """What came back is not a response of the protocol."""


class Forwarder:
    """Sends the requests of one client to the providers of the models that it asks.

    It is used in the event loop of paid calls.
    """

    def __init__(
        self,
        ledger: RequestLedger,
        policy: RetryPolicy,
        *,
        on_missing_usage: Literal["raise", "estimate"] = "raise",
        on_broken: Callable[[ModelFailure], None] = lambda failure: None,
        on_fault: Callable[[ValueError | UnmeteredCall], None] = lambda fault: None,
        on_idle: Callable[[], None] = lambda: None,
    ) -> None:
        """Prepare for a client.

        Args:
            ledger: Keeps account of its requests; `number` tells them apart.
            policy: The deadline of each request, and how long its provider is waited for.
            on_missing_usage: What to do with a response without token counts, as in `CallMeter`.
            on_broken: Called in the event loop when a provider breaks a stream, before the client
                sees it.
            on_fault: Called there when an answer shows that none can be charged, or its provider
                refuses the run for good, before it is written down.
            on_idle: Called there when nothing is in flight any more, and `close` raises nothing.
        """
        self._ledger = _NumberingLedger(ledger)
        self._policy = policy
        self._on_missing_usage: Literal["raise", "estimate"] = on_missing_usage
        self._tasks: set[asyncio.Task[None]] = set()
        self._open: set[int] = set()
        self._failure: BaseException | None = None
        self._on_broken, self._on_fault, self._on_idle = on_broken, on_fault, on_idle
        self._is_closing = False

    async def send(self, request: ClientRequest, model: ChatModel) -> ClientResponse | ModelFailure:
        """The response to a request, or why there is none.

        An error that the request itself has caused is a response, in the words of the provider. The
        failures are those of `ask`: an outage, for example.

        Args:
            request: What the client asks.
            model: The model that it names, wrapped as for the calls of a run, perhaps with the key
                of a call.

        Raises:
            Refusal: The model does not speak the protocol of the client; nothing was sent.
            UnmeteredCall: What an answer costs is unknown, of this request or an earlier stream.
            ModelUnusable: The provider refuses the run for good, as in `ask`.
            Exception: Whatever the ledger raises.
        """
        if self._failure is not None:
            raise self._failure
        target = target_of(model, self._policy)
        answered: Answered = asyncio.get_running_loop().create_future()
        # Anthropic has no chat completions of its own: they are translated.
        if target is None or (target.sdk == "anthropic" and request.dialect is Dialect.CHAT):
            work = self._translate(request, model, answered)
        else:
            check_protocol(request, target)
            work = self._forward(request, target, answered)
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(partial(self._end, answered))
        failed = None
        try:
            return await asyncio.shield(answered)
        except CallTimeout as error:
            return ModelFailure(describe(error), FailureKind.TIMEOUT)
        except _NoProtocol as error:
            return ModelFailure(str(error), FailureKind.NO_PROTOCOL)
        except BaseException as error:  # raised again unless it is the provider's
            if isinstance(error, UnmeteredCall) or not _is_of_provider(error):
                raise
            failed = error
        if _is_of_request(failed):
            return _passed_on(failed, request, model)
        return failure_of(failed, model, self._policy)

    @property
    def is_idle(self) -> bool:
        """Whether nothing is in flight, and `close` raises nothing."""
        return not self._tasks and self._failure is None

    async def ended(self) -> None:
        """Wait until nothing is in flight, also of a stream."""
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def close(self, patience: float) -> None:
        """Wait for what is in flight, and give up what has not ended in time: it counts as lost.

        Args:
            patience: Seconds, from 0.

        Raises:
            UnmeteredCall: What a stream costs is unknown.
            Exception: What the ledger raised at the end of a stream.
        """
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=patience)
        self._is_closing = True
        for task in tuple(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        if self._failure is not None:
            raise self._failure

    def _end(self, answered: Answered, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        if not answered.done():
            if isinstance(error, asyncio.CancelledError) or error is None:
                answered.cancel()
            else:
                answered.set_exception(error)
                # Nobody waits any more if the caller was cancelled.
                answered.exception()
        elif isinstance(error, Exception) and not isinstance(error, BrokenStream | CallTimeout):
            self._failure = self._failure or error
        if self.is_idle:
            self._on_idle()

    async def _translate(
        self,
        request: ClientRequest,
        model: ChatModel,
        answered: Answered,
    ) -> None:
        found = await completion(request, model, self._ledger, self._policy, self._on_missing_usage)
        if not answered.done():
            answered.set_result(found)

    async def _forward(
        self,
        request: ClientRequest,
        target: Target,
        answered: Answered,
    ) -> None:
        queue = request_queue(target.asked.model, self._policy, target.asked.bound)
        exchange = partial(self._exchange, request, target, answered)
        async with deadline(self._policy.call_timeout):
            await target.retries.send(lambda: queue.send(exchange))

    async def _exchange(
        self,
        request: ClientRequest,
        target: Target,
        answered: Answered,
    ) -> None:
        """Send a request once. Its response is the result of `answered`, a stream from its start.

        Whatever is raised after that is not the provider's.
        """
        call = MeteredCall(await self._begin(target.outgoing_for(request)))
        began = monotonic()
        try:
            response = await target.send(request, call.request.output_cap)
        except BaseException as error:  # raised again
            await self._finish(_failed(call, error, began, may_have_been_billed(error, True)))
            raise
        try:
            kind = response.headers.get("content-type", "")
            if kind.startswith(EVENT_STREAM) and request.is_stream:
                await self._read_stream(request, target, call, began, response, answered)
            else:
                await self._read_whole(request, call, began, response, answered)
        except BaseException as error:  # raised again
            if call.request.number in self._open:  # a response that nobody can read, say
                await self._finish(_failed(call, error, began, may_be_billed=True))
            raise
        finally:
            await response.aclose()

    async def _read_whole(
        self,
        request: ClientRequest,
        call: MeteredCall,
        began: float,
        response: Any,
        answered: Answered,
    ) -> None:
        try:
            raw = await response.aread()
        except BaseException as error:  # raised again
            await self._finish(_failed(call, error, began, may_be_billed=True))
            raise
        try:
            body = json.loads(raw)
        except ValueError:
            body = None
        if not isinstance(body, dict):
            body = {}
        reply, reported = read_answer(request.dialect, body)
        failure: Exception | None = None
        if reported is not None:
            failure = _ReportedFailure(reported)
        elif not body or request.is_stream:
            words = without_secrets(raw[:_SHOWN_BYTES].decode(errors="replace"))
            failure = _NoProtocol(
                f"model {request.model!r} did not answer {request.dialect} ({words}): check the"
                " model's name and base_url"
            )
        if failure is not None:
            failed = _failed(call, failure, began, may_be_billed=reply.usage is None)
            await self._finish(replace(failed, reply=reply, usage=reply.usage or failed.usage))
            raise failure
        text = raw.decode(errors="replace")
        await self._finish_counted(request, call, reply, text, began)
        answered.set_result(stored_response(request, text))

    async def _read_stream(
        self,
        request: ClientRequest,
        target: Target,
        call: MeteredCall,
        began: float,
        response: Any,
        answered: Answered,
    ) -> None:
        events, stream = EventReader(request), _Stream()
        answered.set_result(ClientResponse(200, EVENT_STREAM, stream.pieces()))
        held = b""
        try:
            try:
                async for piece in response.aiter_bytes():
                    passed, at_end = events.read(piece)
                    stream.add(passed)
                    held += at_end
                _check_whole(events)
            except BaseException as error:  # raised again, or as one that nothing repeats
                self._note_broken(error, target.asked.model)
                await self._finish_broken(request, call, events.reply, error, began)
                if events.error is not None:
                    stream.end(held)  # the client was told of it
                if _is_of_provider(error) or isinstance(error, _NoProtocol):
                    raise BrokenStream from error
                raise
            text = (stream.body + held).decode(errors="replace")
            await self._finish_counted(request, call, events.reply, text, began)
            stream.end(held)
        finally:
            stream.close()

    def _note_broken(self, error: BaseException, model: ChatModel) -> None:
        """Tell why a stream broke, unless for what its client asks or does."""
        if isinstance(error, _NoProtocol):
            self._on_broken(ModelFailure(str(error), FailureKind.DOWN))
        elif isinstance(error, asyncio.CancelledError):
            if not self._is_closing:  # at its deadline
                words = describe(CallTimeout(self._policy.call_timeout))
                self._on_broken(ModelFailure(words, FailureKind.TIMEOUT))
        elif _is_of_provider(error) and not _is_of_request(error):
            try:
                self._on_broken(failure_of(error, model, self._policy))
            except ModelUnusable as unusable:
                self._note_fault(unusable)

    def _note_fault(self, fault: ValueError | UnmeteredCall) -> None:
        self._failure = self._failure or fault
        self._on_fault(fault)

    async def _finish_broken(
        self,
        request: ClientRequest,
        call: MeteredCall,
        reply: Reply,
        error: BaseException,
        began: float,
    ) -> None:
        """Write down a stream that broke: what it has counted is a part of the bill at most."""
        usage, is_guess = reply.usage, False
        if usage is None and reply.answer and self._on_missing_usage == "estimate":
            usage, is_guess = _estimate(request, reply), True
        failed = _failed(call, error, began, may_be_billed=True)
        await self._finish(
            replace(failed, reply=reply, usage=usage or NO_TOKENS, is_estimated=is_guess)
        )

    async def _finish_counted(
        self, request: ClientRequest, call: MeteredCall, reply: Reply, body: str, began: float
    ) -> None:
        """Write down an answer with its counts.

        Raises:
            UncountedAnswer: It has none, and estimates are not allowed.
            UnmeteredCall: Its request cannot have caused them.
        """
        usage = reply.usage
        failure: UnmeteredCall | None = None
        is_estimated = usage is None or not reply.is_counted
        if usage is None or is_estimated:
            usage = _estimate(request, reply)
        is_uncounted = is_estimated and self._on_missing_usage == "raise"
        if is_uncounted:
            failure = UncountedAnswer(uncounted_answer(call.request))
        else:
            reason = impossible_counts(usage, call.request, is_estimated=is_estimated)
            failure = UnmeteredCall(reason) if reason else None
        if failure is not None:  # before the end is known, which a client or `close` may wait for
            self._note_fault(failure)
        await self._finish(
            replace(
                call,
                reply=replace(reply, answer=body),
                usage=usage,
                is_estimated=is_estimated,
                duration=monotonic() - began,
                error=str(failure) if is_uncounted else None,
                is_uncounted=is_uncounted,
                may_be_billed=is_uncounted,
            )
        )
        if failure is not None:
            raise failure

    async def _begin(self, outgoing: OutgoingRequest) -> OutgoingRequest:
        while True:
            try:
                return await self._begin_once(outgoing)
            except Postponed as error:
                with off_the_clock():
                    await sleep_between_requests.get()(error.seconds)

    async def _begin_once(self, outgoing: OutgoingRequest) -> OutgoingRequest:
        work = _in_thread(self._ledger.begin, outgoing)
        try:
            begun = await asyncio.shield(work)
            self._open.add(begun.number)
            return begun
        except asyncio.CancelledError:
            await asyncio.wait([work])
            if work.exception() is None:
                await self._finish(MeteredCall(work.result(), error="the request was not sent"))
            raise

    async def _finish(self, call: MeteredCall) -> None:
        self._open.discard(call.request.number)
        work = _in_thread(self._ledger.finish, call)
        try:
            await asyncio.shield(work)
        except asyncio.CancelledError:
            await asyncio.wait([work])
            raise


class _NumberingLedger:
    """A ledger that numbers the requests of a client, from 1."""

    def __init__(self, ledger: RequestLedger) -> None:
        self._ledger = ledger
        self._numbers = count(1)
        self.finish = ledger.finish

    def begin(self, request: OutgoingRequest) -> OutgoingRequest:
        return self._ledger.begin(request._replace(number=next(self._numbers)))


class _Stream:
    """The pieces of a stream, passed on while it is read."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._changed = asyncio.Event()
        self._is_closed = self._is_whole = False

    @property
    def body(self) -> bytes:
        """What has been passed on so far."""
        return b"".join(self._pieces)

    def add(self, piece: bytes) -> None:
        """Pass a piece on."""
        if piece:
            self._pieces.append(piece)
            self._changed.set()

    def end(self, piece: bytes) -> None:
        """Pass the last piece on."""
        self._is_whole = True
        self.add(piece)

    def close(self) -> None:
        """Let the client see the end; without `end` its connection breaks."""
        self._is_closed = True
        self._changed.set()

    async def pieces(self) -> AsyncGenerator[bytes, None]:
        """Yield the pieces as they come.

        Raises:
            BrokenStream: The stream ended before its end.
        """
        position = 0
        while True:
            while position < len(self._pieces):
                yield self._pieces[position]
                position += 1
            if self._is_closed:
                break
            self._changed.clear()
            await self._changed.wait()
        if not self._is_whole:
            raise BrokenStream


def _in_thread(function: Callable[..., Result], *arguments: Any) -> asyncio.Future[Result]:
    """Call a function in a thread, in this context; it is not stopped with its caller."""
    work = partial(copy_context().run, function, *arguments)
    return asyncio.get_running_loop().run_in_executor(None, work)


def _failed(
    call: MeteredCall, error: BaseException, began: float, may_be_billed: bool
) -> MeteredCall:
    words = ABANDONED if isinstance(error, asyncio.CancelledError) else describe(error)
    return replace(call, error=words, duration=monotonic() - began, may_be_billed=may_be_billed)


def _check_whole(events: EventReader) -> None:
    if events.error is not None:
        raise _ReportedFailure(events.error)
    reply = events.reply
    # Some servers end a stream without the event that says so.
    if not events.is_complete and not (reply.finish_reason and reply.usage):
        raise _NoProtocol("the stream ended before its last event")


def _estimate(request: ClientRequest, reply: Reply) -> Usage:
    guess = estimated_usage([json.dumps(request.body, ensure_ascii=False)], reply.answer)
    return guess if reply.usage is None else replace(reply.usage, output_tokens=guess.output_tokens)


def _is_of_provider(error: BaseException) -> bool:
    return isinstance(error, _ReportedFailure) or is_provider_failure(error)


def _is_of_request(error: BaseException) -> bool:
    """Whether a provider refuses a request for what it says; another one may be answered."""
    status = http_status(error) or 0
    is_refusal = 400 <= status < 500 and status not in _OF_CALLER
    return is_refusal and not is_transient(error) and not is_out_of_quota(error)


def _passed_on(error: BaseException, request: ClientRequest, model: ChatModel) -> ClientResponse:
    """A refusal of the provider in its own words, without the key of the run."""
    body, code = getattr(error, "body", None), getattr(error, "code", None)
    words = body.get("message") if isinstance(body, Mapping) else None
    message = without_secrets(words if isinstance(words, str) else str(error))
    return error_response(
        request.is_anthropic,
        http_status(error) or 400,
        str(code or "refused"),
        without_keys(message, model),
    )


def without_keys(text: str, model: ChatModel) -> str:
    """A text for a client, in which the keys that a model is asked with are left out."""
    for each in underlying_models(model):
        text = without_key(text, each)
    return text
