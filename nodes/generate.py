"""Node: ask the model for a changed program."""

from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableConfig

from costada.models.asking import ModelFailure
from costada.models.replies import answer_text
from costada.nodes.calls.asking import CallKey
from costada.nodes.calls.budget import Unaffordable, ask_within_budget
from costada.nodes.candidates import load_candidate, load_prompt
from costada.nodes.context import RunContext
from costada.nodes.state import SearchState, StepRecord
from costada.nodes.tools.agent import ask_with_tools
from costada.prompts.replies import Rejection, parse_program


def generate(state: SearchState, config: RunnableConfig, *, context: RunContext) -> SearchState:
    """Return the proposed program, or why there is none."""
    ask = GENERATORS[context.settings.generator]
    return ask(state, config, context=context)


def ask_once(state: SearchState, config: RunnableConfig, *, context: RunContext) -> SearchState:
    """Return the program of one answer, or why the answer held none."""
    step = state["step"]
    role = "generation" if step["attempt"] == 1 else "retry"
    key = CallKey(state["run_id"], state["iteration"], role, step["attempt"])
    prompt = load_prompt(step, context)
    answer = ask_within_budget(context.model, prompt, key, state, config, context)
    return SearchState(step=_with_answer(state, answer, context))


def _with_answer(
    state: SearchState, answer: AIMessage | ModelFailure, context: RunContext
) -> StepRecord:
    step, put_text = state["step"], context.store.put_text
    if isinstance(answer, ModelFailure):
        is_out_of_money = isinstance(answer, Unaffordable)
        failure = put_text(answer.reason)
        return {**step, "failure": failure, "is_out_of_money": is_out_of_money}
    parent = load_candidate(step["parent"], state, context)
    read = parse_program(answer_text(answer), parent.code, context.problem.entry_point)
    if isinstance(read, Rejection):
        return {**step, "failure": put_text(read.reason)}
    return {**step, "program": put_text(read.code), "changes": put_text(read.changes)}


GENERATORS = {"model": ask_once, "agent": ask_with_tools}
"""Who proposes a program, by its name in the settings."""
