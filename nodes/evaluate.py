"""Node: score the proposed program."""

from costada.evaluators.contract import EVALUATOR_FAULT
from costada.graph.state import SearchState
from costada.nodes.candidates import candidate_row
from costada.nodes.context import RunContext
from costada.store.rows import CandidateRow


def evaluate(state: SearchState, *, context: RunContext) -> SearchState:
    """Return the score of the attempt's program (f_t), or why it failed."""
    step, store = state["step"], context.store
    if not step["program"]:
        return SearchState()
    row = _judged(state, context)
    store.candidates.put(state["run_id"], row)
    return SearchState(
        step={
            **step,
            "candidate": row.id,
            "score": row.score,
            "objective": row.objective,
            "failure": store.put_text(row.error or ""),
        }
    )


def _judged(state: SearchState, context: RunContext) -> CandidateRow:
    step, candidates = state["step"], context.store.candidates
    code = context.store.text(step["program"])
    evaluation = context.problem.evaluate(code)
    if EVALUATOR_FAULT in evaluation.artifacts:
        _check_evaluator(candidates.get(state["run_id"], state["best"]).code, context)
    parent = candidates.get(state["run_id"], step["parent"])
    return candidate_row(
        f"{state['iteration']}.{step['attempt']}",
        state["iteration"],
        code,
        evaluation,
        parent_id=parent.id,
        generation=parent.generation + 1,
        changes=context.store.text(step["changes"]),
    )


def _check_evaluator(incumbent_code: str, context: RunContext) -> None:
    """Raise `ValueError` when the evaluator cannot even judge the incumbent any more."""
    again = context.problem.evaluate(incumbent_code)
    if EVALUATOR_FAULT in again.artifacts:
        raise ValueError(
            f"evaluator of {context.problem.name!r}: fails on the best program, which it had"
            f" judged before; expected a verdict ({again.error})"
        )
