"""Circle packing: 26 circles in the unit square, the sum of their radii as large as possible."""

from collections.abc import Iterator
from math import fsum

from costada.evaluators.benchmarks.arrays import Floats, float_array
from costada.evaluators.benchmarks.circles import check_radii, overlaps
from costada.evaluators.benchmarks.texts import read_text, scoring_source
from costada.evaluators.benchmarks.violations import Violation, tolerance_notes
from costada.evaluators.contract import normalize
from costada.evaluators.problem import Problem
from costada.evaluators.sandbox.limits import MEBIBYTE, Limits
from costada.evaluators.sandbox.wire import Value
from costada.values.evaluation import Direction, Evaluation, failed

NUM_CIRCLES = 26
REFERENCE = 2.635
HUMAN = 2.6340
SEED_OBJECTIVE = 0.9597642169962064
TOLERANCE = 1e-6
ENTRY_POINT = "run_packing"
LIMITS = Limits(wall_seconds=360.0, memory_mb=1024, result_bytes=MEBIBYTE)


def circle_packing() -> Problem:
    """Return the problem of packing 26 circles into the unit square (App. H)."""
    constants = {"NUM_CIRCLES": NUM_CIRCLES, "REFERENCE": REFERENCE, "TOLERANCE": TOLERANCE}
    rules = (score_packing, border_violations, overlaps, check_radii, float_array)
    return Problem(
        name="circle_packing",
        task=read_text("circle_packing_task.txt"),
        initial_program=read_text("circle_packing.txt"),
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
    """Return the verdict on what `run_packing` returned, validity among its metrics."""
    try:
        return score_packing(output)
    except ValueError as error:
        zeros = {"sum_radii": 0.0, "target_ratio": 0.0, "validity": 0.0}
        return failed(str(error), metrics=zeros)


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


def _sum_notes(total: float, reported: Value) -> dict[str, str]:
    if not isinstance(reported, int | float):
        return {"reported_sum": f"the program reports no sum; recomputed: {total:.17g}"}
    if abs(reported - total) <= TOLERANCE:
        return {}
    return {"reported_sum": f"the program reports {reported:.17g}; recomputed: {total:.17g}"}
