"""The generating model as an agent: within one attempt it may try programs and look around."""

import json
from dataclasses import dataclass, replace
from typing import cast

from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.runnables import RunnableConfig

from costada.models.asking import ModelFailure, RequestNotSent, with_tools
from costada.models.reply_content import answer_text, calls_tools
from costada.nodes.attempts import load_prompt, with_refusal
from costada.nodes.calls.budget import left_of_step
from costada.nodes.calls.paid_calls import (
    NOT_ATTEMPTED,
    Conversation,
    ModelUnavailable,
    StepCapReached,
    Unaffordable,
    ask_within_budget,
)
from costada.nodes.context import ChatModel, RunContext, model_of
from costada.nodes.state import SearchState, Step
from costada.nodes.tools.session import ToolSession, archived_candidates
from costada.prompts.requests import TrialData
from costada.prompts.tools import allowance_text, with_section
from costada.store.call_log import CallKey
from costada.store.rows import Outcome, OutcomeKind
from costada.values.roles import GENERATION, RETRY, TOOL

FURTHER_ANSWERS = 4
"""Answers of an attempt beyond one for each evaluation: to look around, and to submit."""

ANSWERS_IN_REPOSITORY = 16
"""The same where there are files to look at, and tests to run."""


@dataclass(frozen=True, slots=True)
class Ending:
    """How an attempt ended.

    Attributes:
        requests: How many requests it made or wanted to make.
        failure: Why the last of them brought no answer, if it brought none.
    """

    requests: int
    failure: ModelFailure | None = None


def ask_with_tools(state: SearchState, config: RunnableConfig, context: RunContext) -> SearchState:
    """Add the submitted program to the step, or else the best one that the model evaluated.

    The attempt ends when the model submits or calls no tool, when it has had its answers, when its
    step has cost its cap or the budget is used up, or when an answer fails to come. Every answer is
    a call of its own in the journal, and every trial is stored, so an attempt that is executed
    again continues from where it was.
    """
    session = ToolSession(state, context, archived_candidates(state, context))
    return {"step": _with_result(session, _work(session, config))}


def _work(session: ToolSession, config: RunnableConfig) -> Ending:
    """Let the model call tools until the attempt ends."""
    state, context = session.state, session.context
    asked = model_of(state["step"], context)
    asked = replace(asked, model=cast(ChatModel, with_tools(asked.model, session.tools)))
    further = ANSWERS_IN_REPOSITORY if session.repository else FURTHER_ANSWERS
    limit = context.settings.tool_evaluations + further
    prompt = load_prompt(state, context)
    section = session.section(limit)
    conversation = Conversation(with_section(prompt, section, context.settings.prompt_order))
    for number in range(1, limit + 1):
        answer = ask_within_budget(
            asked,
            conversation,
            _key(state, number),
            state,
            config,
            context,
            step_cap=context.settings.step_cap,
            is_further=number > 1,
        )
        if isinstance(answer, ModelFailure):
            return Ending(number, answer)
        if not calls_tools(answer):
            session.submit(answer_text(answer))
            return Ending(number)
        try:
            results = _tool_messages(session, answer, _key(state, number), limit - number)
        except RequestNotSent as error:
            # Not an answer of the tool: a run that continues with more money gives another one.
            return Ending(number, StepCapReached(str(error)))
        if session.submitted is not None:
            return Ending(number)
        conversation = conversation.followed_by([answer, *results])
    return Ending(limit)


def _key(state: SearchState, number: int) -> CallKey:
    """Key of an attempt's request; the requests of a step are counted together."""
    step = state["step"]
    role = GENERATION if step.attempt.number == 1 else RETRY
    return CallKey(state["run"].id, step.ticket, role, step.requests + number)


def _tool_messages(
    session: ToolSession, answer: AIMessage, key: CallKey, answers_left: int
) -> list[ToolMessage]:
    """Execute the tool calls of an answer, up to the one that submits a result.

    What tools find in a repository is stored before the next request, which contains it, is sent:
    a test may print another time when it runs again.
    """
    call_log, key = session.context.store.call_log, key._replace(role=TOOL)
    stored = call_log.outcome(key)
    session.known, session.found = json.loads(stored.text) if stored else [], []
    messages = []
    for call in answer.tool_calls:
        if session.submitted is None:
            num_trials = len(session.trials)
            text = session.use(call["name"], call["args"])
            message = ToolMessage(text, tool_call_id=call["id"] or "", name=call["name"])
            for trial in session.trials[num_trials:]:
                message.additional_kwargs = TrialData(trial.id, trial.score).kwargs
            messages.append(message)
    if session.found and stored is None:
        call_log.put_outcome(key, Outcome("", json.dumps(session.found), OutcomeKind.ANSWER))
    # Providers refuse a conversation in which a tool call has no answer, also where the arguments
    # could not be read.
    for wrong in answer.invalid_tool_calls:
        text = "The arguments of this call are not a JSON object."
        call_id, name = wrong["id"] or "", wrong["name"] or ""
        messages.append(ToolMessage(text, tool_call_id=call_id, name=name))
    left = allowance_text(answers_left, session.evaluations_left)
    messages[-1].content = f"{messages[-1].text}\n{left}"
    return messages


def _with_result(session: ToolSession, ending: Ending) -> Step:
    """The step with the attempt's program, or why there is none."""
    state, context, result = session.state, session.context, session.result()
    step, put_text, failure = state["step"], context.store.put_text, ""
    if result is None:
        unsubmitted = f"No program was submitted in {ending.requests} answers."
        failure = ending.failure.reason if ending.failure else session.refusal or unsubmitted
    if context.has_choice and ending.requests == 1 and isinstance(ending.failure, NOT_ATTEMPTED):
        return with_refusal(step, ending.failure, context)
    is_unavailable = isinstance(ending.failure, ModelUnavailable)
    refusal = ending.failure.reason if ending.failure and is_unavailable else ""
    left = left_of_step(_key(state, ending.requests), context.settings.step_cap, context)
    is_over_cap = left is not None and left <= 0
    attempt = replace(
        step.attempt,
        program=context.store.put_program(result.program) if result else "",
        changes=put_text(result.changes) if result else "",
        failure=put_text(failure),
        refusal=put_text(refusal),
        is_cut_short=isinstance(ending.failure, StepCapReached) or is_over_cap,
        is_out_of_money=ending.requests == 1 and isinstance(ending.failure, Unaffordable),
    )
    return replace(step, attempt=attempt, requests=step.requests + ending.requests)
