"""Circle packing: 26 circles in the unit square, the sum of their radii as large as possible."""

from collections.abc import Iterable, Iterator
from itertools import chain
from math import fsum

import numpy as np
from numpy.typing import NDArray

from costada import Direction, Evaluation, failed, normalize

Floats = NDArray[np.float64]
Value = object  # plain data: None, numbers, texts, arrays, lists and dicts
Violation = tuple[float, str]  # by how much a constraint is missed, and which one it is
NUM_SHOWN = 5  # violations listed in an error
ROUNDING = 1e-12  # smaller violations come from rounding and stay unmentioned
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


def overlaps(centers: Floats, radii: Floats) -> Iterator[Violation]:
    """Yield each pair of circles whose distance is less than the sum of their radii."""
    first, second = np.triu_indices(len(radii), 1)
    with np.errstate(over="ignore", invalid="ignore"):
        distances = np.sqrt(np.sum((centers[first] - centers[second]) ** 2, axis=1))
        amounts = radii[first] + radii[second] - distances
    for k in np.flatnonzero(amounts > 0):
        i, j, amount = first[k], second[k], float(amounts[k])
        sizes = f"distance {distances[k]:.9g}, radii {radii[i]:.9g} + {radii[j]:.9g}"
        yield amount, f"circles {i} and {j} overlap by {amount:.9g} ({sizes})"


def check_radii(radii: Floats) -> None:
    """Do nothing if no radius is negative.

    Raises:
        ValueError: Naming the negative ones.
    """
    negative = [f"radius {i} is {radii[i]:.9g}" for i in np.flatnonzero(radii < 0)]
    if negative:
        raise ValueError("radii must not be negative: " + "; ".join(negative[:NUM_SHOWN]))


def float_array(value: Value, name: str, shape: tuple[int, ...]) -> Floats:
    """Return value as a finite float64 array of exactly the shape given.

    Args:
        value: A plain array, or nested lists of numbers and arrays. Nothing is copied before its
            form is known, so that a small answer cannot grow into a large array.
        name: What the array is called in errors.
        shape: The only shape accepted.

    Raises:
        ValueError: Telling expected and actual shape or type, or where a number is not finite.
    """
    if not isinstance(value, list | np.ndarray):
        raise ValueError(f"{name} is {_kind(value)}; expected an array of shape {shape}")
    for leaf in _leaves(value):
        if isinstance(leaf, bool) or not isinstance(leaf, int | float | np.ndarray):
            raise ValueError(f"{name} holds {_kind(leaf)}; expected numbers, shape {shape}")
    actual = _shape(value)
    if actual is None:
        raise ValueError(f"{name} is ragged; expected an array of shape {shape}")
    if actual != shape:
        raise ValueError(f"{name} has shape {actual}; expected {shape}")
    floats = np.array(value, dtype=np.float64)
    faulty = np.argwhere(~np.isfinite(floats))
    if len(faulty):
        place = ", ".join(str(i) for i in faulty[0])
        raise ValueError(
            f"{name}[{place}] is {floats[tuple(faulty[0])]}; expected finite numbers "
            f"({len(faulty)} of {floats.size} are not finite)"
        )
    return floats


# GUIDE-BLOCK-END


def _sum_notes(total: float, reported: Value) -> dict[str, str]:
    if not isinstance(reported, int | float):
        return {"reported_sum": f"the program reports no sum; recomputed: {total:.17g}"}
    if abs(reported - total) <= TOLERANCE:
        return {}
    return {"reported_sum": f"the program reports {reported:.17g}; recomputed: {total:.17g}"}


def tolerance_notes(
    violations: Iterable[Violation], tolerance: float, *, what: str
) -> dict[str, str]:
    """Note how much of the tolerance is needed; reject the worst violations beyond it.

    Raises:
        ValueError: Listing the worst violations, if one of them exceeds the tolerance.
    """
    ordered = sorted(violations, reverse=True)
    broken = [text for amount, text in ordered if amount > tolerance]
    if broken:
        shown = "; ".join(broken[:NUM_SHOWN])
        rest = f"; and {len(broken) - NUM_SHOWN} more" if len(broken) > NUM_SHOWN else ""
        raise ValueError(f"invalid {what} (tolerance {tolerance:g}): {shown}{rest}")
    excess = ordered[0][0] if ordered else 0.0
    if excess <= ROUNDING:
        return {}
    return {"tolerance": f"the {what} is valid only within tolerance: it needs {excess:.3g}"}


def _leaves(value: Value) -> Iterator[Value]:
    return chain.from_iterable(map(_leaves, value)) if isinstance(value, list) else iter([value])


def _shape(value: Value) -> tuple[int, ...] | None:
    """Shape of nested lists and arrays; None if they are ragged."""
    if not isinstance(value, list):
        return value.shape if isinstance(value, np.ndarray) else ()
    shapes = {_shape(item) for item in value}
    if not shapes:
        return (0,)
    inner = shapes.pop()
    return None if shapes or inner is None else (len(value), *inner)


def _kind(value: Value) -> str:
    return (
        "text" if isinstance(value, str) else "a dict" if isinstance(value, dict) else repr(value)
    )
