"""16 points in the plane, the largest of their distances small next to the smallest."""

from costada.evaluators.benchmarks.arrays import float_array
from costada.evaluators.benchmarks.min_max_dist import LIMITS, SOURCE, score_points, squared_ratio
from costada.evaluators.benchmarks.texts import read_text, scoring_source
from costada.evaluators.problem import Problem
from costada.evaluators.sandbox.wire import Value
from costada.values.evaluation import Direction, Evaluation

SHAPE = (16, 2)
REFERENCE = 12.889266112
HUMAN = 12.89
SEED_OBJECTIVE = 651.2649919520604
ENTRY_POINT = "min_max_dist_dim2_16"


def min_max_dist_2d() -> Problem:
    """Return the problem of 16 points in the plane with the least (dmax/dmin)^2 (App. H)."""
    constants = {"SHAPE": SHAPE, "REFERENCE": REFERENCE}
    return Problem(
        name="min_max_dist_2d",
        task=read_text("min_max_dist_2d_task.txt"),
        initial_program=read_text("min_max_dist_2d.txt"),
        entry_point=ENTRY_POINT,
        score=score,
        limits=LIMITS,
        direction=Direction.MINIMIZE,
        reference=REFERENCE,
        human=HUMAN,
        seed_objective=SEED_OBJECTIVE,
        evaluator_source=scoring_source(constants, score, score_points, squared_ratio, float_array),
        source=SOURCE,
    )


def score(output: Value) -> Evaluation:
    """Return the verdict on 16 points in the plane, an array (16, 2).

    Raises:
        ValueError: If the answer has another form, or two points coincide.
    """
    return score_points(output, SHAPE, REFERENCE)
