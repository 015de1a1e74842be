"""The journal of one logical call: what was sent, what came of it, what need not be sent again."""

import logging
from dataclasses import asdict, fields, replace
from decimal import Decimal
from hashlib import sha256
from time import time

from langchain_core.messages import AIMessage

from costada.models.asking import FailureKind, ModelFailure, checked_answer
from costada.models.gateway.client import has_gateway
from costada.models.metering import MeteredCall
from costada.models.replies import answer_text
from costada.models.requests import OutgoingRequest
from costada.models.runnable_tree import returns_raw_answers
from costada.nodes.calls.bounds import check_told_cost, sent_bound
from costada.nodes.calls.purse import account_of, report
from costada.nodes.calls.telemetry import record_call
from costada.nodes.context import ChatModel, RunContext
from costada.prompts.render import Prompt
from costada.store.call_log import CallKey
from costada.store.purse import Purse
from costada.store.rows import CallRow, CallStatus, Outcome, OutcomeKind

SHARED_FACTS = tuple(
    {each.name for each in fields(MeteredCall)} & {each.name for each in fields(CallRow)}
)
"""What a row takes over from the meter as it is."""

OUTCOMES = {
    FailureKind.REFUSED: OutcomeKind.REFUSAL,
    FailureKind.TIMEOUT: OutcomeKind.TIMEOUT,
}
"""Failures that are kept with their kind; the others are kept as failures."""

NOTABLE_SHARE = Decimal("0.05")
"""Share of the budget from which the loss of a request is logged."""

_LOG = logging.getLogger("costada.money")

OTHER_SETTINGS = "go on with the settings that the run was started with, or start a new run"


class CallJournal:
    """Writes down each request of a logical call before it leaves, and again when it ends."""

    def __init__(self, key: CallKey, prompt: Prompt, context: RunContext) -> None:
        """Open the journal of a call; nothing is written yet."""
        self._key, self._prompt, self._context = key, prompt, context
        self._ledger = context.store.call_log
        request = f"{prompt.system}\0{prompt.user}"
        self._request_hash = sha256(request.encode("utf-8", "surrogatepass")).hexdigest()
        self._sent: dict[int, tuple[int, Decimal]] = {}
        self._account: Purse | None = None

    def known(self, model: ChatModel) -> AIMessage | ModelFailure | None:
        """Return what the call came to when it was made before, `None` if it is to be made.

        A request that this process still has under way is waited for. Those that a dead process
        left without an end are marked as lost, or forgotten where a gateway will tell of them
        again.

        Raises:
            ValueError: The journal holds another request under the same key.
        """
        with self._ledger.under_way.none_of(self._key):
            return self._known(model)

    def _known(self, model: ChatModel) -> AIMessage | ModelFailure | None:
        outcome = self._ledger.outcome(self._key)
        if outcome is not None:
            self._check_same(outcome.request_hash)
            return _told(outcome)
        last = self._ledger.last_call(self._key)
        if last is None:
            return None
        lost = self._ledger.mark_lost(self._key)
        self._check_same(last.request_hash)
        if last.status is not CallStatus.DONE or not returns_raw_answers(model):
            if has_gateway(model):
                self._ledger.forget(self._key)
            else:
                self._tell_lost(lost)
            return None
        facts = {"finish_reason": last.finish_reason}
        return checked_answer(AIMessage(last.answer, response_metadata=facts))

    def begin(self, sent: OutgoingRequest) -> None:
        """Write a request down that is about to leave, with the most that it can cost.

        Raises:
            ValueError: The model that is asked has no price, or the purse that the run draws
                from has nothing left for it.
        """
        self._ledger.under_way.begin(self._key)
        try:
            self._write_down(sent)
        except BaseException:  # raised again: the request does not leave
            self._ledger.under_way.end(self._key)
            raise

    def _write_down(self, sent: OutgoingRequest) -> None:
        bound = sent_bound(sent, self._context.prices)
        self._account = account_of(self._key.run_id, self._context)
        row = self._row(_unanswered(sent), CallStatus.STARTED, bound)
        self._sent[sent.number] = self._ledger.put_call(self._key.run_id, row), bound
        self._report()

    def finish(self, call: MeteredCall) -> None:
        """Complete a request with its tokens, price and answer.

        Its bound is what it may have cost beyond that.

        Raises:
            ValueError: The provider says that it cost what it cannot have cost.
        """
        try:
            self._complete(call)
        finally:
            self._ledger.under_way.end(self._key)

    def _complete(self, call: MeteredCall) -> None:
        number, bound = self._sent[call.number]
        status = CallStatus.DONE if call.error is None else CallStatus.ERROR
        row = self._row(call, status, Decimal(0))
        if call.may_be_billed:
            row = replace(row, bound=max(bound - row.cost, Decimal(0)))
            self._tell_lost(row.bound)
        self._ledger.finish_call(self._key.run_id, number, row)
        self._report()
        record_call(self._key, row)
        check_told_cost(call.model, self._context.prices.quote(call), bound)

    def conclude(self, answer: AIMessage | ModelFailure) -> None:
        """Keep what the call came to, so that it is never made again."""
        if isinstance(answer, ModelFailure):
            kind = OUTCOMES.get(answer.kind, OutcomeKind.FAILURE)
            outcome = Outcome(self._request_hash, answer.reason, kind)
        else:
            outcome = Outcome(self._request_hash, answer_text(answer), OutcomeKind.ANSWER)
        self._ledger.put_outcome(self._key, outcome)

    def _tell_lost(self, bound: Decimal) -> None:
        """Warn in the log when the bound of lost requests takes much of the budget."""
        is_counted = self._context.settings.lost_calls == "count"
        share = bound / Decimal(str(self._context.budget))
        if is_counted and share >= NOTABLE_SHARE:
            _LOG.warning(
                "A request of iteration %d was lost and counts as $%.6f (%.0f%% of the budget), the"
                " most that it can have cost. To limit such a loss, lower the limit of answers"
                " (--max-tokens, or max_tokens of the model); with a gateway (--gateway) answers"
                " survive a killed run",
                self._key.iteration,
                bound,
                100 * share,
            )

    def _report(self) -> None:
        report(self._account, self._key.run_id, self._key.iteration, self._context)

    def _check_same(self, request_hash: str) -> None:
        if request_hash in ("", self._request_hash):
            return
        last = self._context.store.last_step(self._key.run_id)
        advice = _older(last) if self._key.iteration <= last else OTHER_SETTINGS
        raise ValueError(
            f"request of {self._key.role} {self._key.attempt} of iteration {self._key.iteration}:"
            f" the journal holds another request for it, expected the same one; {advice}"
        )

    def _row(self, call: MeteredCall, status: CallStatus, bound: Decimal) -> CallRow:
        quote = self._context.prices.quote(call)
        facts = {name: getattr(call, name) for name in SHARED_FACTS}
        return CallRow(
            iteration=self._key.iteration,
            role=self._key.role,
            attempt=self._key.attempt,
            cost=quote.cost(call.usage),
            price_in=f"{quote.input_per_million:f}",
            price_out=f"{quote.output_per_million:f}",
            price_source=quote.source,
            ended_at=time(),
            seconds=call.duration,
            prompt=self._prompt.user,
            status=status,
            request_hash=self._request_hash,
            bound=bound,
            **asdict(call.usage),
            **facts,
        )


def _told(outcome: Outcome) -> AIMessage | ModelFailure:
    if outcome.kind is OutcomeKind.ANSWER:
        return AIMessage(outcome.text)
    kinds = {outcome: failure for failure, outcome in OUTCOMES.items()}
    return ModelFailure(outcome.text, kinds.get(outcome.kind, FailureKind.OTHER))


def _older(last_step: int) -> str:
    """Return what to do about a checkpoint that a run has left behind."""
    return (
        f"this checkpoint is older than the run, which has been through iteration {last_step}: a"
        " run is one line of decisions, so go on from its last checkpoint, or make a branch with"
        " `costada fork` (Python: costada.runs.fork.fork_run)"
    )


def _unanswered(sent: OutgoingRequest) -> MeteredCall:
    return MeteredCall(sent.model, sent.provider)
