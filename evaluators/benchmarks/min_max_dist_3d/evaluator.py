"""14 points in space, the largest of their distances small next to the smallest."""

from costada import Evaluation
from costada.evaluators.benchmarks.checks import Value, float_array, score_points, squared_ratio

# GUIDE-BLOCK-START
# A check that fails raises; the score is then 0.
# normalize(objective, REFERENCE, direction) is objective / REFERENCE where the objective is
# maximized, REFERENCE / objective where it is minimized.

SHAPE = (14, 3)
REFERENCE = 4.165849767
# GUIDE-BLOCK-END


# GUIDE-BLOCK-START
def score(output: Value) -> Evaluation:
    """Return the verdict on 14 points in space, an array (14, 3).

    Raises:
        ValueError: If the answer has another form, or two points coincide.
    """
    return score_points(output, SHAPE, REFERENCE)


# GUIDE-BLOCK-END
GUIDE_READS = (score_points, squared_ratio, float_array)
