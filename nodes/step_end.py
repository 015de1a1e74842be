"""The end of a step: its trace row, the results so far, and why the run stops."""

from collections.abc import Sequence
from dataclasses import replace

from costada.controller.arms import posterior
from costada.controller.credit import NO_CREDIT, normalized_gain
from costada.controller.guidance import Intervention, tactic_uses_left
from costada.controller.method import Controller, is_guided
from costada.controller.router import Router
from costada.controller.step import (
    FLAT,
    OUT_OF_MONEY,
    TARGET,
    is_flat,
    spent_at_gain,
    stop_reason,
)
from costada.nodes.attempts import idea_of
from costada.nodes.calls.run_account import close_account
from costada.nodes.context import (
    RunContext,
    SearchRuntime,
    balance_of,
    candidate_of,
    front_members,
    front_of,
    has_reached_target,
    result_of,
    unjudged_of,
)
from costada.nodes.saved_state import STORED_KEYS
from costada.nodes.state import SearchState, SteeredBy, Step
from costada.nodes.trace_row import (
    BACKOFF,
    CONFIRMED,
    CONSOLIDATION_OPENED,
    CUT_SHORT,
    DISABLED,
    GUIDE_CHARGED,
    GUIDE_SCHEDULED,
    JUDGED_LATER,
    MEASURED_AGAIN,
    PARETO_FRONT,
    STEERED,
    SUBMITTED,
    UNJUDGED,
    ModelRow,
    SteeredRow,
    TraceRow,
)
from costada.store.user_inputs import UnjudgedProgram
from costada.values.candidate import Candidate
from costada.values.evaluation import objective_values, read_objectives
from costada.values.numbering import START, START_TICKET
from costada.values.usage import exactly


def end_step(
    state: SearchState,
    controller: Controller,
    decided: Intervention,
    stop: SearchState,
    runtime: SearchRuntime,
) -> SearchState:
    """Store and stream the trace row of the step, and update the results of the run.

    `controller` and `decided` are what the controller decided at the end of the step, `stop` is
    what `why_it_stops` says.
    """
    context = runtime.context
    best = candidate_of(state["best"], state, context)
    run_id, step = state["run"].id, state["step"]
    if was_released(step):
        context.store.inputs.release(run_id, step.ticket)
    if step.is_unjudged:
        context.store.inputs.put_unjudged(run_id, _unjudged(step, context))
    else:
        context.store.inputs.drop_unjudged(run_id, step.ticket)
    row = trace_row(state, controller, decided, best, context)
    # Before the checkpoint, so that none counts an iteration without a row. A run that resumes from
    # an earlier one replaces the row by the same.
    context.store.put_step(run_id, step.iteration, row)
    result = result_of(state, context)
    found = _found(state, result, context)
    runtime.stream_writer({**row, **found})
    is_new = result.id == step.attempt.candidate
    ended: SearchState = {
        "controller": controller,
        "flight": replace(state["flight"], guide_ticket=START_TICKET),
        "account": replace(state["account"], spent_at_gain=_spent_at_gain(state, context)),
        "iterations": step.iteration,
        "best_score": result.score,
        "best_objective": result.objective,
        "best_metrics": dict(result.metrics),
        "failures": _failures(state),
        **stop,
    }
    if is_new or PARETO_FRONT in row["events"]:
        ended.update(found)
    if context.chosen and context.chosen != state.get("chosen"):
        ended["chosen"] = dict(context.chosen)  # resumed with a higher budget
    if not ended.get("stopping"):
        return ended
    return {**ended, **end_run({**state, **ended}, context)}


def end_run(state: SearchState, context: RunContext) -> SearchState:
    """The end of a run that stops, empty while some of its calls are in flight.

    A guide that landed last stays prepared: if the run continues, its next step is charged for it.
    """
    if state["flight"].tickets:
        return {}
    close_account(state["run"].id, context)
    ended = SearchState(stop_reason=state["stopping"], stopping="")
    if state["stopping"] == TARGET:
        ended["account"] = replace(state["account"], reached=context.settings.target)
    return ended


def _unjudged(step: Step, context: RunContext) -> UnjudgedProgram:
    """What the step that goes on with the evaluation has to know."""
    attempt = step.attempt
    begun = unjudged_of(step, context) or UnjudgedProgram(
        program=attempt.program,
        name=step.candidate_name,
        calls=(),
        parent=attempt.parent,
        inspirations=attempt.inspirations,
        label=attempt.label,
        changes=attempt.changes,
        log=attempt.log,
    )
    return replace(begun, calls=(*begun.calls, (step.ticket, attempt.first_call)))


def _found(state: SearchState, result: Candidate, context: RunContext) -> SearchState:
    """The best program and the Pareto front, for a caller who reads the state."""
    found = SearchState(best_program=result.program.text)
    if not result.program.is_one_text:
        found["best_files"] = result.program.by_path
    if context.problem.objectives:
        found["pareto_front"] = front_members(front_of(state, context), context)
    for key, value in found.items():
        STORED_KEYS[key].put(context.store, value)  # here, as a channel takes it in the event loop
    return found


def trace_row(
    state: SearchState,
    controller: Controller,
    decided: Intervention,
    best: Candidate,
    context: RunContext,
) -> TraceRow:
    """The row of a step from its state, the controller after it and its incumbent."""
    step, evidence = state["step"], controller.record()
    attempt, allocation, credit = step.attempt, step.allocation, step.earned
    cycle = controller.cycle if is_guided(controller) else None
    events = {
        GUIDE_CHARGED: step.guide_calls > 0,
        CONSOLIDATION_OPENED: decided.opened_consolidation,
        BACKOFF: decided.backed_off,
        f"{GUIDE_SCHEDULED}:{decided.scheduled}": decided.scheduled is not None,
        OUT_OF_MONEY: attempt.is_out_of_money,
        CUT_SHORT: attempt.is_cut_short,
        FLAT: _is_flat(state, context),
        TARGET: has_reached_target(state, context),
        STEERED: idea_of(step, context) is not None and not was_released(step),
        SUBMITTED: step.is_users_program,
        UNJUDGED: step.is_unjudged,
        JUDGED_LATER: step.is_submission and not step.is_users_program,
        **{f"{DISABLED}:{each}": True for each in step.disabled},
    }
    name = attempt.candidate
    found = candidate_of(name, state, context) if name else None
    front = [each.id for each in front_of(state, context)]
    events |= _score_events(found, front, state)
    row = TraceRow(
        iteration=step.iteration,
        ticket=step.ticket,
        frontier=allocation.frontier + 1,
        action=attempt.label or allocation.action.value,
        intensity=allocation.intensity,
        step_cost=step.cost,
        spent=state["spent"],
        remaining_ratio=balance_of(state, context).ratio,
        score=attempt.score,
        objective=attempt.objective,
        best_score=best.score,
        best_objective=best.objective,
        local_gain=credit.local_gain,
        global_gain=credit.global_gain,
        cost_divisor=credit.cost_divisor,
        utility=credit.utility,
        allocation_reward=credit.allocation_reward,
        stagnation=evidence.stagnation,
        low_yield_cost=evidence.low_yield_cost,
        consolidation_left=evidence.consolidation_left,
        tactic_uses_left=tactic_uses_left(cycle),
        attempts=0 if step.is_submission else attempt.number,
        events=[*(event for event, is_true in events.items() if is_true), *decided.notes],
        failure=context.store.text(attempt.failure) or None,
        candidate_id=name or None,
        is_cached=found is not None and found.is_cached,
    )
    if step.steered and not was_released(step):
        row["steered"] = _steered_row(step.steered, idea_of(step, context))
    if context.settings.experiment is not None:
        # a program that was there before the step says nothing of a part of the method
        toss = None if step.is_submission else step.toss
        row["toss"] = toss.ticket if toss else None
        row["arm"] = toss.arm if toss else None
        row["arm_probability"] = toss.probability if toss else None
    if step.dollars_by_role:
        row["dollars_by_role"] = dict(step.dollars_by_role)
    if context.has_choice:
        row["models"], row["router"] = step.models, model_rows(state["router"])
    if context.problem.repeats > 1:
        row["measurements"] = list(found.measurements) if found else []
        row["confirmation"] = list(found.confirmation) if found else []
    if context.problem.examples:
        row["examples"] = len(found.examples) if found else 0
    if context.problem.validation:
        row["validation"] = found.validation_score if found else None
        row["is_result"] = found is not None and result_of(state, context).id == found.id
    if context.problem.objectives:
        objectives = read_objectives(context.problem.objectives)
        row["objectives"] = objective_values(objectives, found.metrics if found else {})
        row["front"] = len(front)
    return row


def was_released(step: Step) -> bool:
    """Whether the step could not pay for its first attempt, so its user input is queued again."""
    return step.steered is not None and step.is_unpaid


def _steered_row(steered: SteeredBy, idea: str | None) -> SteeredRow:
    if idea is None:
        return SteeredRow(number=steered.number, kind=steered.kind)
    return SteeredRow(number=steered.number, kind=steered.kind, idea=idea)


def _score_events(
    found: Candidate | None, front: Sequence[str], state: SearchState
) -> dict[str, bool]:
    """Whether a candidate was measured again, and with what result, and is on the Pareto front."""
    is_repeated = found is not None and bool(found.confirmation)
    is_best = found is not None and state["best"] == found.id
    return {
        CONFIRMED: is_repeated and is_best,
        MEASURED_AGAIN: is_repeated and not is_best and not (found and found.is_cached),
        PARETO_FRONT: found is not None and found.id in front,
    }


def model_rows(router: Router) -> list[ModelRow]:
    """The trace's record of each model, in the order of the menu."""
    rows = []
    for each in router.record():
        found = posterior(each, router.weight)
        rows.append(
            ModelRow(
                name=each.name,
                credit=each.credit,
                tries=each.tries,
                dollars=each.dollars,
                is_disabled=each.is_disabled,
                mean=found.mean,
                deviation=found.deviation,
            )
        )
    return rows


def why_it_stops(state: SearchState, context: RunContext) -> SearchState:
    """Why the run stops after this step, empty if it continues.

    A run that is resumed after too many failures counts them from 0. One that stops already keeps
    its reason, unless a step that was in flight has reached the target.
    """
    if has_reached_target(state, context):
        return SearchState(stopping=TARGET)
    if state["stopping"] == "failures":
        return SearchState(stopping="failures", failures=0)
    if state["stopping"]:
        return SearchState(stopping=state["stopping"])
    call_log, run_id, step = context.store.call_log, state["run"].id, state["step"]
    balance = balance_of(state, context)
    reason = stop_reason(
        balance.budget,
        balance.spent,
        step.iteration,
        context.constants.max_iterations,
        is_out_of_money=step.attempt.is_out_of_money,
        is_failing=_failures(state) >= context.settings.max_failures,
        is_flat=_is_flat(state, context),
    )
    if reason is None:
        return SearchState()
    if not call_log.has_answer(run_id) and (error := call_log.last_error(run_id)):
        failure = f"no request got a usable answer; the last one: {error}"
        return SearchState(stopping="failures", last_failure=failure, failures=0)
    if reason == "failures":
        failure = context.store.text(step.attempt.failure)
        return SearchState(stopping=reason, last_failure=failure, failures=0)
    return SearchState(stopping=reason)


@exactly
def as_charged(state: SearchState, context: RunContext) -> SearchState:
    """The state as it will be when the step is charged and credited without a further call."""
    run_id, step = state["run"].id, state["step"]
    ledger, counts_lost = context.store.ledger, context.counts_lost
    spent = ledger.spent(run_id, state.get("iterations", START))
    spent += ledger.step_cost(run_id, step.ticket, counts_lost=counts_lost)
    score = None if step.attempt.failure else step.attempt.score
    gain = normalized_gain(score, state["controller"].incumbent_score)
    credit = replace(NO_CREDIT, global_gain=gain)
    return {**state, "spent": float(spent), "step": replace(step, credit=credit)}


def _is_flat(state: SearchState, context: RunContext) -> bool:
    return is_flat(
        context.settings.stop_when_flat,
        balance_of(state, context),
        _spent_at_gain(state, context),
        state["step"].iteration,
        context.constants,
    )


def _spent_at_gain(state: SearchState, context: RunContext) -> float:
    """Dollars spent when the best score last rose, the current step included."""
    before, gain = state["account"].spent_at_gain, state["step"].earned.global_gain
    return spent_at_gain(before, state["spent"], gain, context.constants)


def _failures(state: SearchState) -> int:
    """Attempts in a row, up to the end of the step, that yielded no usable program.

    A program that a user submitted is not an attempt.
    """
    step, attempt = state["step"], state["step"].attempt
    made = attempt.number - (attempt.is_out_of_money or attempt.is_refused)
    made = 0 if step.is_submission else made
    return state["failures"] + made if attempt.failure else 0
