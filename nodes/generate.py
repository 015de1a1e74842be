"""Node: ask the model for a changed program."""

from langchain_core.runnables import RunnableConfig

from costada.models.asking import ModelFailure
from costada.models.replies import answer_text
from costada.nodes.build_context import load_prompt
from costada.nodes.calls.asking import Unaffordable, ask_within_budget
from costada.nodes.context import RunContext, candidate_of
from costada.nodes.state import SearchState
from costada.nodes.tools.agent import ask_with_tools
from costada.nodes.tools.workbench import archived_candidates
from costada.prompts.replies import Rejection, parse_program
from costada.store.call_log import CallKey


def generate(state: SearchState, config: RunnableConfig, *, context: RunContext) -> SearchState:
    """Add the proposed program to the step, or why there is none."""
    if context.settings.generator == "agent":
        return ask_with_tools(state, config, archived_candidates, context=context)
    return ask_once(state, config, context=context)


def ask_once(state: SearchState, config: RunnableConfig, *, context: RunContext) -> SearchState:
    """Add the program of one answer to the step, or why the answer held none."""
    step, put_text = state["step"], context.store.put_text
    role = "generation" if step["attempt"] == 1 else "retry"
    key = CallKey(state["run_id"], state["iteration"], role, step["attempt"])
    prompt = load_prompt(state, context)
    answer = ask_within_budget(context.model, prompt, key, state, config, context)
    if isinstance(answer, ModelFailure):
        is_out_of_money = isinstance(answer, Unaffordable)
        failure = put_text(answer.reason)
        return SearchState(step={**step, "failure": failure, "is_out_of_money": is_out_of_money})
    parent = candidate_of(step["parent"], state, context)
    read = parse_program(answer_text(answer), parent.program.text, context.problem.entry_point)
    if isinstance(read, Rejection):
        return SearchState(step={**step, "failure": put_text(read.reason)})
    program, changes = put_text(read.code), put_text(read.changes)
    return SearchState(step={**step, "program": program, "changes": changes})
