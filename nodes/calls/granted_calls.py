"""Calls of others on the ledger of a run: of evaluators, programs under test and coding agents.

Who is granted models asks them through the endpoint of this process, with a token that is valid as
long as the work takes. Each request is written down before it leaves, as the calls of the search
are. After a crash the same request at the same place of the same work is answered from the journal.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from decimal import Decimal
from functools import partial
from threading import Condition, Lock

from costada.evaluators.sandbox.concurrency import TICK_SECONDS, is_cancelled
from costada.models.asking import ModelFailure, RequestNotSent, journals_of, with_call_key
from costada.models.endpoint.client_requests import asked_for
from costada.models.endpoint.client_responses import models_response, stored_response
from costada.models.endpoint.exchange import (
    ClientRequest,
    ClientResponse,
    Dialect,
    Postponed,
    Refusal,
)
from costada.models.endpoint.forwarding import Forwarder, without_keys
from costada.models.endpoint.http_server import Endpoint
from costada.models.errors import UncountedAnswer, UnmeteredCall
from costada.models.event_loop import run
from costada.models.metering import MeteredCall
from costada.models.runnable_tree import OutgoingRequest
from costada.nodes.calls.allowance import Allowance
from costada.nodes.calls.bounds import DEFAULT_OUTPUT_CAP, ROOMY_ANSWER
from costada.nodes.calls.budget import (
    FUNDS_POLL_SECONDS,
    FUNDS_QUEUES,
    WaitingForFunds,
    affordable_answer,
    leave_queue,
    reserve_bound,
    share_of_money,
)
from costada.nodes.calls.journal import CallJournal
from costada.nodes.context import PricedModel, RunContext
from costada.nodes.state import SearchState
from costada.prompts.render import Prompt
from costada.store.call_log import AnsweredRequest, CallKey
from costada.store.rows import CallRow, CallStatus
from costada.values.model_access import LOOPBACK, ModelAccess, new_token
from costada.values.roles import JUDGING

UNAFFORDABLE, OVER_LIMIT = "unaffordable", "over limit"
"""What could not pay for a request: the money of the run, or the allowance of the work."""

_UNDECLARED = (
    "as the problem declares no model that its evaluator asks: [models] in problem.toml, or"
    " Problem(models=...); those of candidate_models are for programs under test"
)

CLOSING_SECONDS = 10.0
"""How long a run that is asked to stop waits for answers to others than the search."""

NO_MONEY = 402
"""Status of a refused request that what is left cannot pay for; no client sends it again."""


class Grant:
    """Models that one piece of work may ask until it ends.

    Attributes:
        key: The logical call that its requests belong to.
        models: The models by the names that requests give.
        state: Of the run, as it was when the work began.
        context: Of the run.
        allowance: What the work may cost.
        refusals: Why a request was not paid for, by what could not pay for it.
        fault: What ends the run, if a request showed it.
    """

    def __init__(
        self,
        key: CallKey,
        name: str,
        models: Mapping[str, PricedModel],
        state: SearchState,
        context: RunContext,
        allowance: Allowance,
        earlier: Sequence[CallKey] = (),
    ) -> None:
        """Grant models; `name` tells the work from others with the same key.

        Requests that a dead process left without an end are marked as lost. Where steps that have
        landed began the work, `earlier` are the keys that it had there, oldest first: what was
        answered then is not asked again.
        """
        self.key, self.models, self.state, self.context = key, models, state, context
        self.allowance = allowance
        self.refusals: dict[str, str] = {}
        self.fault: ValueError | UnmeteredCall | None = None
        self._name = name
        self._call_log = context.store.call_log
        self._asked: dict[str, list[_Asked]] = {}
        self._occurrences: Counter[tuple[str, str]] = Counter()
        self._down: dict[str, ModelFailure] = {}
        self._tokens: set[str] = set()
        self._forwarders: set[Forwarder] = set()
        self._changed = Condition()
        self._num_begun = 0
        self._is_open, self._was_waiting = True, False
        with self._call_log.in_flight.none_of(key):
            self._call_log.mark_lost(key)
        self._keys = (*earlier, key)
        self._places: dict[str, set[int]] = {}
        self._placing = Lock()

    @property
    def outage(self) -> ModelFailure | None:
        """Why a request was not answered by its provider, and not later either, if one was not."""
        return next(iter(self._down.values()), None)

    @property
    def is_open(self) -> bool:
        """Whether its work has not ended."""
        return self._is_open

    @property
    def is_waiting(self) -> bool:
        """Whether a request waits until others of the run have ended and leave money for it.

        Of work that has ended: whether one did then.
        """
        queue = FUNDS_QUEUES.of(self.context.store, self.key.run_id)
        return self.key.ticket in queue.waiting if self._is_open else self._was_waiting

    def new_access(self) -> ModelAccess:
        """What a client needs to ask, with a token of its own."""
        return ModelAccess(METERED_ENDPOINT.url, self.admit(new_token()), tuple(self.models))

    def admit(self, token: str, *others: Grant, is_relay: bool = False) -> str:
        """Let whoever shows a token ask, also the models of other grants; returns the token.

        A relay (`is_relay`) names the attempts at the work for which it asks.
        """
        self._tokens.add(token)
        if is_relay:
            METERED_ENDPOINT.relays.add(token)
        METERED_ENDPOINT.grants[token] = self, *others
        return token

    def dismiss(self, token: str) -> None:
        """Let whoever shows a token ask nothing more."""
        self._tokens.discard(token)
        METERED_ENDPOINT.grants.pop(token, None)
        METERED_ENDPOINT.relays.discard(token)
        METERED_ENDPOINT.endpoint.disconnect(token)

    def close(self, patience: float = CLOSING_SECONDS) -> None:
        """End it: its tokens are worth nothing, and its requests have ended and are written down.

        What is charged afterwards would be on no iteration's account. What has left is waited for,
        but where the run is asked to stop no longer than `patience` seconds: it is lost then.
        """
        self._was_waiting = self.is_waiting
        self._is_open = False
        for token in tuple(self._tokens):
            self.dismiss(token)
        left = 0.0
        try:
            with self._changed:
                while self._num_begun and not (left := patience if is_cancelled() else 0.0):
                    self._changed.wait(TICK_SECONDS)
        finally:  # also after Ctrl-C
            FUNDS_QUEUES.of(self.context.store, self.key.run_id).leave_all(self.key)
            self._give_up(left)

    def _give_up(self, patience: float) -> None:
        """Wait for requests no longer than that, and write down those that are lost."""
        for error in run(_closed(self._forwarders, patience)):
            if isinstance(error, ValueError | UnmeteredCall):
                self.note_fault(error)
            elif error is not None:
                raise error

    @contextmanager
    def beginning(self) -> Iterator[None]:
        """Count a request as one that has to end, unless the block fails."""
        with self._changed:
            self._num_begun += 1
        try:
            yield
        except BaseException:  # raised again: nothing leaves
            with self._changed:
                self._num_begun -= 1
                self._changed.notify_all()
            raise

    def note_fault(self, fault: ValueError | UnmeteredCall) -> None:
        """Note what ends the run: no further request leaves."""
        self.fault = self.fault or fault

    def note_end(self) -> None:
        """Note that a request has ended and is written down."""
        with self._changed:
            self._num_begun -= 1
            self._changed.notify_all()

    async def answer(self, request: ClientRequest) -> ClientResponse:
        """Answer a request to one of the models, from the journal or by it; raises `Refusal`."""
        asked = self.models[request.model]
        ledger = await asyncio.to_thread(self._ledger_of, asked, request)
        hashed = ledger.journal.request_hash
        if hashed not in self._asked:
            earlier = await asyncio.to_thread(self._call_log.answered, self._keys, hashed)
            self._asked.setdefault(hashed, [_Asked(each) for each in earlier])
        equal, which = self._asked[hashed], (request.attempt, hashed)
        # An attempt whose worker was lost may have asked the same, and not have its answer yet.
        while (place := self._occurrences[which]) < len(equal):
            self._occurrences[which] += 1
            found = equal[place]
            if (answered := await found.answered()) is None:
                continue
            row = await asyncio.to_thread(self._stored_answer, ledger.journal, answered)
            self.allowance.count_stored(answered, row.cost + row.bound)
            return stored_response(request, row.answer)
        sent = _Asked(ledger.journal)
        equal.append(sent)
        self._occurrences[which] = len(equal)
        async with sent.turn:
            return await self._send(request, asked, ledger, sent)

    def _stored_answer(self, journal: CallJournal, answered: AnsweredRequest) -> CallRow:
        """An answered request; one without token counts is charged by an estimate now.

        Raises:
            Refusal: It has no token counts, and estimates are not allowed.
        """
        row = self._call_log.request(*answered)
        if row.status is not CallStatus.UNCOUNTED:
            return row
        try:
            return journal.charge_estimate(row, answered.number)
        except UncountedAnswer as error:
            self.note_fault(error)
            raise Refusal(503, "model_unusable", str(error)) from None

    async def _send(
        self,
        request: ClientRequest,
        asked: PricedModel,
        ledger: GrantedRequest,
        sent: _Asked,
    ) -> ClientResponse:
        """Send a request; raises `Refusal`."""
        hashed = ledger.journal.request_hash
        policy, missing = self.context.retry_policy, self.context.settings.on_missing_usage
        if asked.call_timeout is not None:
            policy = policy.model_copy(update={"call_timeout": asked.call_timeout})
        model = asked.model
        if gateways := journals_of(model):
            place = await asyncio.to_thread(self._take_place, ledger.journal, gateways)
            parts = [*map(str, self._keys[0]), hashed, str(place)]
            model = with_call_key(model, "/".join(parts))
        note_broken = partial(self._down.__setitem__, hashed)

        def forget() -> None:
            """Keep nothing of the request but its answer: clients may send many."""
            self._forwarders.discard(forwarder)
            sent.settle()

        forwarder = Forwarder(
            ledger,
            policy,
            on_missing_usage=missing,
            on_broken=note_broken,
            on_fault=self.note_fault,
            on_idle=forget,
        )
        self._forwarders.add(forwarder)
        if request.is_stream:
            sent.begin(forwarder)
        earlier = self._down.get(hashed)
        try:
            found = await forwarder.send(request, model)
        except (ValueError, UnmeteredCall) as error:
            self.note_fault(error)
            raise Refusal(503, "model_unusable", without_keys(str(error), model)) from None
        finally:
            if not request.is_stream or forwarder.is_idle:
                forget()
        if isinstance(found, ModelFailure):
            found = replace(found, reason=without_keys(found.reason, model))
            self._down[hashed] = found
            raise Refusal(503, "provider_unavailable", found.reason)
        if self._down.get(hashed) is earlier:  # a stream may have broken by now
            self._down.pop(hashed, None)
        return found

    def _ledger_of(self, asked: PricedModel, request: ClientRequest) -> GrantedRequest:
        """The ledger of a request; hashing a long one is slow."""
        words = Prompt(f"{self._name}\0{request.dialect}", json.dumps(asked_for(request)))
        return GrantedRequest(self, asked, words)

    def _take_place(self, journal: CallJournal, gateways: set[str]) -> int:
        """The place of a request among equal ones, by which a gateway knows it.

        It is that of a lost one, if there is one: the gateway reports what came of it. One that an
        earlier step has been charged for keeps its row.
        """
        hashed = journal.request_hash
        with self._placing:
            is_lost: dict[int, bool] = {}
            for key in self._keys:  # the last step that asked at a place knows what became of it
                sent = self._call_log.repeatable(key, gateways, None, hashed)
                of_lost = {each.place for each in sent if each.is_lost}
                is_lost |= {each.place: each.place in of_lost for each in sent}
            taken = self._places.setdefault(hashed, set())
            lost = {each for each in is_lost if is_lost[each]} - taken
            place = min(lost) if lost else 1 + max({*is_lost, *taken}, default=0)
            taken.add(place)
        journal.repeat(place, [each for each in sent if each.place == place])
        return place


async def _closed(forwarders: Iterable[Forwarder], patience: float) -> list[BaseException | None]:
    """What came of closing each: one that raises keeps no other open."""
    closing = (each.close(patience) for each in tuple(forwarders))
    return await asyncio.gather(*closing, return_exceptions=True)


class _Asked:
    """One of the equal requests of some work; each attempt at the work gets its answer once.

    Attributes:
        turn: Held while it is sent; of a stream until its start.
    """

    def __init__(self, source: AnsweredRequest | CallJournal) -> None:
        """Take a request that was answered before, or the journal of one that is sent."""
        self._source: AnsweredRequest | CallJournal | None = source
        self._stream: Forwarder | None = None
        self.turn = asyncio.Lock()

    def begin(self, stream: Forwarder) -> None:
        """Note what reads the stream that answers it."""
        self._stream = stream

    async def answered(self) -> AnsweredRequest | None:
        """The request that was answered, once it has ended; `None` if it was not answered."""
        async with self.turn:
            if self._stream is not None:
                await self._stream.ended()
            return self.settle()

    def settle(self) -> AnsweredRequest | None:
        """Keep no more of it than the request that was answered, if one was; it has ended."""
        if isinstance(self._source, CallJournal):
            self._source, self._stream = self._source.answered, None
        return self._source


class GrantedRequest:
    """The ledger of one request of a client; a `RequestLedger`."""

    def __init__(self, grant: Grant, asked: PricedModel, words: Prompt) -> None:
        """Keep account of a request; `words` says which one it is."""
        self._grant, self._asked = grant, asked
        step = grant.state["step"]
        frontier = step.allocation.frontier if step.ticket else None
        self.journal = CallJournal(grant.key, words, asked, grant.context, frontier, self._reserve)
        self._bound = Decimal(0)
        self._num_changes = 0

    def begin(self, request: OutgoingRequest) -> OutgoingRequest:
        """Write down a request that is about to leave, once it can be paid for.

        Raises:
            Postponed: Requests in flight may leave enough for it.
            Refusal: The money or the allowance cannot pay for it, the work has ended, or another
                request has shown what ends the run.
        """
        grant = self._grant
        with grant.beginning():
            try:
                if not grant.is_open:
                    raise Refusal(401, "invalid_token", "token: the work that had it has ended")
                if grant.fault is not None:
                    leave_queue(grant.key, grant.context, self)
                    reason = "not asked: the answer to another request ends the run"
                    raise Refusal(503, "model_unusable", reason)
                self._num_changes = grant.allowance.num_changes
                limited = self._limited(request)
                self.journal.begin(limited)
            except WaitingForFunds:  # it stays in the queue until then
                raise Postponed(FUNDS_POLL_SECONDS) from None
            except RequestNotSent as error:
                leave_queue(grant.key, grant.context, self)
                raise Refusal(NO_MONEY, "insufficient_funds", str(error)) from None
            leave_queue(grant.key, grant.context, self)
            return limited

    def finish(self, call: MeteredCall) -> None:
        """Write down how the request ended."""
        before, in_doubt = self.journal.charged, self.journal.in_doubt
        if call.is_uncounted:
            self._grant.note_fault(UncountedAnswer(call.error))
        try:
            self.journal.finish(call)
        except ValueError as error:  # raised again
            self._grant.note_fault(error)
            raise
        finally:
            grant, charged = self._grant, self.journal.charged - before
            grant.allowance.settle(self._bound, charged, self.journal.in_doubt - in_doubt)
            if self.journal.answered is not None:
                grant.allowance.note_counted(self.journal.answered)
            if grant.context.is_hard and grant.key.role in JUDGING:
                queue = FUNDS_QUEUES.of(grant.context.store, grant.key.run_id)
                queue.draw(grant.key.ticket, charged - self._bound)
            grant.note_end()

    def _limited(self, request: OutgoingRequest) -> OutgoingRequest:
        """The request with the longest answer that can be paid for.

        Where nothing limits it, it stays as it is: a model may refuse a limit that is too high.

        Raises:
            WaitingForFunds: Requests in flight may leave more.
            RequestNotSent: Nothing can be paid for.
        """
        grant = self._grant
        is_hard, allowance = grant.context.is_hard, grant.allowance
        if not request.is_all_text and (is_hard or allowance.is_strict):
            raise Refusal(
                400,
                "not_bounded",
                "images, files and references have no known bound; expected text",
            )
        wanted = DEFAULT_OUTPUT_CAP if request.output_cap is None else request.output_cap
        longest = self._affordable(request, allowance.left, wanted, OVER_LIMIT)
        if is_hard:
            share = share_of_money(
                request, self._asked, grant.key, grant.state, grant.context, self
            )
            longest = min(longest, self._affordable(request, share, wanted, UNAFFORDABLE))
        if longest == wanted and not (is_hard or allowance.is_strict):
            return request
        return request._replace(output_cap=longest)

    def _affordable(self, request: OutgoingRequest, left: Decimal, wanted: int, why: str) -> int:
        """Most tokens of an answer that so much pays for; waits for a roomy one."""
        try:
            longest = affordable_answer(request, left, self._asked.prices)
        except RequestNotSent as error:
            of = f" of {self._grant.allowance.name}" if why == OVER_LIMIT else ""
            raise self._not_sent(f"{error}{of}", why) from None
        is_short = longest < min(wanted, ROOMY_ANSWER)
        if is_short and self._grant.allowance.may_leave_more(self._num_changes):
            raise WaitingForFunds("not asked: requests in flight may leave more")
        return longest

    def _reserve(self, bound: Decimal) -> None:
        """Reserve the bound of a request, in the transaction that writes it down."""
        grant = self._grant
        if bound > grant.allowance.left:
            raise self._not_sent(grant.allowance.refusal(bound), OVER_LIMIT)
        if grant.context.is_hard:
            try:
                reserve_bound(bound, grant.key, grant.state, grant.context, waiter=self)
            except WaitingForFunds:
                raise
            except RequestNotSent as error:
                raise self._not_sent(str(error), UNAFFORDABLE) from None
        grant.allowance.reserve(bound)
        self._bound = bound

    def _not_sent(self, reason: str, why: str) -> RequestNotSent:
        """The error of a request that cannot be paid for now; others in flight may leave more."""
        if self._grant.allowance.may_leave_more(self._num_changes):
            return WaitingForFunds(reason)
        self._grant.refusals.setdefault(why, reason)
        return RequestNotSent(reason)


class MeteredEndpoint:
    """The endpoint of this process, started when it is first needed, and who may ask through it.

    Attributes:
        grants: The open grants by token; several where one client asks models of several.
        relays: The tokens of relays, which pass requests on. Others could have answers given to
            them again and again by naming attempts, without spending money.
        endpoint: The server.
    """

    def __init__(self) -> None:
        """Start nothing."""
        self.grants: dict[str, tuple[Grant, ...]] = {}
        self.relays: set[str] = set()
        self.endpoint = Endpoint(self._answer, self.grants.__contains__)
        self._starting = Lock()
        self._urls: dict[tuple[str, int], str] = {}

    @property
    def url(self) -> str:
        """Where it listens for clients on this machine."""
        return self.url_at(LOOPBACK)

    def url_at(self, host: str, port: int = 0) -> str:
        """Where it listens for clients that reach this machine at an address.

        Raises:
            OSError: This machine does not have the address, or the port is taken.
        """
        with self._starting:
            if (host, port) not in self._urls:
                with _naming_address(host, port):
                    self._urls[host, port] = self.endpoint.start(host, port)
            return self._urls[host, port]

    def check(self, host: str, port: int) -> None:
        """Raise `OSError` as `url_at` does, and listen nowhere."""
        with self._starting, _naming_address(host, port):
            if (host, port) not in self._urls:
                family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
                socket.create_server((host, port), family=family).close()

    async def _answer(self, token: str, request: ClientRequest) -> ClientResponse:
        grants = self.grants.get(token, ())
        if not any(each.is_open for each in grants):
            raise Refusal(401, "invalid_token", "token: the work that had it has ended")
        if token not in self.relays:
            request = replace(request, attempt="")
        owners = {name: each for each in grants for name in each.models}
        if request.dialect is Dialect.MODELS:
            return models_response(request, [*owners])
        if request.model not in owners:
            known = ", ".join(map(repr, owners))
            expected = f"expected one of {known}" if known else f"expected none, {_UNDECLARED}"
            raise Refusal(404, "model_not_found", f"model: got {request.model!r}, {expected}")
        return await owners[request.model].answer(request)


@contextmanager
def _naming_address(host: str, port: int) -> Iterator[None]:
    """Say in an error at which address nothing can listen."""
    try:
        yield
    except OSError as error:
        raise OSError(
            f"endpoint: cannot listen at {host}, port {port or 'any'} ({error}); expected an"
            " address of this machine (--endpoint HOST or HOST:PORT)"
        ) from None


METERED_ENDPOINT = MeteredEndpoint()
# A forked process has neither the threads nor the sockets of its parent's endpoint.
os.register_at_fork(after_in_child=lambda: METERED_ENDPOINT.__init__())  # type: ignore[misc]
