"""Heilbronn's problem in a convex region of any shape: 13 points, no three close to a line."""

from costada.evaluators.benchmarks.arrays import float_array
from costada.evaluators.benchmarks.geometry import (
    Point,
    convex_hull,
    doubled_area,
    exact_points,
    scaled,
    smallest_area,
    smallest_triangle,
)
from costada.evaluators.benchmarks.texts import read_text, scoring_source
from costada.evaluators.contract import normalize
from costada.evaluators.problem import Problem
from costada.evaluators.sandbox.limits import MEBIBYTE, Limits
from costada.evaluators.sandbox.wire import Value
from costada.values.evaluation import Direction, Evaluation

NUM_POINTS = 13
REFERENCE = 0.030936889034895654
HUMAN = 0.0306
SEED_OBJECTIVE = 0.00032245840426786953
RESOLUTION = 10**14
"""A hull is a line up to rounding if its width is less than its coordinates divided by this."""
ENTRY_POINT = "heilbronn_convex13"
LIMITS = Limits(wall_seconds=360.0, memory_mb=1024, result_bytes=MEBIBYTE)


def heilbronn_convex() -> Problem:
    """Return Heilbronn's problem for 13 points and their convex hull (App. H)."""
    constants = {"NUM_POINTS": NUM_POINTS, "REFERENCE": REFERENCE, "RESOLUTION": RESOLUTION}
    areas = (convex_hull, smallest_area, smallest_triangle, doubled_area)
    return Problem(
        name="heilbronn_convex",
        task=read_text("heilbronn_convex_task.txt"),
        initial_program=read_text("heilbronn_convex.txt"),
        entry_point=ENTRY_POINT,
        score=score,
        limits=LIMITS,
        direction=Direction.MAXIMIZE,
        reference=REFERENCE,
        human=HUMAN,
        seed_objective=SEED_OBJECTIVE,
        evaluator_source=scoring_source(constants, score, is_flat, *areas, float_array),
        source="CostAda, App. H; AlphaEvolve (arXiv:2506.13131), App. B",
    )


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
