"""Node: score the proposed program."""

from dataclasses import dataclass, replace

from costada.nodes.candidates import candidate_row, evaluation_of
from costada.nodes.context import RunContext
from costada.nodes.state import SearchState
from costada.store.rows import CandidateRow
from costada.values.evaluation import EVALUATOR_FAULT, Evaluation


@dataclass(frozen=True, slots=True)
class Proposed:
    """A program of the attempt under way that wants a verdict.

    Attributes:
        id: The candidate's id, the same whenever the attempt is executed again.
        code: Its program.
        changes: What was changed in the program it was made from.
        is_trial: Whether the model only tries it.
    """

    id: str
    code: str
    changes: str
    is_trial: bool = False


def judged(proposed: Proposed, state: SearchState, context: RunContext) -> CandidateRow:
    """Return the candidate that a program becomes, judged and stored.

    A program that the run has judged before keeps its verdict. So does one whose verdict was
    stored under its id by a process that died before the attempt went on.

    Raises:
        InterruptedError: If the evaluation was asked to stop.
        ValueError: If the evaluator fails even on the incumbent.
    """
    stored = _stored(proposed, state, context)
    if stored is not None:
        return stored
    known = _known_verdict(proposed, state, context)
    row = _candidate(proposed, known or _verdict(proposed.code, state, context), state, context)
    row = replace(row, is_cached=known is not None, is_trial=proposed.is_trial)
    context.store.candidates.put(state["run_id"], row)
    return row


def _stored(proposed: Proposed, state: SearchState, context: RunContext) -> CandidateRow | None:
    """Return the candidate of this very attempt, when it is executed again.

    What the model was told of it stays so, also a verdict that nobody else may use; a verdict of
    another evaluator does not count, unless it was told already.
    """
    row = context.store.candidates.find(state["run_id"], proposed.id)
    if row is None or row.code != proposed.code:
        return None
    is_ours = row.evaluator in ("", context.problem.fingerprint)
    return row if proposed.is_trial or is_ours else None


def _known_verdict(
    proposed: Proposed, state: SearchState, context: RunContext
) -> Evaluation | None:
    before = context.store.candidates.judged(
        state["run_id"],
        context.store.put_text(proposed.code),
        context.problem.fingerprint,
        state["iteration"],
        state["step"]["attempt"],
    )
    return evaluation_of(before) if before else None


def _verdict(code: str, state: SearchState, context: RunContext) -> Evaluation:
    evaluation = context.problem.judge(code, state["holdout_key"])
    if EVALUATOR_FAULT in evaluation.artifacts:
        _check_evaluator(state, context)
    return evaluation


def _check_evaluator(state: SearchState, context: RunContext) -> None:
    """Raise `ValueError` when the evaluator cannot even judge the incumbent any more."""
    incumbent = context.store.candidates.get(state["run_id"], state["best"])
    again = context.problem.judge(incumbent.code, state["holdout_key"])
    if EVALUATOR_FAULT in again.artifacts:
        raise ValueError(
            f"evaluator of {context.problem.name!r}: fails on the best program, which it had"
            f" judged before; expected a verdict ({again.error})"
        )


def _candidate(
    proposed: Proposed, evaluation: Evaluation, state: SearchState, context: RunContext
) -> CandidateRow:
    step = state["step"]
    parent = context.store.candidates.get(state["run_id"], step["parent"])
    return candidate_row(
        proposed.id,
        state["iteration"],
        proposed.code,
        evaluation,
        context.problem.fingerprint,
        parent_id=parent.id,
        generation=parent.generation + 1,
        changes=proposed.changes,
        inspirations=step["inspirations"],
        label=step["label"],
    )


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
