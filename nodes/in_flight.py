"""Steps in flight: what differs with K > 1, as wrappers around the nodes that wait.

The wrapped `generate` and `guide` launch their work in a thread and return at once, so that the
graph goes on to the next step. The wrapped `evaluate` lands the ticket that ends next: its step,
with program and score, becomes the current one, or the tactics of its guide are accepted. A worker
sees the state as it was at the launch, so a resumed run repeats what it did.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from functools import partial
from typing import TypeVar, cast

from langchain_core.runnables import RunnableConfig

from costada.controller.arms import ModelOption, attempt_price
from costada.nodes.attempts import load_prompt
from costada.nodes.calls.bounds import expected_cost, prompt_tokens
from costada.nodes.calls.budget import FUNDS_QUEUES, evaluation_funds
from costada.nodes.context import (
    Node,
    PaidNode,
    PayingNode,
    PricedModel,
    RunContext,
    SearchRuntime,
    guides_of,
    is_sequential,
    model_of,
    next_ticket,
)
from costada.nodes.pool import Pool, pool_of
from costada.nodes.state import Flight, SearchState, Step, Ticket, has_current_step
from costada.prompts.render import Prompt
from costada.prompts.requests import PromptData
from costada.store.ledger import Landing
from costada.store.rows import LandedTickets
from costada.values.numbering import TicketNumber, next_iteration

Bought = TypeVar("Bought")

Key = tuple[TicketNumber, int]
"""Number and attempt of a ticket; the attempt of a guide is 0."""

Work = Callable[[SearchState, Ticket], object]
"""What a worker does for a ticket, with the state as it was at the launch."""


def launch_attempts(generate: PayingNode, evaluate: Node) -> PayingNode:
    """Launch an attempt: a worker proposes its program and evaluates it."""

    def launch_attempt(
        state: SearchState, runtime: SearchRuntime, config: RunnableConfig
    ) -> SearchState:
        context, flight = runtime.context, state["flight"]
        if is_sequential(state, context):
            return generate(state, runtime, config)
        # The launched step differs from the current one in this only: `land_tickets` tells by it
        # whether the current step has been evaluated, or waits in a thread.
        step = replace(state["step"], is_launched=True)
        expected = _expected_of_step(step, state, context)
        ticket = _new_ticket(step.ticket, step, step.attempt.prompt, expected, state)
        _launch(ticket, partial(_attempt, generate, evaluate, runtime, config), state, context)
        return {"step": step, "flight": replace(flight, tickets=(*flight.tickets, ticket))}

    return launch_attempt


def launch_guides(guide: PaidNode[Bought]) -> PayingNode:
    """Launch a guide: a worker buys it, and its ticket becomes that of the step that follows."""

    def launch_guide(
        state: SearchState, runtime: SearchRuntime, config: RunnableConfig
    ) -> SearchState:
        context, flight = runtime.context, state["flight"]
        if is_sequential(state, context):
            return guide(state, runtime, config)
        number, prompt = next_ticket(state), guide.prompt(state, context)
        expected = float(expected_cost(guides_of(state, context)[0], prompt_tokens(prompt)))
        stored = context.store.put_text(json.dumps(asdict(prompt)))
        ticket = _new_ticket(number, None, stored, expected, state)
        _launch(ticket, partial(_buy, guide, runtime, config), state, context)
        flight = replace(
            flight,
            last_ticket=number,
            open_tickets=ticket.seen.open,
            tickets=(*flight.tickets, ticket),
        )
        return {"flight": flight}

    return launch_guide


def land_tickets(evaluate: Node, generate: PayingNode, guide: PaidNode[Bought]) -> PayingNode:
    """Land the ticket that ends next, whoever launched it; evaluate a step that is not in flight.

    A run with one step at a time lands what an earlier process had in flight. What is not in flight
    is launched again: a process may have died since, or a run was aborted.

    Raises what the work raised, and `InterruptedError` when the node is cancelled.
    """

    def land_or_evaluate(
        state: SearchState, runtime: SearchRuntime, config: RunnableConfig
    ) -> SearchState:
        context, step = runtime.context, state["step"]
        if has_current_step(state) and not step.is_launched:
            with evaluation_funds(state, context) as set_aside:
                set_aside()
                return evaluate(state, runtime)

        def work(then: SearchState, ticket: Ticket) -> object:
            if ticket.step is None:
                return _buy(guide, runtime, config, then, ticket)
            return _attempt(generate, evaluate, runtime, config, then, ticket)

        ticket, result, flight = _land(work, state, context)
        iteration = state["controller"].iteration
        if ticket.step is None:
            ended = replace(step, iteration=iteration)
            flight = replace(flight, guide_ticket=ticket.number)
            accepted = guide.accept(cast(Bought, result), state, context)
            return {"flight": flight, "step": ended, **accepted}
        step = cast(Step, result)
        # The cost up to this attempt only: a process that died may have begun the next one, and
        # this one must decide as that did.
        cost = context.store.ledger.cost_before(
            state["run"].id,
            ticket.number,
            step.num_requested + 1,
            counts_lost=context.counts_lost,
        )
        if state["stopping"] and not flight.guide_ticket and step.is_unpaid and not cost:
            # a step that no money was left for leaves no iteration once the run stops
            context.store.inputs.release(state["run"].id, ticket.number)
            others = tuple(each for each in flight.open_tickets if each != ticket.number)
            flight = replace(flight, open_tickets=others)
            return {"flight": flight, "step": replace(state["step"], iteration=iteration)}
        step = replace(step, iteration=next_iteration(iteration), cost=float(cost))
        return {"flight": flight, "step": step}

    return land_or_evaluate


def _attempt(
    generate: PayingNode,
    evaluate: Node,
    runtime: SearchRuntime,
    config: RunnableConfig,
    state: SearchState,
    ticket: Ticket,
) -> Step:
    """The step of a ticket with its program and score."""
    with evaluation_funds(state, runtime.context) as set_aside:
        proposed: SearchState = {**state, **generate(state, runtime, config)}
        if proposed["step"].attempt.program:
            set_aside()
        evaluated: SearchState = {**proposed, **evaluate(proposed, runtime)}
    return replace(evaluated["step"], is_launched=False)


def _buy(
    guide: PaidNode[Bought],
    runtime: SearchRuntime,
    config: RunnableConfig,
    state: SearchState,
    ticket: Ticket,
) -> Bought:
    """Buy a guide with the prompt that was stored at its launch."""
    stored = json.loads(runtime.context.store.text(ticket.prompt))
    data = stored.pop("data")
    prompt = Prompt(**stored, data=PromptData(**data) if data else None)
    return guide.buy(prompt, ticket.number, state, config, runtime.context)


def _new_ticket(
    number: TicketNumber, step: Step | None, prompt: str, expected: float, state: SearchState
) -> Ticket:
    """A ticket for an attempt, or for a guide call where there is no step."""
    seen = state["flight"].seen
    return Ticket(
        number=number,
        attempt=step.attempt.number if step else 0,
        step=step,
        prompt=prompt,
        expected=expected,
        seen=LandedTickets(max(seen.last, number), tuple(sorted({*seen.open, number}))),
        iterations=state["controller"].iteration,
        archives=state["archives"],
        best=state["best"],
    )


def _land(work: Work, state: SearchState, context: RunContext) -> tuple[Ticket, object, Flight]:
    """Wait for the next ticket to end: the ticket, its result, and the flight without it.

    What is not in flight is launched again: a process may have died since, or a run was aborted.
    The order of landing is stored, and whether another ticket waited for money, so that a run which
    is resumed lands its tickets in the same order and launches the next ones at the same places.
    Raises what the work raised, and as `Pool.wait` and `Pool.take` do.
    """
    run_id, flight, ledger = state["run"].id, state["flight"], context.store.ledger
    pool = pool_of(context.store, run_id)
    tickets = {(each.number, each.attempt): each for each in flight.tickets}
    landing = flight.num_landed + 1
    recorded, key = ledger.landing(run_id, landing), None
    expected = recorded.ticket if recorded else None
    while key is None or pool.has_to_begin_again(key):
        for ticket in tickets.values():
            _launch(ticket, work, state, context)
        key = _next_key(expected, tickets, pool, context)
    result = pool.take(key)
    # Stored at once and not with the state: nodes that follow may pay for calls that depend on the
    # order before the next checkpoint is written.
    if recorded is None or recorded.ticket != key[0]:
        is_waiting_for_funds = FUNDS_QUEUES.of(context.store, run_id).has_waiting
        recorded = Landing(key[0], is_waiting_for_funds)
        ledger.put_landing(run_id, landing, recorded)
    landed = replace(
        flight,
        tickets=tuple(ticket for other, ticket in tickets.items() if other != key),
        num_landed=landing,
        is_waiting_for_funds=recorded.is_waiting_for_funds,
    )
    return tickets[key], result, landed


def _next_key(
    recorded: TicketNumber | None, tickets: Mapping[Key, Ticket], pool: Pool, context: RunContext
) -> Key:
    expected = [key for key in tickets if key[0] == recorded]
    if not expected and context.order == "launch":
        expected = [next(iter(tickets))]
    return cast(Key, pool.wait(expected or list(tickets)))


def _launch(ticket: Ticket, work: Work, state: SearchState, context: RunContext) -> None:
    seen = ticket.seen
    then: SearchState = {
        **state,
        "flight": replace(state["flight"], last_ticket=seen.last, open_tickets=seen.open),
        "iterations": ticket.iterations,
        "archives": ticket.archives,
        "best": ticket.best,
        "step": ticket.step or state["step"],
    }
    pool = pool_of(context.store, state["run"].id)
    key = ticket.number, ticket.attempt
    pool.launch(key, partial(work, then, ticket))


def _expected_of_step(step: Step, state: SearchState, context: RunContext) -> float:
    """Dollars that a step has cost before this call, plus the expected cost of the call.

    A step is expected to cost what the steps so far have cost on average; before the first has
    landed, the call at its list price, and its evaluation what that of the start has cost. The call
    itself does not count where it was made already: a launch that is repeated expects what it
    expected before.
    """
    first = step.requests + 1 if step.requests else step.attempt.number
    so_far = context.store.ledger.cost_before(
        state["run"].id, step.ticket, first, counts_lost=context.counts_lost
    )
    if context.has_choice:
        return float(so_far) + expected_price(model_of(step, context), state)
    if iterations := state["controller"].iteration:
        return float(so_far) + state["spent"] / iterations
    tokens = prompt_tokens(load_prompt(state, context))
    return float(so_far + expected_cost(model_of(step, context), tokens)) + state["spent"]


def expected_price(asked: PricedModel, state: SearchState) -> float:
    """Expected cost of an attempt of a model by list price and experience, in dollars."""
    record = next(each for each in state["router"].records if each.name == asked.name)
    return attempt_price(record, ModelOption(asked.name, asked.expected))
