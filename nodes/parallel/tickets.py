"""Tickets: what is launched, when it may be, and which lands next."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import cast

from costada.controller.allocation import Allocation
from costada.controller.intensity import Action
from costada.controller.method import is_archiving
from costada.nodes.calls.budget import MONEY_QUEUES, expected_cost, prompt_tokens
from costada.nodes.context import RunContext, budget_of, guides_of, model_of
from costada.nodes.model_choice import expected_price
from costada.nodes.parallel.pool import Pool, pool_of
from costada.nodes.state import SearchState, StepRecord, Ticket
from costada.nodes.steering import is_submission
from costada.prompts.render import Prompt
from costada.store.call_log import Landing
from costada.values.numbering import TicketNumber

Key = tuple[TicketNumber, int]
"""Number and attempt of a ticket; the attempt of a guide is 0."""

Work = Callable[[SearchState, Ticket], object]
"""What is done for a ticket, with the state as it was at the launch."""


def allocation_of(step: StepRecord) -> Allocation:
    """What the controller chose for a step."""
    return Allocation(step["frontier"], Action(step["action"]), step["intensity"])


def allocations_in_flight(state: SearchState) -> list[Allocation]:
    """What the controller chose for the steps in flight."""
    return [allocation_of(each["step"]) for each in state["tickets"] if each["step"] is not None]


def has_guide_in_flight(state: SearchState) -> bool:
    """Whether a guide call is in flight."""
    return any(ticket["step"] is None for ticket in state["tickets"])


def needs_guide(state: SearchState) -> bool:
    """Whether a call was decided on that has not been launched yet."""
    return bool(state["controller"].pending) and not has_guide_in_flight(state)


def can_launch(state: SearchState, context: RunContext) -> bool:
    """Whether another step may be launched beside those in flight.

    No more than `parallel`, nor than the iterations left. Where nothing is in flight, the reasons
    to stop have been looked at already.
    """
    tickets = state["tickets"]
    if not tickets:
        return True
    if state["stopping"] or needs_guide(state) or len(tickets) >= context.parallel:
        return False
    return has_room(state, context)


def has_room(state: SearchState, context: RunContext) -> bool:
    """Whether iterations and money are left for one more step beside those in flight.

    Not while one of them waits for money.
    """
    if state.get("awaits_money"):
        return False
    begun = state["controller"].iteration + len(state["tickets"])
    return begun < context.constants.max_iterations and is_within_budget(state, context)


def is_within_budget(state: SearchState, context: RunContext) -> bool:
    """Whether the budget has room for one more step beside those in flight.

    What is spent counts, what the calls in flight are expected to cost, and one more step at the
    average cost of those that have landed.
    """
    spent, iterations = state.get("spent", 0.0), state["controller"].iteration
    expected = sum(ticket["expected"] for ticket in state["tickets"])
    another = spent / iterations if iterations else 0.0
    return spent + expected + another < budget_of(state, context)


def can_repeat(state: SearchState, context: RunContext) -> bool:
    """Whether the budget has room for a further attempt of the step that has landed.

    A run with one step in flight completes its step whatever it costs; several steps in flight
    would cross the budget by all their attempts.
    """
    expected = sum(ticket["expected"] for ticket in state["tickets"])
    so_far = state.get("spent", 0.0) + state["step"]["cost"] + expected
    return context.parallel == 1 or so_far < budget_of(state, context)


def launch(
    number: TicketNumber,
    step: StepRecord | None,
    prompt_hash: str,
    prompt: Prompt,
    work: Work,
    state: SearchState,
    context: RunContext,
) -> Ticket:
    """Launch an attempt, or a guide call where there is no step, and return its ticket."""
    ticket = Ticket(
        number=number,
        attempt=step["attempt"] if step else 0,
        step=step,
        prompt=prompt_hash,
        expected=_expected_cost(number, step, prompt, state, context),
        launched=max(state["launched"], number),
        open=sorted({*state["open"], number}),
        iterations=state["controller"].iteration,
        archive_seq=state["archive_seq"],
        num_frontiers=_num_frontiers(state),
        best=state["best"],
    )
    _launch(ticket, work, state, context)
    return ticket


def land(work: Work, state: SearchState, context: RunContext) -> tuple[Ticket, object, SearchState]:
    """Wait for the next ticket to end: the ticket, its result, and the state without it.

    What is not in flight is launched again: a process may have died since, or a run was aborted.
    The order of landing is stored, and whether another ticket waited for money, so that a run which
    is resumed lands its tickets in the same order and launches the next ones at the same places.
    Raises what the work raised, and as `Pool.wait` and `Pool.take` do.
    """
    pool, call_log = pool_of(context.store, state["run_id"]), context.store.call_log
    tickets = {(each["number"], each["attempt"]): each for each in state["tickets"]}
    landing = state["landings"] + 1
    recorded, key = call_log.landing(state["run_id"], landing), None
    expected = recorded.ticket if recorded else None
    while key is None or pool.has_to_begin_again(key, context.store.num_losses):
        for ticket in tickets.values():
            _launch(ticket, work, state, context)
        key = _next_key(expected, tickets, pool, context)
    result = pool.take(key)
    if recorded is None or recorded.ticket != key[0]:
        awaits_money = MONEY_QUEUES.of(context.store, state["run_id"]).has_waiting
        recorded = Landing(key[0], awaits_money)
        call_log.put_landing(state["run_id"], landing, recorded)
    others = [ticket for other, ticket in tickets.items() if other != key]
    landed = SearchState(tickets=others, landings=landing, awaits_money=recorded.awaits_money)
    return tickets[key], result, landed


def _next_key(
    recorded: TicketNumber | None, tickets: Mapping[Key, Ticket], pool: Pool, context: RunContext
) -> Key:
    expected = [key for key in tickets if key[0] == recorded]
    if not expected and context.order == "launch":
        expected = [next(iter(tickets))]
    return cast(Key, pool.wait(expected or list(tickets)))


def _launch(ticket: Ticket, work: Work, state: SearchState, context: RunContext) -> None:
    then = SearchState(
        **{
            **state,
            "launched": ticket["launched"],
            "open": ticket["open"],
            "iterations": ticket["iterations"],
            "archive_seq": ticket["archive_seq"],
            "num_frontiers": ticket["num_frontiers"],
            "best": ticket["best"],
        }
    )
    if ticket["step"] is not None:
        then["step"] = ticket["step"]
    pool = pool_of(context.store, state["run_id"])
    key = ticket["number"], ticket["attempt"]
    pool.launch(key, partial(work, then, ticket), context.store.num_losses)


def _expected_cost(
    number: TicketNumber,
    step: StepRecord | None,
    prompt: Prompt,
    state: SearchState,
    context: RunContext,
) -> float:
    """Dollars of a ticket before this call, and those the call is expected to cost.

    A step is expected to cost what the steps so far have cost on average, and nothing where a user
    submitted its program. The call itself does not count where it was made already: a launch that
    is repeated expects what it expected before.
    """
    if step is None:
        return float(expected_cost(guides_of(state, context)[0], prompt_tokens(prompt)))
    if is_submission(step):
        return 0.0
    counts_lost = context.settings.lost_calls == "count"
    first = step["requests"] + 1 if step["requests"] else step["attempt"]
    so_far = context.store.call_log.cost_before(
        state["run_id"], number, first, counts_lost=counts_lost
    )
    if context.has_choice:
        return float(so_far) + expected_price(model_of(step, context), state)
    if iterations := state["controller"].iteration:
        return float(so_far) + state["spent"] / iterations
    return float(so_far + expected_cost(model_of(step, context), prompt_tokens(prompt)))


def _num_frontiers(state: SearchState) -> int | None:
    controller = state["controller"]
    return len(controller.archive_weights) if is_archiving(controller) else None
