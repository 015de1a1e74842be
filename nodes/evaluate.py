"""Node: score the proposed program."""

from costada.graph.state import SearchState
from costada.nodes.context import RunContext
from costada.nodes.programs import candidate_row


def evaluate(state: SearchState, *, context: RunContext) -> SearchState:
    """Return the score of the attempt's program (f_t), or why it failed."""
    step, store = state["step"], context.store
    if not step["program"]:
        return SearchState()
    code = store.text(step["program"])
    evaluation = context.problem.evaluate(code)
    parent = store.candidates.get(state["run_id"], step["parent"])
    row = candidate_row(
        f"{state['iteration']}.{step['attempt']}",
        state["iteration"],
        code,
        evaluation,
        parent_id=parent.id,
        generation=parent.generation + 1,
        changes=store.text(step["changes"]),
    )
    store.candidates.put(state["run_id"], row)
    return SearchState(
        step={
            **step,
            "candidate": row.id,
            "score": evaluation.score,
            "objective": evaluation.objective,
            "failure": store.put_text(evaluation.error or ""),
        }
    )
