"""Node: score the proposed program."""

from dataclasses import replace

from costada.nodes.candidate_evaluation import evaluate_program
from costada.nodes.context import SearchRuntime
from costada.nodes.state import SearchState


def evaluate(state: SearchState, runtime: SearchRuntime) -> SearchState:
    """Add the score of the attempt's program to the attempt (f_t), or why it failed.

    Raises:
        InterruptedError: The evaluation was asked to stop; the step resumes here.
        ValueError: The evaluator fails even on the incumbent.
    """
    context, step = runtime.context, state["step"]
    attempt, store = step.attempt, context.store
    if not attempt.program:
        return {}
    name = f"{step.ticket}.{attempt.number}"
    program, changes = store.program(attempt.program), store.text(attempt.changes)
    candidate = evaluate_program(name, program, changes, state, context)
    scored = replace(
        attempt,
        candidate=candidate.id,
        score=candidate.score,
        objective=candidate.objective,
        failure=store.put_text(candidate.error or ""),
    )
    return {"step": replace(step, attempt=scored)}
