"""Heilbronn's problem: 11 points in a triangle, no three of them close to a line."""

from collections.abc import Iterator

from costada import Direction, Evaluation, normalize
from costada.evaluators.benchmarks.checks import (
    Floats,
    Value,
    Violation,
    doubled_area,
    float_array,
    smallest_area,
    smallest_triangle,
    tolerance_notes,
)

# GUIDE-BLOCK-START
# A check that fails raises; the score is then 0.
# normalize(objective, REFERENCE, direction) is objective / REFERENCE where the objective is
# maximized, REFERENCE / objective where it is minimized.

NUM_POINTS = 11
SLOPE = 1.7320508075688772
TRIANGLE_AREA = 0.4330127018922193
REFERENCE = 0.036529889880030156
TOLERANCE = 1e-06
# GUIDE-BLOCK-END


# GUIDE-BLOCK-START
def score(output: Value) -> Evaluation:
    """Return the verdict on 11 points (11, 2) in the triangle (0, 0), (1, 0), (0.5, sqrt(3)/2).

    The objective is the area of the smallest of the 165 triangles of three points, as a share of
    the whole triangle's area.

    Raises:
        ValueError: Naming the check that failed, the points, and by how much.
    """
    points = float_array(output, "points", (NUM_POINTS, 2))
    notes = tolerance_notes(side_violations(points), TOLERANCE, what="placement")
    objective = smallest_area(points) / TRIANGLE_AREA
    return Evaluation(
        score=normalize(objective, REFERENCE, Direction.MAXIMIZE),
        objective=objective,
        is_valid=True,
        metrics={"min_area_normalized": objective},
        artifacts=notes,
    )


def side_violations(points: Floats) -> Iterator[Violation]:
    """Yield each side of the triangle that a point lies beyond."""
    for i, (x, y) in enumerate(points.tolist()):
        sides = {
            "y >= 0": -y,
            "sqrt(3) x + y <= sqrt(3)": SLOPE * x - (SLOPE - y),
            "y <= sqrt(3) x": y - SLOPE * x,
        }
        for side, amount in sides.items():
            if amount > 0:
                yield amount, f"point {i} ({x:.9g}, {y:.9g}) misses {side} by {amount:.9g}"


# GUIDE-BLOCK-END
GUIDE_READS = (smallest_area, smallest_triangle, doubled_area, float_array)
