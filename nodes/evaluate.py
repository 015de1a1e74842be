"""Node: score the proposed program. One that the run has evaluated before keeps its result."""

from dataclasses import replace
from functools import partial
from math import inf

from costada.models.asking import RequestNotSent
from costada.nodes.calls.allowance import allowance_of_evaluation
from costada.nodes.calls.compute import evaluate_for_money
from costada.nodes.calls.paid_evaluations import evaluate_when_up, measure
from costada.nodes.context import RunContext, SearchRuntime, candidate_of, unjudged_of
from costada.nodes.state import SearchState
from costada.store.user_inputs import InputKind
from costada.values.candidate import Candidate, Program
from costada.values.evaluation import (
    EVALUATOR_FAULT,
    EVALUATOR_OUTAGE,
    GENERATOR_LOG,
    ON_VALIDATION,
    Evaluation,
)
from costada.values.example_score import scores_by_place
from costada.values.numbering import TicketNumber


def evaluate(state: SearchState, runtime: SearchRuntime) -> SearchState:
    """Add the score of the attempt's program to the attempt (f_t), or why it failed.

    A program whose evaluation a hard budget cannot pay for stays stored, without a score.

    Raises:
        InterruptedError: The evaluation was asked to stop; the step resumes here.
        ValueError: The evaluator fails even on the incumbent.
    """
    context, step = runtime.context, state["step"]
    attempt, store = step.attempt, context.store
    if not attempt.program:
        return {}
    program, changes = store.program(attempt.program), store.text(attempt.changes)
    try:
        candidate = evaluate_program(step.candidate_name, program, changes, state, context)
    except RequestNotSent as error:
        failure = store.put_text(f"not evaluated: {error}")
        return {
            "step": replace(step, attempt=replace(attempt, failure=failure, is_out_of_money=True))
        }
    scored = replace(
        attempt,
        candidate=candidate.id,
        score=candidate.score,
        objective=candidate.objective,
        failure=store.put_text(candidate.error or ""),
    )
    return {"step": replace(step, attempt=scored)}


def evaluate_program(
    name: str,
    program: Program,
    changes: str,
    state: SearchState,
    context: RunContext,
    *,
    is_trial: bool = False,
) -> Candidate:
    """Evaluate and store a program of the current attempt.

    A program that the run has evaluated before keeps its evaluation. So does one whose evaluation
    was stored under the same id by a process that died before the attempt ended. `name` is that id;
    a trial is a program that the model only evaluates with a tool.

    Raises:
        InterruptedError: The evaluation was asked to stop.
        RequestNotSent: A hard budget cannot pay for the evaluation.
        ValueError: The evaluator fails even on the incumbent.
    """
    table, run_id = context.store.candidates, state["run"].id
    step, attempt = state["step"], state["step"].attempt
    evaluator = context.problem.fingerprint
    stored = table.find(run_id, name)
    # The score of another evaluator counts only where the model has been shown it.
    is_usable = stored is not None and (is_trial or stored.evaluator in ("", evaluator))
    if stored is not None and is_usable and stored.program == program:
        return stored
    known = table.find_evaluated(
        run_id, program, evaluator, step.ticket, attempt.number, state["flight"].seen
    )
    parent = candidate_of(attempt.parent, state, context)
    is_cached = known is not None
    if known is None:
        rival = rival_scores(parent, state, context)
        evaluation = _evaluate(name, program, rival, state, context)
        known = Candidate.from_evaluation(name, program, evaluation, evaluator)
    # An earlier candidate with the same program may have the log of its own generator.
    artifacts = {each: text for each, text in known.artifacts.items() if each != GENERATOR_LOG}
    if attempt.log:
        artifacts[GENERATOR_LOG] = context.store.text(attempt.log)
    candidate = replace(
        known,
        id=name,
        artifacts=artifacts,
        ticket=step.ticket,
        parent_id=parent.id,
        generation=parent.generation + 1,
        changes=changes,
        migrated_in=None,
        is_cached=is_cached,
        inspirations=attempt.inspirations,
        label=attempt.label,
        is_trial=is_trial,
    )
    # Stored before the attempt ends: a process that dies here has its evaluation, and the one that
    # resumes the step finds it above under its name.
    table.put(run_id, candidate)
    return candidate


def rival_scores(parent: Candidate, state: SearchState, context: RunContext) -> tuple[float, ...]:
    """Scores on all examples of what a child races: its parent, or the nearest judged ancestor.

    A parent that was itself rejected early has no score on some examples. Without a data set, or
    where even the initial program failed, there is no rival.
    """
    num_examples = len(context.problem.examples)
    while len(parent.examples) < num_examples and parent.parent_id is not None:
        parent = candidate_of(parent.parent_id, state, context)
    return scores_by_place(parent.examples) if len(parent.examples) == num_examples else ()


def _evaluate(
    name: str, program: Program, rival: tuple[float, ...], state: SearchState, context: RunContext
) -> Evaluation:
    """Evaluate a program; an evaluator that fails on it must still evaluate the incumbent."""
    problem = context.problem
    best = candidate_of(state["best"], state, context)
    allowance, of_best = (allowance_of_evaluation(state, context) for _ in range(2))
    # One that an earlier step began goes on under its name there, and repeats no request.
    waiting = unjudged_of(state["step"], context)
    work, begun = (waiting.name, waiting.calls) if waiting else (name, ())

    def evaluate_best(failed: Evaluation) -> Evaluation:
        # on the validation examples, too, where the evaluator failed on one
        beaten = -inf if ON_VALIDATION in failed.artifacts else None
        # as in the steps that judged it: what its models answered then answers again, and what they
        # answered to the steps that began this evaluation
        work_of_best, judged = _work_of(best, state, context)
        again = partial(measure, work_of_best, best.program, state, context, of_best, beaten)
        return evaluate_for_money(partial(again, earlier=(*judged, *begun)), state, context)

    def is_available(failed: Evaluation) -> bool:
        if not context.granted:
            return EVALUATOR_OUTAGE not in evaluate_best(failed).artifacts
        # Answers to the incumbent's questions are known and would tell nothing of the provider.
        from costada.nodes.calls.evaluation_calls import are_available

        return are_available(name, state, context)

    measure_once = partial(measure, work, program, state, context, allowance, best.score, rival)
    evaluate_once = partial(
        evaluate_for_money, partial(measure_once, earlier=begun), state, context
    )
    evaluation = evaluate_when_up(evaluate_once, is_available, allowance, state, context)
    # A program can make its own evaluator fail. Only a failure on the best one, which the evaluator
    # could score before, shows that the evaluator is at fault.
    if EVALUATOR_FAULT in evaluation.artifacts and not best.program.is_empty:
        evaluate_again = partial(evaluate_best, evaluation)
        again = evaluate_when_up(evaluate_again, is_available, of_best, state, context)
        if EVALUATOR_FAULT in again.artifacts:
            raise ValueError(
                f"evaluator of {problem.name!r}: fails on the best program, which it had evaluated"
                f" before ({again.artifacts[EVALUATOR_FAULT]})"
            )
    return evaluation


def _work_of(
    candidate: Candidate, state: SearchState, context: RunContext
) -> tuple[str, tuple[tuple[TicketNumber, int], ...]]:
    """The name under which a candidate was evaluated, and the calls that judged it."""
    taken = context.store.inputs.taken(state["run"].id, candidate.ticket)
    own = (candidate.ticket, 1)
    begun = None
    if taken is not None and taken.kind == InputKind.UNJUDGED:
        begun = context.store.inputs.unjudged(taken.text)
    return (begun.name, (*begun.calls, own)) if begun else (candidate.id, (own,))
