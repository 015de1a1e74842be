"""Heilbronn's problem: 11 points in a triangle, no three of them close to a line."""

from collections.abc import Iterator
from math import sqrt

from costada.evaluators.benchmarks.arrays import Floats, float_array
from costada.evaluators.benchmarks.geometry import doubled_area, smallest_area, smallest_triangle
from costada.evaluators.benchmarks.texts import read_text, scoring_source
from costada.evaluators.benchmarks.violations import Violation, tolerance_notes
from costada.evaluators.contract import normalize
from costada.evaluators.problem import Problem
from costada.evaluators.sandbox.limits import MEBIBYTE, Limits
from costada.evaluators.sandbox.wire import Value
from costada.values.evaluation import Direction, Evaluation

NUM_POINTS = 11
SLOPE = sqrt(3)
TRIANGLE_AREA = sqrt(3) / 4
REFERENCE = 0.036529889880030156
HUMAN = 0.0360
SEED_OBJECTIVE = 0.0
TOLERANCE = 1e-6
ENTRY_POINT = "heilbronn_triangle11"
LIMITS = Limits(wall_seconds=360.0, memory_mb=1024, result_bytes=MEBIBYTE)


def heilbronn_triangle() -> Problem:
    """Return Heilbronn's problem for 11 points in an equilateral triangle (App. H)."""
    constants = {
        "NUM_POINTS": NUM_POINTS,
        "SLOPE": SLOPE,
        "TRIANGLE_AREA": TRIANGLE_AREA,
        "REFERENCE": REFERENCE,
        "TOLERANCE": TOLERANCE,
    }
    rules = (score, side_violations, smallest_area, smallest_triangle, doubled_area, float_array)
    return Problem(
        name="heilbronn_triangle",
        task=read_text("heilbronn_triangle_task.txt"),
        initial_program=read_text("heilbronn_triangle.txt"),
        entry_point=ENTRY_POINT,
        score=score,
        limits=LIMITS,
        direction=Direction.MAXIMIZE,
        reference=REFERENCE,
        human=HUMAN,
        seed_objective=SEED_OBJECTIVE,
        evaluator_source=scoring_source(constants, *rules),
        source="CostAda, App. H; AlphaEvolve (arXiv:2506.13131), App. B",
    )


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
