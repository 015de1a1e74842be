"""The price of evaluations: the time that they occupy a worker, charged to their step."""

import logging
from collections.abc import Callable
from decimal import Decimal
from functools import partial
from time import monotonic, time

from costada.models.event_loop import run
from costada.nodes.calls.bounds import compute_bound, compute_cost
from costada.nodes.calls.budget import (
    FUNDS_POLL_SECONDS,
    WaitingForFunds,
    leave_queue,
    reserve_bound,
)
from costada.nodes.calls.health import sleep_interruptibly
from costada.nodes.calls.journal import NOTABLE_SHARE
from costada.nodes.calls.run_account import open_account, report_cost
from costada.nodes.context import RunContext
from costada.nodes.state import SearchState
from costada.store.call_log import CallKey
from costada.store.rows import CallRow, CallStatus
from costada.values.evaluation import EVALUATOR_FAULT, Evaluation
from costada.values.numbering import TicketNumber
from costada.values.roles import COMPUTE

_LOG = logging.getLogger("costada.money")


def evaluate_for_money(
    evaluate: Callable[..., Evaluation], state: SearchState, context: RunContext
) -> Evaluation:
    """Evaluate a program of the current attempt, and charge its step the time of the worker.

    The bound is in the journal before the evaluation begins. It counts until the end is known, so a
    killed process leaves it. Under a hard budget the bound is reserved, and nothing beyond it is
    charged. An evaluation that waits for others has no bound: the models that those ask may be
    waiting for the money of whatever is in flight.

    Args:
        evaluate: Evaluates it; calls its argument `on_permit` when the evaluation begins.
        state: Of the run.
        context: Of the run.

    Raises:
        RequestNotSent: A hard budget cannot pay for the bound, and no call in flight could leave
            more.
        InterruptedError: The evaluation was asked to stop.
    """
    if context.settings.compute_price is None:
        return evaluate()
    charge = _ComputeCharge(state, context)
    try:
        evaluation = evaluate(on_permit=charge.begin)
    except BaseException as error:  # raised again: it has taken time, whatever ended it
        charge.finish(charge.seconds, str(error) or type(error).__name__)
        raise
    fault = evaluation.error if EVALUATOR_FAULT in evaluation.artifacts else None
    charge.finish(evaluation.worker_seconds, fault)
    return evaluation


def compute_row(
    ticket: TicketNumber,
    status: CallStatus,
    cost: Decimal = Decimal(0),
    *,
    attempt: int = 1,
    frontier: int | None = None,
    bound: Decimal = Decimal(0),
    seconds: float = 0.0,
    error: str | None = None,
) -> CallRow:
    """The row of one evaluation on the ledger; `seconds` are those of its worker."""
    return CallRow(
        ticket=ticket,
        role=COMPUTE,
        attempt=attempt,
        frontier=frontier,
        cost=cost,
        bound=bound,
        price_source="compute_price",
        ended_at=time(),
        seconds=seconds,
        error=error,
        status=status,
    )


class _ComputeCharge:
    """The row of one evaluation on the ledger."""

    def __init__(self, state: SearchState, context: RunContext) -> None:
        step = state["step"]
        self._key = CallKey(state["run"].id, step.ticket, COMPUTE, step.attempt.first_call)
        self._state, self._context = state, context
        self._row = partial(
            compute_row,
            step.ticket,
            attempt=step.attempt.first_call,
            frontier=step.allocation.frontier,
        )
        self._bound = compute_bound(context.problem, context.settings)
        self._call_log = context.store.call_log
        self._account = open_account(self._key.run_id, context)
        self._number = 0
        self._began: float | None = None

    @property
    def seconds(self) -> float:
        """How long ago the evaluation began; 0 if it has not."""
        return 0.0 if self._began is None else monotonic() - self._began

    def begin(self) -> None:
        """Write the evaluation down with its bound; waits for calls that may leave money for it."""
        with self._call_log.in_flight.none_of(self._key):
            # Of a process that died: a thread of this one would be in flight.
            lost = self._call_log.mark_lost(self._key)
            self._call_log.in_flight.begin(self._key)
        self._log_lost(sum(lost.values(), Decimal(0)))
        try:
            self._put()
            report_cost(self._account, self._key.run_id, self._key.ticket, self._context)
        except BaseException:  # raised again: nothing is evaluated
            self._call_log.in_flight.end(self._key)
            raise
        self._began = monotonic()

    def _put(self) -> None:
        row = self._row(CallStatus.STARTED, bound=self._bound)
        reserve = self._reserve if self._context.is_hard else None
        try:
            while True:
                try:
                    self._number = self._call_log.put_call(self._key.run_id, row, reserve)
                    return
                except WaitingForFunds:
                    run(sleep_interruptibly(FUNDS_POLL_SECONDS))
        finally:
            leave_queue(self._key, self._context)

    def _reserve(self, bound: Decimal) -> None:
        reserve_bound(bound, self._key, self._state, self._context)

    def _log_lost(self, bound: Decimal) -> None:
        share = bound / Decimal(str(self._context.budget))
        if self._context.counts_lost and share >= NOTABLE_SHARE:
            _LOG.warning(
                "An evaluation was lost and counts as $%.6f (%.0f%% of the budget), the most that"
                " it can have cost. To limit such a loss, lower the limit of evaluations"
                " (--timeout)",
                bound,
                100 * share,
                extra={"ticket": self._key.ticket},
            )

    def finish(self, seconds: float, error: str | None) -> None:
        """Replace the bound by what the evaluation cost, if it has begun."""
        if self._began is None:
            return
        try:
            cost = compute_cost(seconds, self._context.problem, self._context.settings)
            if self._context.is_hard:
                cost = min(cost, self._bound)
            status = CallStatus.DONE if error is None else CallStatus.ERROR
            row = self._row(status, cost, seconds=seconds, error=error)
            self._call_log.finish_call(self._key.run_id, self._number, row)
            report_cost(self._account, self._key.run_id, self._key.ticket, self._context)
        finally:
            self._call_log.in_flight.end(self._key)
