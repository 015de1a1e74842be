"""Whether one model of a run serves, has to be waited for, or is given up: one record, one rule."""

from dataclasses import dataclass

from costada.models.asking import FailureKind, ModelFailure
from costada.models.errors import ModelUnusable
from costada.nodes.calls.outage import Outages, PauseText
from costada.nodes.context import PricedModel, RunContext
from costada.nodes.per_run import PerRun
from costada.store.call_log import CallFilter, CallKey, CallLog
from costada.store.rows import OutcomeKind

MAX_UNANSWERED = 3
"""Requests after which a model that never gave a usable answer is given up."""

OUTCOMES = {
    FailureKind.REFUSED: OutcomeKind.REFUSAL,
    FailureKind.TIMEOUT: OutcomeKind.TIMEOUT,
    FailureKind.NO_PROTOCOL: OutcomeKind.NO_PROTOCOL,
}
"""Failures that are kept with their kind; the others are kept as failures."""

PERHAPS_DOWN = (FailureKind.TIMEOUT, FailureKind.NO_PROTOCOL)
"""Failures that may be due to one request; two in a row are an outage."""

OUTAGES = PerRun[dict[CallFilter, Outages]](dict)
"""The outages of each model of a run."""


@dataclass(frozen=True, slots=True)
class ModelHealth:
    """What a run knows of one of its models.

    All but `outages` is read from the journal, so that a run which is resumed comes to the same
    conclusions. A separate guide model and each model of a menu have a record of their own.

    Attributes:
        run_id: The run.
        calls: Which of its calls go to the model.
        num_first: Requests that the model may get without a usable answer.
        has_others: Whether other models of the menu are left to make its attempts.
        may_be_uncounted: Whether its answers may come without token counts.
        outages: What this process has seen of it.
    """

    call_log: CallLog
    run_id: str
    calls: CallFilter
    num_first: int
    has_others: bool
    may_be_uncounted: bool
    outages: Outages

    def check_usable(self) -> None:
        """Refuse to ask a model that was given up while others are left.

        The last model is asked again, as it may have recovered since.

        Raises:
            ModelUnusable: With the reason for which it was given up.
        """
        if not self.has_others:
            return
        if self.outages.given_up:
            raise ModelUnusable(self.outages.given_up[-1])
        if not self.may_be_uncounted and self.call_log.has_uncounted(self.run_id, self.calls):
            raise ModelUnusable("an earlier answer of the model came without token counts")
        if not self.may_send_again():
            raise ModelUnusable(self._unanswered())

    def may_send_again(self) -> bool:
        """Whether a call may repeat a request, although the model may never have answered."""
        return not self.has_others or self._has_answered or self._num_ended < self.num_first

    def give_up(self, error: ModelUnusable) -> None:
        """Note that the model refuses all further requests, so that no other call asks it."""
        if self.has_others:
            self.outages.give_up(error)

    def is_outage(self, failure: ModelFailure, *, is_paused: bool) -> bool:
        """Whether the run has to wait for the model, which has answered it before.

        A call that timed out may have been too long to answer, and a web page may be one server's:
        after another such call, and within a pause, the model is unavailable.

        Raises:
            ModelUnusable: The model has given no usable answer so far, and further requests would
                not bring one.
        """
        if self._has_answered:
            if failure.kind in PERHAPS_DOWN:
                last = self.call_log.last_kind(self.run_id, self.calls)
                return is_paused or last in [OUTCOMES[kind] for kind in PERHAPS_DOWN]
            return failure.kind is FailureKind.DOWN
        if failure.kind in (FailureKind.REFUSED, FailureKind.NO_PROTOCOL):
            raise ModelUnusable(failure.reason)
        if self._num_ended >= self.num_first:
            raise ModelUnusable(f"{self._unanswered()}; last failure: {failure.reason}")
        return False

    @property
    def pause_text(self) -> PauseText:
        """What the log says while the run waits for the model."""
        provider = "the provider"
        if not self.has_others:
            return PauseText(provider)
        return PauseText(provider, end="the model is disabled", advice="")

    @property
    def _has_answered(self) -> bool:
        return self.call_log.has_answer(self.run_id, self.calls)

    @property
    def _num_ended(self) -> int:
        return self.call_log.num_requests(self.run_id, self.calls)

    def _unanswered(self) -> str:
        return f"none of the {self._num_ended} requests so far was answered usably"


def health_of(
    asked: PricedModel, key: CallKey, context: RunContext, *, has_others: bool = False
) -> ModelHealth:
    """The record of the model that a call asks."""
    entry = context.entry_of(asked)
    is_separate = entry is None and context.guide_model is not None
    calls = CallFilter(key.role == "guide" if is_separate else None, entry)
    outages = OUTAGES.of(context.store, key.run_id).setdefault(calls, Outages())
    return ModelHealth(
        call_log=context.store.call_log,
        run_id=key.run_id,
        calls=calls,
        num_first=max(MAX_UNANSWERED, context.parallel),
        has_others=has_others,
        may_be_uncounted=context.settings.on_missing_usage == "estimate",
        outages=outages,
    )
