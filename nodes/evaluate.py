"""Node: score the proposed program."""

from costada.graph.state import SearchState
from costada.nodes.context import RunContext
from costada.nodes.verdicts import Proposed, judged


def evaluate(state: SearchState, *, context: RunContext) -> SearchState:
    """Return the score of the attempt's program (f_t), or why it failed.

    A program that the run has judged before keeps its verdict and is not run again, and neither
    is one whose verdict was stored by a process that died before the step went on.

    Raises:
        InterruptedError: If the evaluation was asked to stop; the step then goes on from here.
        ValueError: If the evaluator fails even on the incumbent.
    """
    step = state["step"]
    if not step["program"]:
        return SearchState()
    text = context.store.text
    proposed = Proposed(
        id=f"{state['iteration']}.{step['attempt']}",
        code=text(step["program"]),
        changes=text(step["changes"]),
    )
    row = judged(proposed, state, context)
    return SearchState(
        step={
            **step,
            "candidate": row.id,
            "score": row.score,
            "objective": row.objective,
            "failure": context.store.put_text(row.error or ""),
        }
    )
