"""The generating model as an agent: within one attempt it may try programs and look around."""

from dataclasses import dataclass, replace
from typing import cast

from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.runnables import RunnableConfig

from costada.models.asking import ModelFailure
from costada.models.replies import answer_text, calls_tools
from costada.models.requests import with_tools
from costada.nodes.calls.asking import CallKey
from costada.nodes.calls.budget import CutShort, Unaffordable, ask_within_budget, left_of_step
from costada.nodes.calls.conversation import Conversation
from costada.nodes.candidates import load_prompt
from costada.nodes.context import ChatModel, RunContext
from costada.nodes.state import SearchState, StepRecord
from costada.nodes.tools.workbench import Workbench
from costada.prompts.render import Prompt
from costada.prompts.tools import TOOLS, Allowance, allowance_text, tools_section
from costada.values.prompt_data import TrialData

FURTHER_ANSWERS = 4
"""Answers of an attempt beyond one for each evaluation: to look around, and to submit."""


@dataclass(frozen=True, slots=True)
class Ending:
    """How an attempt ended.

    Attributes:
        requests: How many requests it made or wanted to make.
        failure: Why the last of them brought no answer, if it brought none.
    """

    requests: int
    failure: ModelFailure | None = None


def ask_with_tools(
    state: SearchState, config: RunnableConfig, *, context: RunContext
) -> SearchState:
    """Return the program that the model handed in, or the best that it tried.

    The attempt ends when the model submits or calls no tool, when it has had its answers, when its
    step has cost its cap or the budget is used up, or when an answer fails to come. Every answer is
    a call of its own in the journal, and every trial is stored, so an attempt that is executed
    again goes on from where it was.
    """
    bench = Workbench(state, context)
    ending = _worked(bench, config)
    return SearchState(step=_with_result(bench, ending))


def _worked(bench: Workbench, config: RunnableConfig) -> Ending:
    """Let the model work at the bench until the attempt ends."""
    state, context = bench.state, bench.context
    model = cast(ChatModel, with_tools(context.model, TOOLS))
    limit = context.settings.tool_evaluations + FURTHER_ANSWERS
    conversation = Conversation(_prompt(bench, limit))
    for number in range(1, limit + 1):
        key = _key(state, number)
        cap = context.settings.step_cap
        answer = ask_within_budget(
            model, conversation, key, state, config, context, step_cap=cap, is_further=number > 1
        )
        if isinstance(answer, ModelFailure):
            return Ending(number, answer)
        if not calls_tools(answer):
            bench.hand_in(answer_text(answer))
            return Ending(number)
        told = _told(bench, answer, limit - number)
        if bench.submitted is not None:
            return Ending(number)
        conversation = conversation.followed_by([answer, *told])
    return Ending(limit)


def _prompt(bench: Workbench, limit: int) -> Prompt:
    prompt = load_prompt(bench.state["step"], bench.context)
    section = tools_section(Allowance(limit, bench.evaluations_left))
    return replace(prompt, user=f"{prompt.user}\n{section}")


def _key(state: SearchState, number: int) -> CallKey:
    """Return the key of an attempt's request; the requests of a step count on."""
    step = state["step"]
    role = "generation" if step["attempt"] == 1 else "retry"
    return CallKey(state["run_id"], state["iteration"], role, step["requests"] + number)


def _told(bench: Workbench, answer: AIMessage, answers_left: int) -> list[ToolMessage]:
    """Return what the tools answer, up to the one that hands in a result."""
    told = []
    for call in answer.tool_calls:
        if bench.submitted is None:
            num_trials = len(bench.trials)
            said = bench.use(call["name"], call["args"])
            trial = next((TrialData(row.id, row.score) for row in bench.trials[num_trials:]), None)
            data = trial.kwargs if trial else {}
            told.append(
                ToolMessage(
                    said,
                    tool_call_id=call["id"] or "",
                    name=call["name"],
                    additional_kwargs=data,
                )
            )
    for wrong in answer.invalid_tool_calls:
        said = "The arguments of this call are no JSON object."
        told.append(ToolMessage(said, tool_call_id=wrong["id"] or "", name=wrong["name"] or ""))
    left = allowance_text(Allowance(answers_left, bench.evaluations_left))
    told[-1].content = f"{told[-1].text}\n{left}"
    return told


def _with_result(bench: Workbench, ending: Ending) -> StepRecord:
    """Return the step with the attempt's program, or with the reason why there is none."""
    state, context = bench.state, bench.context
    step, put_text, result = state["step"], context.store.put_text, bench.result()
    requests = step["requests"] + ending.requests
    failure = "" if result else _reason(bench, ending)
    return {
        **step,
        "program": put_text(result.code) if result else "",
        "changes": put_text(result.changes) if result else "",
        "failure": put_text(failure),
        "requests": requests,
        "is_cut_short": _is_cut_short(bench, ending),
        "is_out_of_money": ending.requests == 1 and isinstance(ending.failure, Unaffordable),
    }


def _reason(bench: Workbench, ending: Ending) -> str:
    if ending.failure is not None:
        return ending.failure.reason
    return bench.refusal or f"No program was submitted in {ending.requests} answers."


def _is_cut_short(bench: Workbench, ending: Ending) -> bool:
    """Return whether the step must not cost more."""
    key = _key(bench.state, ending.requests)
    left = left_of_step(key, bench.context.settings.step_cap, bench.context)
    return isinstance(ending.failure, CutShort) or (left is not None and left <= 0)
