"""The journal of one logical call: what was sent, its outcome, and what need not be sent again."""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from decimal import Decimal
from hashlib import sha256
from threading import Lock
from time import time

from langchain_core.messages import AIMessage

from costada.models.asking import (
    FailureKind,
    ModelFailure,
    checked_answer,
    has_gateway,
    journals_of,
)
from costada.models.errors import UncountedAnswer
from costada.models.metering import MeteredCall
from costada.models.reply_content import answer_text
from costada.models.runnable_tree import OutgoingRequest, returns_raw_answers
from costada.nodes.calls.bounds import check_reported_cost, check_service_tier, sent_bound
from costada.nodes.calls.health import OUTCOMES
from costada.nodes.calls.run_account import open_account, report_cost
from costada.nodes.context import PricedModel, RunContext, has_listener
from costada.prompts.render import Prompt
from costada.store.call_log import ANSWERED, AnsweredRequest, CallKey, SentRequest
from costada.store.purse import Purse
from costada.store.rows import CallRow, CallStatus, Outcome, OutcomeKind
from costada.values.usage import exactly

FAILURE_KINDS = {outcome: failure for failure, outcome in OUTCOMES.items()}

NOTABLE_SHARE = Decimal("0.05")
"""Share of the budget from which the loss of a request is logged."""

ADVICE = "; with a gateway (--gateway) answers survive a killed run"

_LOG = logging.getLogger("costada.money")


Reserve = Callable[[Decimal], None]
"""Refuses a request that may cost more dollars than are left; raises `RequestNotSent`."""


class CallJournal:
    """Writes down each request of a logical call before it leaves, and again when it ends.

    Attributes:
        request_hash: Identifies what is asked.
        charged: The most that the requests which have ended can have cost, in dollars.
        in_doubt: The part of it for requests that failed and may not have been billed.
        answered: The last request that was answered, perhaps without token counts.
    """

    def __init__(
        self,
        key: CallKey,
        prompt: Prompt,
        asked: PricedModel,
        context: RunContext,
        frontier: int | None,
        reserve: Reserve | None,
    ) -> None:
        self._key, self._prompt, self._asked, self._context = key, prompt, asked, context
        self._entry = context.entry_of(asked)
        self._frontier, self._reserve = frontier, reserve
        self._call_log = context.store.call_log
        request = f"{prompt.system}\0{prompt.user}"
        self.request_hash = sha256(request.encode("utf-8", "surrogatepass")).hexdigest()
        self.charged = self.in_doubt = Decimal(0)
        self.answered: AnsweredRequest | None = None
        self._place = 0
        self._step = _step_name(key, context)
        self._has_gateway = False
        self._sent: dict[int, tuple[int, Decimal]] = {}
        self._repeatable: list[SentRequest] = []
        self._choosing = Lock()
        self._account: Purse | None = None

    def replay(self) -> AIMessage | ModelFailure | None:
        """Outcome of the call if it was made before, `None` if it has to be made.

        Waits for a request of the call that this process has in flight. Requests that a dead
        process left without an end are marked as lost. Those that went through the gateway which
        the call is repeated through are reported again, and replaced one by one as that happens:
        until then they count at their bound, so no instant of a kill takes them off the ledger.
        Those to another model of the menu, which refused the call, are not its own.

        Raises:
            UncountedAnswer: The answer is stored without token counts; estimates are not allowed.
            ValueError: The journal holds another request under the same key.
        """
        self._has_gateway = has_gateway(self._asked.model)
        with self._call_log.in_flight.none_of(self._key):
            if not self._call_log.is_known(self._key):
                return None
            outcome = self._call_log.outcome(self._key)
            if outcome is not None:
                check_same_request(
                    self.request_hash, outcome.request_hash, self._key, self._context
                )
                if outcome.kind is OutcomeKind.ANSWER:
                    return AIMessage(outcome.text)
                kind = FAILURE_KINDS.get(outcome.kind, FailureKind.OTHER)
                return ModelFailure(outcome.text, kind)
            last = self._call_log.last_call(self._key, self._entry)
            if last is None:
                return None
            check_same_request(self.request_hash, last.request_hash, self._key, self._context)
            if last.status is CallStatus.UNCOUNTED:
                last = self.charge_estimate(last)
            if last.status is CallStatus.DONE and returns_raw_answers(self._asked.model):
                # The process died after the answer and before the outcome. A model whose answers
                # are changed on their way (by a parser, say) has to be asked again.
                self._call_log.mark_lost(self._key)
                facts = {"finish_reason": last.finish_reason}
                answer = checked_answer(AIMessage(last.answer, response_metadata=facts))
                self.record_outcome(answer)
                return answer
            gateways = journals_of(self._asked.model)
            lost = self._call_log.mark_lost(self._key)
            self._repeatable = self._call_log.repeatable(self._key, gateways, self._entry)
            self._log_lost(sum((lost[each] for each in lost.keys() - gateways), Decimal(0)))
            return None

    def repeat(self, place: int, earlier: Sequence[SentRequest]) -> None:
        """Ask as the request at a place among equal ones, which a gateway may report again.

        Args:
            place: Where; a gateway knows the request by it.
            earlier: What was sent for it before, in the order of sending; each is replaced.
        """
        self._place, self._repeatable = place, list(earlier)
        self._has_gateway = True

    def begin(self, sent: OutgoingRequest) -> None:
        """Write a request down that is about to leave, with the most that it can cost.

        Raises:
            ValueError: The model that is asked has no price, or the purse that the run draws
                from has nothing left for it.
        """
        # Before the row: who finds the row and no request in flight takes it for a dead process's.
        self._call_log.in_flight.begin(self._key)
        try:
            bound = sent_bound(sent, self._asked.prices)
            self._account = open_account(self._key.run_id, self._context)
            row = self._row(MeteredCall(sent), CallStatus.STARTED, bound)
            with self._repeating(sent) as repeated:
                number = self._call_log.put_call(
                    self._key.run_id, row, self._reserve, repeats=repeated
                )
            self._sent[sent.number] = number, bound
            self._report_cost()
        except BaseException:  # raised again: the request does not leave
            self._call_log.in_flight.end(self._key)
            raise

    @exactly
    def finish(self, call: MeteredCall) -> None:
        """Complete a request with its tokens, price and answer.

        Its bound is what it may have cost beyond that. An estimate is not an upper bound, as hidden
        reasoning leaves no text, so a hard budget counts the most that the request can have cost.

        Raises:
            ValueError: The provider reports a cost that is impossible.
        """
        try:
            number, bound = self._sent[call.request.number]
            status = CallStatus.DONE if call.error is None else CallStatus.ERROR
            status = CallStatus.UNCOUNTED if call.is_uncounted else status
            row = self._row(call, status, Decimal(0))
            if call.may_be_billed or (call.is_estimated and self._context.is_hard):
                row = replace(row, bound=max(bound - row.cost, Decimal(0)))
            # Stored before anything can raise: whatever the checks below refuse has been paid.
            self._call_log.finish_call(self._key.run_id, number, row)
            self.charged += row.cost + row.bound
            if status in ANSWERED:
                self.answered = AnsweredRequest(self._key, number)
            if call.may_be_billed and not call.is_uncounted:
                self.in_doubt += row.bound
                self._log_lost(row.bound)
            self._report_cost()
            if has_listener():
                from costada.nodes.calls.telemetry import record_call

                record_call(self._key, row)
            check_reported_cost(call.request.model, self._asked.prices.quote(call), bound)
            check_service_tier(call, self._asked.prices, row.cost, bound)
        finally:
            self._call_log.in_flight.end(self._key)

    def record_outcome(self, answer: AIMessage | ModelFailure) -> None:
        """Keep the outcome of the call, so that it is never made again."""
        if isinstance(answer, ModelFailure):
            kind = OUTCOMES.get(answer.kind, OutcomeKind.FAILURE)
            outcome = Outcome(self.request_hash, answer.reason, kind)
        else:
            outcome = Outcome(self.request_hash, answer_text(answer), OutcomeKind.ANSWER)
        self._call_log.put_outcome(self._key, outcome)

    def charge_estimate(self, uncounted: CallRow, number: int | None = None) -> CallRow:
        """Charge the estimate for a stored answer without token counts.

        Args:
            uncounted: The request that it answers, of this call or an earlier one.
            number: That of the request within the call; the last one by default.

        Raises:
            UncountedAnswer: Estimates are not allowed.
        """
        if self._context.settings.on_missing_usage == "raise":
            raise UncountedAnswer(f"{uncounted.error}. The answer is stored and is not paid again")
        bound = uncounted.bound if self._context.is_hard else Decimal(0)
        row = replace(uncounted, status=CallStatus.DONE, error=None, bound=bound)
        self._call_log.settle_call(self._key.run_id, row, number)
        self._account = open_account(self._key.run_id, self._context)
        self._report_cost()
        return row

    @contextmanager
    def _repeating(self, sent: OutgoingRequest) -> Iterator[int | None]:
        """Yield the number of the earlier request that a gateway takes this one for, if any."""
        same = sent.gateway, sent.model
        # A wrapped model may send several requests at once. An earlier request stands for one, and
        # is used up when the new row is written, not when that fails.
        with self._choosing:
            found = next(
                (each for each in self._repeatable if (each.gateway, each.model) == same), None
            )
            yield found.number if found else None
            if found:
                self._repeatable.remove(found)

    def _log_lost(self, bound: Decimal) -> None:
        """Warn when the bound of lost requests takes much of the budget."""
        share = bound / Decimal(str(self._context.budget))
        if self._context.counts_lost and share >= NOTABLE_SHARE:
            _LOG.warning(
                "A request of %s was lost and counts as $%.6f (%.0f%% of the budget), the"
                " most that it can have cost. To limit such a loss, lower the limit of answers"
                " (--max-tokens, or max_tokens of the model)%s",
                self._step,
                bound,
                100 * share,
                "" if self._has_gateway else ADVICE,
                extra={"ticket": self._key.ticket},
            )

    def _report_cost(self) -> None:
        report_cost(self._account, self._key.run_id, self._key.ticket, self._context)

    def _row(self, call: MeteredCall, status: CallStatus, bound: Decimal) -> CallRow:
        quote = self._asked.prices.quote(call)
        request, reply = call.request, call.reply
        return CallRow(
            ticket=self._key.ticket,
            frontier=self._frontier,
            role=self._key.role,
            attempt=self._key.attempt,
            entry=self._entry or "",
            model=request.model,
            provider=request.provider,
            gateway=request.gateway,
            place=self._place,
            answer=reply.answer,
            finish_reason=reply.finish_reason,
            provider_id=reply.provider_id,
            is_cache_hit=reply.is_cache_hit,
            usage=call.usage,
            is_estimated=call.is_estimated,
            error=call.error,
            cost=quote.cost(call.usage),
            price_in=f"{quote.input_per_million:f}",
            price_out=f"{quote.output_per_million:f}",
            price_source=quote.source,
            ended_at=time(),
            seconds=call.duration,
            prompt=self._prompt.user,
            status=status,
            request_hash=self.request_hash,
            bound=bound,
        )


def check_same_request(request_hash: str, known: str, key: CallKey, context: RunContext) -> None:
    """Refuse to answer a request from the journal that holds another one for the same call.

    Args:
        request_hash: That of the request.
        known: That of the request in the journal; empty if it is not known.
        key: The call.
        context: Of the run.

    Raises:
        ValueError: They differ.
    """
    if known in ("", request_hash):
        return
    landed = context.store.iterations(key.run_id)
    advice = "continue with the settings that the run was started with, or start a new run"
    if key.ticket in landed:
        last = max(landed.values())
        advice = (
            f"this checkpoint is older than the run, which has finished iteration {last}: continue"
            " from its last checkpoint, or fork it with `costada fork` (Python:"
            " costada.runs.fork.fork_run)"
        )
    raise ValueError(
        f"request of {key.role} {key.attempt} of {_step_name(key, context)}: the journal holds"
        f" another request for it, expected the same one; {advice}"
    )


def _step_name(key: CallKey, context: RunContext) -> str:
    return f"{'iteration' if context.parallel == 1 else 'ticket'} {key.ticket}"
