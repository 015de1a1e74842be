"""Circle packing in a rectangle: 21 circles, perimeter 4, the sum of radii as large as possible."""

from collections.abc import Iterator
from math import fsum

import numpy as np

from costada import Direction, Evaluation, normalize
from costada.evaluators.benchmarks.checks import (
    Floats,
    Value,
    Violation,
    check_radii,
    float_array,
    overlaps,
    tolerance_notes,
)

# GUIDE-BLOCK-START
# A check that fails raises; the score is then 0.
# normalize(objective, REFERENCE, direction) is objective / REFERENCE where the objective is
# maximized, REFERENCE / objective where it is minimized.

NUM_CIRCLES = 21
HALF_PERIMETER = 2.0
REFERENCE = 2.3658321334167627
TOLERANCE = 1e-06
# GUIDE-BLOCK-END


# GUIDE-BLOCK-START
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


# GUIDE-BLOCK-END
GUIDE_READS = (overlaps, check_radii, float_array)
