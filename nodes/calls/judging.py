"""The verdict on a proposed program, which no program of a run gets twice."""

from dataclasses import replace

from costada.nodes.context import RunContext, candidate_of, seen_by
from costada.nodes.state import SearchState
from costada.values.candidate import Candidate, Program
from costada.values.evaluation import EVALUATOR_FAULT, Evaluation


def score_attempt(state: SearchState, context: RunContext) -> SearchState:
    """Add the score of the attempt's program to the step (f_t), or why it failed.

    Raises:
        InterruptedError: The evaluation was asked to stop; the step resumes here.
        ValueError: The evaluator fails even on the incumbent.
    """
    step, store = state["step"], context.store
    if not step["program"]:
        return SearchState()
    name = f"{step['number']}.{step['attempt']}"
    program, changes = store.program(step["program"]), store.text(step["changes"])
    candidate = judge(name, program, changes, state, context)
    return SearchState(
        step={
            **step,
            "candidate": candidate.id,
            "score": candidate.score,
            "objective": candidate.objective,
            "failure": store.put_text(candidate.error or ""),
        }
    )


def judge(
    name: str,
    program: Program,
    changes: str,
    state: SearchState,
    context: RunContext,
    *,
    is_trial: bool = False,
) -> Candidate:
    """Judge and store a program of the current attempt.

    A program that the run has judged before keeps its verdict. So does one whose verdict was stored
    under the same id by a process that died before the attempt ended. `name` is that id; a trial
    is a program that the model only evaluates with a tool. Raises as `evaluate` does.
    """
    table, run_id = context.store.candidates, state["run_id"]
    step = state["step"]
    evaluator = context.problem.fingerprint
    stored = table.find(run_id, name)
    # The verdict of another evaluator counts only where the model has been shown it.
    is_usable = stored is not None and (is_trial or stored.evaluator in ("", evaluator))
    if stored is not None and is_usable and stored.program == program:
        return stored
    known = table.judged(
        run_id, program, evaluator, step["number"], step["attempt"], seen_by(state)
    )
    parent = candidate_of(step["parent"], state, context)
    judged = known or Candidate.judged(name, program, _verdict(program, state, context), evaluator)
    candidate = replace(
        judged,
        id=name,
        iteration=step["number"],
        parent_id=parent.id,
        generation=parent.generation + 1,
        changes=changes,
        is_copy=False,
        is_cached=known is not None,
        inspirations=tuple(step["inspirations"]),
        label=step["label"],
        is_trial=is_trial,
    )
    table.put(run_id, candidate)
    return candidate


def _verdict(program: Program, state: SearchState, context: RunContext) -> Evaluation:
    """Judge a program; an evaluator that fails on it must still judge the incumbent."""
    problem, key = context.problem, state["holdout_key"]
    best = candidate_of(state["best"], state, context)
    evaluation = problem.judge(program, key, best.score)
    if EVALUATOR_FAULT in evaluation.artifacts:
        again = problem.judge(best.program, key)
        if EVALUATOR_FAULT in again.artifacts:
            raise ValueError(
                f"evaluator of {problem.name!r}: fails on the best program, which it had judged"
                f" before; expected a verdict ({again.error})"
            )
    return evaluation
