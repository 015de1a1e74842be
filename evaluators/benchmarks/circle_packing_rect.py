"""Circle packing in a rectangle: 21 circles, perimeter 4, the sum of radii as large as possible."""

from collections.abc import Iterator
from math import fsum

import numpy as np

from costada.evaluators.benchmarks.arrays import Floats, float_array
from costada.evaluators.benchmarks.circles import check_radii, overlaps
from costada.evaluators.benchmarks.texts import read_text, scoring_source
from costada.evaluators.benchmarks.violations import Violation, tolerance_notes
from costada.evaluators.contract import normalize
from costada.evaluators.problem import Problem
from costada.evaluators.sandbox.limits import MEBIBYTE, Limits
from costada.evaluators.sandbox.wire import Value
from costada.values.evaluation import Direction, Evaluation

NUM_CIRCLES = 21
HALF_PERIMETER = 2.0
REFERENCE = 2.3658321334167627
HUMAN = 2.3640
SEED_OBJECTIVE = 0.0
TOLERANCE = 1e-6
ENTRY_POINT = "circle_packing21"
LIMITS = Limits(wall_seconds=360.0, memory_mb=1024, result_bytes=MEBIBYTE)


def circle_packing_rect() -> Problem:
    """Return the problem of packing 21 circles into a rectangle of perimeter 4 (App. H)."""
    constants = {
        "NUM_CIRCLES": NUM_CIRCLES,
        "HALF_PERIMETER": HALF_PERIMETER,
        "REFERENCE": REFERENCE,
        "TOLERANCE": TOLERANCE,
    }
    rules = (score, box_violations, overlaps, check_radii, float_array)
    return Problem(
        name="circle_packing_rect",
        task=read_text("circle_packing_rect_task.txt"),
        initial_program=read_text("circle_packing_rect.txt"),
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
    """Return the verdict on an array (21, 3) of x, y and radius; the objective is the radii's sum.

    Raises:
        ValueError: Naming the check that failed, the circles, and by how much.
    """
    circles = float_array(output, "circles", (NUM_CIRCLES, 3))
    centers, radii = circles[:, :2], circles[:, 2]
    check_radii(radii)
    violations = [*box_violations(centers, radii), *overlaps(centers, radii)]
    notes = tolerance_notes(violations, TOLERANCE, what="packing")
    total = fsum(radii)
    return Evaluation(
        score=normalize(total, REFERENCE, Direction.MAXIMIZE),
        objective=total,
        is_valid=True,
        metrics={"radii_sum": total},
        artifacts=notes,
    )


def box_violations(centers: Floats, radii: Floats) -> Iterator[Violation]:
    """Yield by how much width + height of the box around all circles exceeds half the perimeter.

    Circles of radius 0 count. Places are taken relative to the first circle, so that far from
    the origin no width is lost to rounding.
    """
    with np.errstate(over="ignore"):
        places, sizes = centers - centers[0], radii[:, None]
        spans = np.max(places + sizes, axis=0) - np.min(places - sizes, axis=0)
    width, height = spans.tolist()
    amount = width + height - HALF_PERIMETER
    if amount > 0:
        size = f"width {width:.9g} + height {height:.9g}"
        limit = f"{HALF_PERIMETER:g} by {amount:.9g}"
        yield amount, f"the bounding box of all circles has {size}, more than {limit}"
