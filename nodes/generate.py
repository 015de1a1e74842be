"""Node: ask the model for a changed program."""

from collections.abc import Callable, Sequence
from functools import partial

from langchain_core.runnables import RunnableConfig

from costada.models.asking import ModelFailure
from costada.models.replies import answer_text
from costada.nodes.build_context import load_prompt
from costada.nodes.calls.asking import NOT_ATTEMPTED, CutShort, Unaffordable, ask_within_budget
from costada.nodes.calls.judging import score_attempt
from costada.nodes.context import RunContext, candidate_of, is_alone, model_of
from costada.nodes.guide import buy_tactics, load_guide_prompt
from costada.nodes.model_choice import refused
from costada.nodes.parallel.tickets import launch
from costada.nodes.state import SearchState, StepRecord, Ticket
from costada.nodes.steering import is_submission
from costada.nodes.tools.agent import ask_with_tools
from costada.nodes.tools.workbench import archived_candidates
from costada.prompts.changes import read_change
from costada.prompts.render import Prompt
from costada.prompts.replies import Rejection
from costada.prompts.tactics import Tactic
from costada.store.call_log import CallKey
from costada.values.candidate import Candidate

Visible = Callable[[SearchState, RunContext], Sequence[Candidate]]
"""The candidates that a model with tools may look at."""


def generate(
    state: SearchState,
    config: RunnableConfig,
    *,
    context: RunContext,
    visible: Visible = archived_candidates,
) -> SearchState:
    """Add the proposed program to the step, or why there is none.

    With several steps in flight, launch the attempt instead; `evaluate` lands it. A program that a
    user submitted is there already.
    """
    if state["step"]["is_out_of_money"]:
        return SearchState()
    if is_alone(state, context):
        return propose(state, config, context, visible)
    step = StepRecord(**{**state["step"], "is_launched": True})
    work = partial(work_on, config=config, context=context, visible=visible)
    prompt = Prompt("", "") if is_submission(step) else load_prompt(state, context)
    ticket = launch(step["number"], step, step["prompt"], prompt, work, state, context)
    return SearchState(step=step, tickets=[*state["tickets"], ticket])


def propose(
    state: SearchState, config: RunnableConfig, context: RunContext, visible: Visible
) -> SearchState:
    """Add the program of one answer, or of an attempt with tools, to the step."""
    if is_submission(state["step"]):
        return SearchState()
    if context.settings.generator == "agent":
        return ask_with_tools(state, config, visible, context=context)
    return ask_once(state, config, context=context)


def work_on(
    state: SearchState,
    ticket: Ticket,
    *,
    config: RunnableConfig,
    context: RunContext,
    visible: Visible,
) -> StepRecord | tuple[Tactic, ...]:
    """The step of a ticket with its program and score, or the tactics of a guide."""
    if ticket["step"] is None:
        prompt = load_guide_prompt(ticket["prompt"], context)
        return buy_tactics(prompt, ticket["number"], state, config, context)
    proposed = SearchState(**{**state, **propose(state, config, context, visible)})
    judged = SearchState(**{**proposed, **score_attempt(proposed, context)})
    return StepRecord(**{**judged["step"], "is_launched": False})


def ask_once(state: SearchState, config: RunnableConfig, *, context: RunContext) -> SearchState:
    """Add the program of one answer to the step, or why the answer held none."""
    step, put_text = state["step"], context.store.put_text
    role = "generation" if step["attempt"] == 1 else "retry"
    key = CallKey(state["run_id"], step["number"], role, step["attempt"])
    prompt = load_prompt(state, context)
    answer = ask_within_budget(model_of(step, context), prompt, key, state, config, context)
    if context.has_choice and isinstance(answer, NOT_ATTEMPTED):
        return SearchState(step=refused(step, answer, context))
    if isinstance(answer, ModelFailure):
        failed = StepRecord(
            **{
                **step,
                "failure": put_text(answer.reason),
                "is_out_of_money": isinstance(answer, Unaffordable),
                "is_cut_short": isinstance(answer, CutShort),
            }
        )
        return SearchState(step=failed)
    parent = candidate_of(step["parent"], state, context)
    read = read_change(answer_text(answer), parent.program, context.problem.form)
    if isinstance(read, Rejection):
        return SearchState(step={**step, "failure": put_text(read.reason)})
    program = context.store.put_program(read.program)
    return SearchState(step={**step, "program": program, "changes": put_text(read.changes)})
