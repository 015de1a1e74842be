"""Node: score the proposed program."""

from dataclasses import replace

from costada.evaluators.contract import EVALUATOR_FAULT, Evaluation
from costada.graph.state import SearchState
from costada.nodes.candidates import candidate_row, evaluation_of
from costada.nodes.context import RunContext
from costada.store.rows import CandidateRow


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
    row = _stored(state, context) or _judged(state, context)
    return SearchState(
        step={
            **step,
            "candidate": row.id,
            "score": row.score,
            "objective": row.objective,
            "failure": context.store.put_text(row.error or ""),
        }
    )


def _stored(state: SearchState, context: RunContext) -> CandidateRow | None:
    """Return the candidate of this very attempt, when the step is executed again."""
    row = context.store.candidates.find(state["run_id"], _candidate_id(state))
    if row is None or row.code != context.store.text(state["step"]["program"]):
        return None
    return row if row.evaluator == context.problem.fingerprint else None


def _judged(state: SearchState, context: RunContext) -> CandidateRow:
    """Return the candidate of the attempt, judged and stored."""
    known = _known_verdict(state, context)
    row = _candidate(state, known or _verdict(state, context), context)
    row = replace(row, is_cached=known is not None)
    context.store.candidates.put(state["run_id"], row)
    return row


def _candidate_id(state: SearchState) -> str:
    return f"{state['iteration']}.{state['step']['attempt']}"


def _known_verdict(state: SearchState, context: RunContext) -> Evaluation | None:
    before = context.store.candidates.judged(
        state["run_id"],
        state["step"]["program"],
        context.problem.fingerprint,
        state["iteration"],
        state["step"]["attempt"],
    )
    return evaluation_of(before) if before else None


def _verdict(state: SearchState, context: RunContext) -> Evaluation:
    evaluation = context.problem.evaluate(context.store.text(state["step"]["program"]))
    if EVALUATOR_FAULT in evaluation.artifacts:
        _check_evaluator(state, context)
    return evaluation


def _check_evaluator(state: SearchState, context: RunContext) -> None:
    """Raise `ValueError` when the evaluator cannot even judge the incumbent any more."""
    incumbent = context.store.candidates.get(state["run_id"], state["best"])
    again = context.problem.evaluate(incumbent.code)
    if EVALUATOR_FAULT in again.artifacts:
        raise ValueError(
            f"evaluator of {context.problem.name!r}: fails on the best program, which it had"
            f" judged before; expected a verdict ({again.error})"
        )


def _candidate(state: SearchState, evaluation: Evaluation, context: RunContext) -> CandidateRow:
    step, store = state["step"], context.store
    parent = store.candidates.get(state["run_id"], step["parent"])
    return candidate_row(
        _candidate_id(state),
        state["iteration"],
        store.text(step["program"]),
        evaluation,
        context.problem.fingerprint,
        parent_id=parent.id,
        generation=parent.generation + 1,
        changes=store.text(step["changes"]),
        inspirations=step["inspirations"],
        label=step["label"],
    )
