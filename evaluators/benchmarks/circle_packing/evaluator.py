"""Circle packing: 26 circles in the unit square, the sum of their radii as large as possible."""

from collections.abc import Iterator
from math import fsum

from costada import Direction, Evaluation, failed, normalize
from costada.evaluators.benchmarks.checks import (
    Floats,
    Value,
    Violation,
    check_radii,
    float_array,
    overlaps,
    tolerance_notes,
)

ENTRY_POINT = "run_packing"

# GUIDE-BLOCK-START
# A check that fails raises; the score is then 0.
# normalize(objective, REFERENCE, direction) is objective / REFERENCE where the objective is
# maximized, REFERENCE / objective where it is minimized.

NUM_CIRCLES = 26
REFERENCE = 2.635
TOLERANCE = 1e-06
# GUIDE-BLOCK-END


def score(output: Value) -> Evaluation:
    """The verdict on what `run_packing` returned, validity among its metrics."""
    try:
        return score_packing(output)
    except ValueError as error:
        zeros = {"sum_radii": 0.0, "target_ratio": 0.0, "validity": 0.0}
        return failed(str(error), metrics=zeros)


# GUIDE-BLOCK-START
def score_packing(output: Value) -> Evaluation:
    """Return the verdict on a valid packing; its objective is the recomputed sum of the radii.

    Args:
        output: What the program returned: centers (26, 2), radii (26,) and their sum. A sum that
            deviates is noted under "reported_sum" and changes nothing.

    Raises:
        ValueError: Naming the check that failed, the circles, and by how much.
    """
    if not isinstance(output, list) or len(output) != 3:
        raise ValueError(f"{ENTRY_POINT} must return (centers, radii, sum_radii)")
    centers = float_array(output[0], "centers", (NUM_CIRCLES, 2))
    radii = float_array(output[1], "radii", (NUM_CIRCLES,))
    check_radii(radii)
    violations = [*border_violations(centers, radii), *overlaps(centers, radii)]
    notes = tolerance_notes(violations, TOLERANCE, what="packing")
    total = fsum(radii)
    ratio = normalize(total, REFERENCE, Direction.MAXIMIZE)
    return Evaluation(
        score=ratio,
        objective=total,
        is_valid=True,
        metrics={"sum_radii": total, "target_ratio": ratio, "validity": 1.0},
        artifacts=notes | _sum_notes(total, output[2]),
    )


def border_violations(centers: Floats, radii: Floats) -> Iterator[Violation]:
    """Yield each side of the unit square that a circle passes."""
    for i, ((x, y), r) in enumerate(zip(centers.tolist(), radii.tolist(), strict=True)):
        sides = {"left": r - x, "right": x + r - 1, "lower": r - y, "upper": y + r - 1}
        for side, amount in sides.items():
            if amount > 0:
                yield amount, f"circle {i} passes the {side} side by {amount:.9g}"


# GUIDE-BLOCK-END
GUIDE_READS = (overlaps, check_radii, float_array)


def _sum_notes(total: float, reported: Value) -> dict[str, str]:
    if not isinstance(reported, int | float):
        return {"reported_sum": f"the program reports no sum; recomputed: {total:.17g}"}
    if abs(reported - total) <= TOLERANCE:
        return {}
    return {"reported_sum": f"the program reports {reported:.17g}; recomputed: {total:.17g}"}
