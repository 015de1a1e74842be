"""The models that evaluations of a run ask: of the evaluator, and of the program under test."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from uuid import uuid4

from costada.models.asking import RequestNotSent
from costada.models.endpoint.client_requests import read_request
from costada.models.endpoint.exchange import Dialect, Refusal
from costada.models.errors import ModelRefused, ModelUnusable
from costada.models.event_loop import run
from costada.nodes.calls.allowance import Allowance, allowance_of_evaluation
from costada.nodes.calls.endpoint_models import SHARED, EndpointModels
from costada.nodes.calls.granted_calls import METERED_ENDPOINT, OVER_LIMIT, UNAFFORDABLE, Grant
from costada.nodes.calls.relayed_models import RelayedModels
from costada.nodes.context import RunContext
from costada.nodes.state import SearchState
from costada.store.call_log import CallKey
from costada.values.evaluation import (
    EVALUATOR_FAULT,
    EVALUATOR_OUTAGE,
    Evaluation,
    failed,
    failed_evaluator,
)
from costada.values.model_access import new_token
from costada.values.numbering import TicketNumber
from costada.values.roles import CANDIDATE, EVALUATION

SHARING = (CANDIDATE, EVALUATION)
"""Whose models a sandbox reaches that evaluator and candidate share."""

PROBE = {"messages": [{"role": "user", "content": "Say yes."}], "max_tokens": 16}
"""What the models of a problem are asked to find out whether their provider is available."""


class EvaluationCalls(EndpointModels):
    """The models that one evaluation may ask, by the endpoint of this process."""

    def __init__(self, grants: Mapping[str, Grant]) -> None:
        """Take the grants by role."""
        super().__init__(METERED_ENDPOINT)
        self._grants = grants

    def admit(self, token: str, role: str, *, is_relay: bool = False) -> bool:
        """Let whoever shows a token ask the models of a role, or `SHARED`, if there are any."""
        roles = SHARING if role == SHARED else (role,)
        granted = [self._grants[each] for each in roles if each in self._grants]
        if granted:
            granted[0].admit(token, *granted[1:], is_relay=is_relay)
        return bool(granted)

    def dismiss(self, token: str) -> None:
        """Let whoever shows a token of the evaluator ask nothing more."""
        self._grants[EVALUATION].dismiss(token)

    def for_worker(self, host: str, port: int) -> RelayedModels:
        """What is sent to a worker that evaluates in the place of this process."""
        offered = {role: new_token() for role in (CANDIDATE, EVALUATION, SHARED)}
        tokens = {
            role: token for role, token in offered.items() if self.admit(token, role, is_relay=True)
        }
        return RelayedModels(
            METERED_ENDPOINT.url_at(host, port), METERED_ENDPOINT.endpoint.secret, tokens
        )

    def are_available(self) -> bool:
        """Whether each of the models answers a question of a few words now.

        A refusal of the provider is an answer, too: it is available.
        """
        for grant in self._grants.values():
            for name in grant.models:
                body = json.dumps({"model": name, **PROBE}).encode()
                try:
                    run(grant.answer(read_request(Dialect.CHAT, {}, body)))
                except Refusal:
                    return False
        return True

    def check_faults(self) -> None:
        """Raise what ends the run, if a request showed it; complete once the grants have ended."""
        for grant in self._grants.values():
            if isinstance(grant.fault, ModelRefused):
                # The problem names the model: runs of other problems have no such error.
                raise ModelUnusable(str(grant.fault)) from grant.fault
            if grant.fault is not None:
                raise grant.fault

    def final_evaluation(self, evaluation: Evaluation) -> Evaluation:
        """The evaluation, or what it is worth where a request of its models was not answered.

        Called when the grants have ended: an answer may come later than the evaluation.

        Raises:
            RequestNotSent: The money of the run could not pay for it, or not before its time was
                over.
            ValueError: A request showed what ends the run.
        """
        self.check_faults()
        for grant in self._grants.values():
            if UNAFFORDABLE in grant.refusals:
                raise RequestNotSent(grant.refusals[UNAFFORDABLE])
        timed_out = not evaluation.is_valid and (evaluation.error or "").startswith("timeout:")
        if timed_out and any(grant.is_waiting for grant in self._grants.values()):
            raise RequestNotSent("its time was over while a request waited for others to end")
        for grant in self._grants.values():
            if (failure := grant.outage) is not None:
                # Of the provider itself: the evaluator's error repeats it in its client's words.
                outage = failed_evaluator(failure.reason, failure.retry_after or 0.0)
                return replace(outage, artifacts={**evaluation.artifacts, **outage.artifacts})
        for grant in self._grants.values():
            if OVER_LIMIT in grant.refusals and not evaluation.is_valid:
                marks = (EVALUATOR_FAULT, EVALUATOR_OUTAGE)
                kept = {k: text for k, text in evaluation.artifacts.items() if k not in marks}
                reason = grant.refusals[OVER_LIMIT]
                return failed(reason, artifacts=kept, seconds=evaluation.seconds)
        return evaluation


def are_available(name: str, state: SearchState, context: RunContext) -> bool:
    """Whether the provider of the problem's models is available while an evaluation fails.

    Args:
        name: Names the evaluation.
        state: Of the run.
        context: Of the run.

    Raises:
        ValueError: An answer showed what ends the run.
    """
    # Under a name of its own each time, or an earlier answer would be given again.
    allowance = allowance_of_evaluation(state, context)
    with open_grants(f"{name} probe {uuid4().hex}", state, context, allowance) as models:
        is_available = models.are_available()
    models.check_faults()
    return is_available


@contextmanager
def open_grants(
    name: str,
    state: SearchState,
    context: RunContext,
    allowance: Allowance,
    earlier: Sequence[tuple[TicketNumber, int]] = (),
) -> Iterator[EvaluationCalls]:
    """Grant the models of the problem to an evaluation for as long as the block takes.

    Args:
        name: Names the evaluation in the run, the same when it is executed again.
        state: Of the run.
        context: Of the run.
        allowance: What it may cost, however often it is executed.
        earlier: Ticket and attempt of the calls of earlier steps that made it, oldest first; their
            answers are not bought again.
    """
    step, run_id = state["step"], state["run"].id
    with ExitStack() as stack:
        grants = {}
        # An evaluator without models is admitted too: its process holds no key, and what it asks is
        # refused with a reason.
        for role, models in {EVALUATION: {}, **context.granted}.items():
            key = CallKey(run_id, step.ticket, role, step.attempt.first_call)
            before = [CallKey(run_id, ticket, role, attempt) for ticket, attempt in earlier]
            grants[role] = Grant(key, name, models, state, context, allowance, before)
            stack.callback(grants[role].close)
        yield EvaluationCalls(grants)
