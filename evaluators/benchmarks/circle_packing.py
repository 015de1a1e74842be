"""Circle packing: 26 circles in the unit square, the sum of their radii as large as possible."""

from collections.abc import Iterator
from importlib.resources import files
from inspect import getsource
from math import fsum

import numpy as np
from numpy.typing import NDArray

from costada.evaluators.benchmarks.arrays import float_array
from costada.evaluators.contract import Direction, Evaluation, failed
from costada.evaluators.normalize import normalize
from costada.evaluators.problem import Problem
from costada.evaluators.sandbox.limits import MEBIBYTE, Limits
from costada.evaluators.sandbox.run import CandidateResult, run_candidate
from costada.evaluators.sandbox.wire import Value

NUM_CIRCLES = 26
REFERENCE = 2.635
HUMAN = 2.6340
TIMEOUT = 360.0
LIMITS = Limits(wall_seconds=TIMEOUT, result_bytes=MEBIBYTE)
TOLERANCE = 1e-6
ROUNDING = 1e-12
"""Violations up to this size are the rounding of double precision and stay unmentioned."""
NUM_SHOWN = 5
ENTRY_POINT = "run_packing"

Floats = NDArray[np.float64]
Violation = tuple[float, str]
"""How far a constraint is missed, as a length in the square, and which one it is."""


def circle_packing() -> Problem:
    """Return the problem of packing 26 circles into the unit square (App. H)."""
    programs = files("costada.evaluators.benchmarks") / "programs"
    return Problem(
        name="circle_packing",
        task=(programs / "circle_packing_task.txt").read_text(encoding="utf-8"),
        initial_program=(programs / "circle_packing.txt").read_text(encoding="utf-8"),
        evaluate=evaluate,
        entry_point=ENTRY_POINT,
        direction=Direction.MAXIMIZE,
        reference=REFERENCE,
        limits=LIMITS,
        evaluator_source=_scoring_source(),
        human=HUMAN,
    )


def evaluate(code: str) -> Evaluation:
    """Return the verdict on a program: it is run once, in a process of its own."""
    return score_run(run_candidate(code, ENTRY_POINT, LIMITS))


def score_run(run: CandidateResult) -> Evaluation:
    """Return the verdict on what a finished run returned."""
    log = {"log": run.log} if run.log else {}
    zeros = {"sum_radii": 0.0, "target_ratio": 0.0, "validity": 0.0, "combined_score": 0.0}
    zeros["eval_time"] = run.seconds
    if run.error is not None:
        return failed(run.error, metrics=zeros, artifacts=log, seconds=run.seconds)
    try:
        total, notes = score_packing(run.output)
    except ValueError as error:
        return failed(str(error), metrics=zeros, artifacts=log, seconds=run.seconds)
    score = normalize(total, REFERENCE, Direction.MAXIMIZE)
    metrics = zeros | {"sum_radii": total, "target_ratio": score, "validity": 1.0}
    return Evaluation(
        score=score,
        objective=total,
        is_valid=True,
        metrics=metrics | {"combined_score": score},
        artifacts=notes | log,
        seconds=run.seconds,
    )


def score_packing(output: Value) -> tuple[float, dict[str, str]]:
    """Return the sum of the radii, recomputed, and notes on the packing.

    Args:
        output: What the program returned: centers (26, 2), radii (26,) and their sum.

    Returns:
        The objective, and notes under "tolerance" (how much of it the packing needs) and
        "reported_sum" (if the program's own sum differs).

    Raises:
        ValueError: Naming the check that failed, the circles, and by how much.
    """
    if not isinstance(output, list) or len(output) != 3:
        raise ValueError(f"{ENTRY_POINT} must return (centers, radii, sum_radii)")
    centers = float_array(output[0], "centers", (NUM_CIRCLES, 2))
    radii = float_array(output[1], "radii", (NUM_CIRCLES,))
    _check_radii(radii)
    violations = [*_border_violations(centers, radii), *_overlaps(centers, radii)]
    excess = max((amount for amount, _ in violations), default=0.0)
    if excess > TOLERANCE:
        raise ValueError(_describe(violations))
    total = fsum(radii)
    return total, _notes(total, output[2], excess)


def _check_radii(radii: Floats) -> None:
    negative = [f"radius {i} is {radii[i]:.9g}" for i in np.flatnonzero(radii < 0)]
    if negative:
        raise ValueError("radii must not be negative: " + "; ".join(negative[:NUM_SHOWN]))


def _border_violations(centers: Floats, radii: Floats) -> Iterator[Violation]:
    for i, ((x, y), r) in enumerate(zip(centers.tolist(), radii.tolist(), strict=True)):
        sides = {"left": r - x, "right": x + r - 1, "lower": r - y, "upper": y + r - 1}
        for side, amount in sides.items():
            if amount > 0:
                yield amount, f"circle {i} passes the {side} side by {amount:.9g}"


def _overlaps(centers: Floats, radii: Floats) -> Iterator[Violation]:
    first, second = np.triu_indices(NUM_CIRCLES, 1)
    with np.errstate(over="ignore", invalid="ignore"):
        distances = np.sqrt(np.sum((centers[first] - centers[second]) ** 2, axis=1))
        amounts = radii[first] + radii[second] - distances
    for k in np.flatnonzero(amounts > 0):
        i, j, amount = first[k], second[k], float(amounts[k])
        sizes = f"distance {distances[k]:.9g}, radii {radii[i]:.9g} + {radii[j]:.9g}"
        yield amount, f"circles {i} and {j} overlap by {amount:.9g} ({sizes})"


def _describe(violations: list[Violation]) -> str:
    broken = sorted((v for v in violations if v[0] > TOLERANCE), reverse=True)
    shown = "; ".join(text for _, text in broken[:NUM_SHOWN])
    rest = f"; and {len(broken) - NUM_SHOWN} more" if len(broken) > NUM_SHOWN else ""
    return f"invalid packing (tolerance {TOLERANCE:g}): {shown}{rest}"


def _notes(total: float, reported: Value, excess: float) -> dict[str, str]:
    notes = {}
    if excess > ROUNDING:
        notes["tolerance"] = f"the packing is valid only within tolerance: it needs {excess:.3g}"
    if not isinstance(reported, int | float):
        notes["reported_sum"] = f"the program reports no sum; recomputed: {total:.17g}"
    elif not abs(reported - total) <= TOLERANCE:
        notes["reported_sum"] = f"the program reports {reported:.17g}; recomputed: {total:.17g}"
    return notes


def _scoring_source() -> str:
    rules = (score_packing, float_array, _check_radii, _border_violations, _overlaps)
    constants = f"NUM_CIRCLES, REFERENCE, TOLERANCE = {NUM_CIRCLES}, {REFERENCE}, {TOLERANCE}"
    scored = "# score = objective / REFERENCE; 0 if a check fails"
    return "\n\n".join([f"{constants}\n{scored}", *(getsource(rule) for rule in rules)])
