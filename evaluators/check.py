"""Whether a problem works, before money is spent on it."""

from costada.evaluators.problem import Problem
from costada.values.evaluation import FAULTS, REJECTED_AT, Evaluation


def check_problem(problem: Problem) -> Evaluation:
    """Return the evaluation of the initial program, after making sure the evaluator works.

    One that is known already, as `problem.seed_evaluation`, is checked alike. A valid initial
    program may score 0. A rejected one passes only where the problem says that the start may be
    invalid: any other rejection may be a mistake of the evaluator, which would reject all that is
    paid for. An initial program that brings the evaluator to no verdict, because it crashes, takes
    too long or has no finite score, never passes.

    Raises:
        ValueError: If the evaluator, the sandbox or the initial program itself fails, the score is
            not finite, or the initial program is rejected.
    """
    evaluation = problem.seed_evaluation or problem.evaluate(problem.initial_program)
    if not isinstance(evaluation, Evaluation):
        raise ValueError(
            f"problem {problem.name!r}: evaluate returned {type(evaluation).__name__}; "
            "expected an Evaluation"
        )
    for mark in FAULTS:
        if mark in evaluation.artifacts:
            fault = evaluation.artifacts[mark]
            raise ValueError(f"problem {problem.name!r}, initial program: {fault}")
    if not (evaluation.is_valid or problem.allow_invalid_start):
        reason = evaluation.artifacts.get(REJECTED_AT) or evaluation.error
        raise ValueError(
            f"problem {problem.name!r}: the evaluator rejects the initial program: {reason};"
            " expected a valid one. If the start is meant to be invalid, say so:"
            " --allow-invalid-start, Problem(allow_invalid_start=True), or"
            " allow_invalid_start = true in problem.toml"
        )
    return evaluation
