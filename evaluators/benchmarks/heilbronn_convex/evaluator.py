"""Heilbronn's problem in a convex region of any shape: 13 points, no three close to a line.

A hull is a line up to rounding if its width is below its coordinates divided by RESOLUTION.
"""

from itertools import pairwise

from costada import Direction, Evaluation, normalize
from costada.evaluators.benchmarks.checks import (
    Point,
    Value,
    doubled_area,
    exact_points,
    float_array,
    scaled,
    smallest_area,
    smallest_triangle,
)

# GUIDE-BLOCK-START
# A check that fails raises; the score is then 0.
# normalize(objective, REFERENCE, direction) is objective / REFERENCE where the objective is
# maximized, REFERENCE / objective where it is minimized.

NUM_POINTS = 13
REFERENCE = 0.030936889034895654
RESOLUTION = 100000000000000
# GUIDE-BLOCK-END


# GUIDE-BLOCK-START
def score(output: Value) -> Evaluation:
    """Return the verdict on 13 points (13, 2), anywhere in the plane and of any scale.

    The objective is the area of the smallest of the 286 triangles of three points, as a share of
    the area of the points' convex hull.

    Raises:
        ValueError: If the answer has another form, or all points are on a line.
    """
    points = scaled(float_array(output, "points", (NUM_POINTS, 2)))
    exact, units = exact_points(points)
    hull = convex_hull(exact)
    if is_flat(exact, hull):
        raise ValueError("the points lie on a line, up to rounding; expected a hull with an area")
    objective = smallest_area(points) / (hull / (2 * units**2))
    return Evaluation(
        score=normalize(objective, REFERENCE, Direction.MAXIMIZE),
        objective=objective,
        is_valid=True,
        metrics={"min_area_normalized": objective},
    )


def is_flat(points: list[Point], hull: int) -> bool:
    """Return whether rounding may have made the hull of points on a line; takes twice its area."""
    extent: int = max(max(axis) - min(axis) for axis in zip(*points, strict=True))
    reach = max(abs(coordinate) for point in points for coordinate in point)
    return hull * RESOLUTION <= extent * reach


def convex_hull(points: list[Point]) -> int:
    """Return twice the area of the convex hull of the points; 0 if all are on a line."""
    ordered = sorted(points)
    corners = _chain(ordered) + _chain(ordered[::-1])
    return sum(doubled_area(corners[0], b, c) for b, c in pairwise(corners))


# GUIDE-BLOCK-END
GUIDE_READS = (smallest_area, smallest_triangle, doubled_area, float_array)


def _chain(ordered: list[Point]) -> list[Point]:
    """Corners of one side of the hull, from the first point to before the last."""
    chain: list[Point] = []
    for point in ordered:
        while len(chain) > 1 and doubled_area(chain[-2], chain[-1], point) <= 0:
            chain.pop()
        chain.append(point)
    return chain[:-1]
