"""What a user put into the run, as part of the step that took it."""

from dataclasses import replace

from costada.nodes.context import Node, RunContext, SearchRuntime
from costada.nodes.state import Attempt, SearchState, SteeredBy, Step
from costada.prompts.changes import invalid_program_reason
from costada.prompts.tactics import Tactic
from costada.store.user_inputs import InputKind

SUBMITTED = "submitted by a user"
"""Summary of the changes of a program that a user submitted."""


def with_input(state: SearchState, context: RunContext) -> SearchState:
    """The state whose step has the input that it is to carry out, if there is one.

    A step takes its input when its first attempt is prepared; all its attempts carry it out.
    """
    step = state["step"]
    if step.attempt.number or step.steered:
        return state
    taken = context.store.inputs.take(state["run"].id, step.ticket)
    if taken is None:
        return state
    text = taken.text
    if taken.kind is InputKind.TACTIC:
        text = context.store.put_text(text)
    steered = SteeredBy(number=taken.number, kind=taken.kind.value, text=text)
    return {**state, "step": replace(step, steered=steered)}


def steered(build_context: Node) -> Node:
    """Let a step take the input of a user before a node writes the prompt of its first attempt.

    User-submitted programs skip prompting.
    """

    def take_input_and_build(state: SearchState, runtime: SearchRuntime) -> SearchState:
        state = with_input(state, runtime.context)
        if is_submission(state["step"]):
            return {"step": submitted(state, runtime.context)}
        return {"step": state["step"], **build_context(state, runtime)}

    return take_input_and_build


def is_submission(step: Step) -> bool:
    """Whether the step evaluates a program of a user, and asks no model for one."""
    return step.steered is not None and step.steered.kind == InputKind.PROGRAM


def idea_of(step: Step, context: RunContext) -> str | None:
    """The idea of a user that the step carries out, `None` without one."""
    if step.steered is None or is_submission(step):
        return None
    return context.store.text(step.steered.text)


def user_tactic(idea: str) -> Tactic:
    """An idea of a user as a tactic."""
    return Tactic(
        idea=idea, description="The user leaves the details to you.", approach_type="user"
    )


def submitted(state: SearchState, context: RunContext) -> Step:
    """The step with the program of a user as its only attempt, which costs nothing.

    Its parent is the incumbent, which the page compares it with. A program that the problem does
    not allow is a failed attempt.
    """
    step, store, problem = state["step"], context.store, context.problem
    name = step.steered.text if step.steered else ""
    program, start = store.program(name), problem.start
    fault = None
    if program.is_one_text != start.is_one_text:
        expected = "one text" if start.is_one_text else "several files"
        fault = f"The submitted program is not {expected}, as programs of this problem are."
    elif not program.is_one_text:
        fault = invalid_program_reason(dict(program), start, problem.form)
    attempt = Attempt(
        number=1,
        parent=state["best"],
        program="" if fault else name,
        changes=store.put_text(SUBMITTED),
        failure=store.put_text(fault or ""),
    )
    return replace(step, attempt=attempt)
