"""Whether a problem works, before money is spent on it."""

from costada.evaluators.contract import MARKS, Evaluation
from costada.evaluators.problem import Problem


def check_problem(problem: Problem) -> Evaluation:
    """Return the evaluation of the initial program, after making sure the evaluator works.

    An initial program that the evaluator finds invalid passes: it scores 0 and the search starts
    there. One that brings the evaluator to no verdict, because it crashes or takes too long, does
    not.

    Raises:
        ValueError: If the evaluator, the sandbox or the initial program itself fails, or the
            score is not finite.
    """
    evaluation = problem.evaluate(problem.initial_program)
    if not isinstance(evaluation, Evaluation):
        raise ValueError(
            f"problem {problem.name!r}: evaluate returned {type(evaluation).__name__}; "
            "expected an Evaluation"
        )
    for mark in MARKS:
        if mark in evaluation.artifacts:
            fault = evaluation.artifacts[mark]
            raise ValueError(f"problem {problem.name!r}, initial program: {fault}")
    return evaluation
