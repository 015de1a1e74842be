"""Node: score the proposed program, or land the next step in flight."""

from functools import partial
from typing import cast

from langchain_core.runnables import RunnableConfig

from costada.nodes.calls.judging import score_attempt
from costada.nodes.context import RunContext, is_unpaid
from costada.nodes.generate import Visible, work_on
from costada.nodes.guide import accept_tactics
from costada.nodes.model_choice import tell_router
from costada.nodes.parallel.tickets import land
from costada.nodes.state import SearchState, StepRecord
from costada.nodes.steering import is_submission
from costada.nodes.tools.workbench import archived_candidates
from costada.prompts.tactics import Tactic
from costada.values.numbering import next_iteration


def evaluate(
    state: SearchState,
    config: RunnableConfig,
    *,
    context: RunContext,
    visible: Visible = archived_candidates,
) -> SearchState:
    """Add the score of the attempt's program to the step (f_t), or why it failed.

    With several steps in flight, the next one that has ended becomes the current step; its worker
    has made the call and the evaluation. A guide that lands updates the controller. A step that no
    money was left for is none once the run stops: it leaves no iteration.

    Raises:
        InterruptedError: The evaluation was asked to stop; the step resumes here.
        ValueError: The evaluator fails even on the incumbent.
    """
    step = state["step"]
    if not (step["is_launched"] or step["is_credited"]):
        return _with_router(state, score_attempt(state, context), context)
    work = partial(work_on, config=config, context=context, visible=visible)
    ticket, result, landed = land(work, state, context)
    if ticket["step"] is None:
        tactics = cast(tuple[Tactic, ...], result)
        opened = accept_tactics(tactics, state, context)
        prepared = SearchState(prepared=ticket["number"], iteration=state["controller"].iteration)
        return SearchState(**{**landed, **opened, **prepared})
    step = cast(StepRecord, result)
    # not a further attempt: a process that died may have begun it, and this one must do the same
    made = step["requests"] or step["attempt"]
    counts_lost = context.settings.lost_calls == "count"
    cost = context.store.call_log.cost_before(
        state["run_id"], ticket["number"], made + 1, counts_lost=counts_lost
    )
    if state["stopping"] and not state["prepared"] and is_unpaid(step) and not cost:
        context.store.inputs.release(state["run_id"], ticket["number"])
        others = [number for number in state["open"] if number != ticket["number"]]
        return SearchState(**{**landed, "open": others, "iteration": state["controller"].iteration})
    step = StepRecord(**{**step, "cost": float(cost)})
    iteration = next_iteration(state["controller"].iteration)
    return _with_router(
        state, SearchState(**{**landed, "step": step, "iteration": iteration}), context
    )


def _with_router(before: SearchState, update: SearchState, context: RunContext) -> SearchState:
    """The update with what the router learns from the attempt, in a run with several models.

    It learns nothing from an attempt that was not made because no model could be paid for, nor
    from a program that a user submitted.
    """
    state = SearchState(**{**before, **update})
    step = state["step"]
    if not context.has_choice or step["is_out_of_money"] or is_submission(step):
        return update
    return SearchState(**{**update, **tell_router(state, context)})
