"""Whether a problem works, before money is spent on it."""

from costada.evaluators.contract import EVALUATOR_FAULT, NO_VERDICT, Evaluation
from costada.evaluators.problem import Problem


def check_problem(problem: Problem) -> Evaluation:
    """Return the evaluation of the initial program, after making sure the evaluator works.

    An initial program that the evaluator finds invalid passes: it scores 0 and the search starts
    there. One that brings the evaluator to no verdict does not.

    Raises:
        ValueError: If the evaluator fails on the initial program, or gives no finite score.
    """
    evaluation = problem.evaluate(problem.initial_program)
    if not isinstance(evaluation, Evaluation):
        raise ValueError(
            f"problem {problem.name!r}: evaluate returned {type(evaluation).__name__}; "
            "expected an Evaluation"
        )
    fault = evaluation.artifacts.get(EVALUATOR_FAULT) or evaluation.artifacts.get(NO_VERDICT)
    if fault is not None:
        raise ValueError(f"problem {problem.name!r}, initial program: {fault}")
    return evaluation
