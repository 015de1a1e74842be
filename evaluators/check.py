"""Whether a problem works, before money is spent on it."""

from costada.evaluators.contract import EVALUATOR_FAULT, Evaluation, Problem


def check_problem(problem: Problem) -> Evaluation:
    """Return the evaluation of the initial program, after making sure the evaluator works.

    An initial program that is merely invalid passes: it scores 0 and the search starts there.

    Raises:
        ValueError: If the evaluator itself fails on the initial program, or gives no score.
    """
    evaluation = problem.evaluate(problem.initial_program)
    if not isinstance(evaluation, Evaluation):
        raise ValueError(
            f"problem {problem.name!r}: evaluate returned {type(evaluation).__name__}; "
            "expected an Evaluation"
        )
    fault = evaluation.artifacts.get(EVALUATOR_FAULT)
    if fault is not None:
        raise ValueError(f"problem {problem.name!r}, initial program: {fault}")
    return evaluation
