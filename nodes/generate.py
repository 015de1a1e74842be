"""Node: ask the model, or a command, for a changed program."""

from dataclasses import replace

from langchain_core.runnables import RunnableConfig

from costada.models.asking import ModelFailure
from costada.models.reply_content import answer_text
from costada.nodes.attempts import load_prompt, with_refusal
from costada.nodes.calls.paid_calls import (
    NOT_ATTEMPTED,
    StepCapReached,
    Unaffordable,
    ask_within_budget,
)
from costada.nodes.context import RunContext, SearchRuntime, candidate_of, model_of
from costada.nodes.generator_command import WITH_TOOLS, is_command
from costada.nodes.state import SearchState
from costada.nodes.tools.agent import ask_with_tools
from costada.prompts.changes import read_change
from costada.prompts.whole_texts import Rejection
from costada.store.call_log import CallKey
from costada.values.roles import GENERATION, RETRY


def generate(state: SearchState, runtime: SearchRuntime, config: RunnableConfig) -> SearchState:
    """Add the program that is proposed to the attempt, or why there is none."""
    generator = runtime.context.settings.generator
    if is_command(generator):
        # Not imported at the start, as what commands ask models by is needed by few runs.
        from costada.nodes.tools.command import ask_command

        return ask_command(state, runtime.context)
    propose = ask_with_tools if generator == WITH_TOOLS else ask_once
    return propose(state, config, runtime.context)


def ask_once(state: SearchState, config: RunnableConfig, context: RunContext) -> SearchState:
    """Add the program of one answer to the attempt, or why the answer held none."""
    step, put_text = state["step"], context.store.put_text
    attempt = step.attempt
    role = GENERATION if attempt.number == 1 else RETRY
    key = CallKey(state["run"].id, step.ticket, role, attempt.number)
    prompt = load_prompt(state, context)
    answer = ask_within_budget(model_of(step, context), prompt, key, state, config, context)
    if context.has_choice and isinstance(answer, NOT_ATTEMPTED):
        return {"step": with_refusal(step, answer, context)}
    if isinstance(answer, ModelFailure):
        attempt = replace(
            attempt,
            failure=put_text(answer.reason),
            is_out_of_money=isinstance(answer, Unaffordable),
            is_cut_short=isinstance(answer, StepCapReached),
        )
        return {"step": replace(step, attempt=attempt)}
    parent = candidate_of(attempt.parent, state, context)
    read = read_change(answer_text(answer), parent.program, context.problem.form)
    if isinstance(read, Rejection):
        attempt = replace(attempt, failure=put_text(read.reason))
    else:
        program = context.store.put_program(read.program)
        attempt = replace(attempt, program=program, changes=put_text(read.changes))
    return {"step": replace(step, attempt=attempt)}
