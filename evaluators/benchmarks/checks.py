"""What several benchmarks check and measure.

A guide reads the source of the functions that an evaluator lists in `GUIDE_READS`.
"""

from collections.abc import Iterable, Iterator
from itertools import chain, combinations
from math import isclose
from sys import float_info

import numpy as np
from numpy.typing import NDArray

from costada import Direction, Evaluation, normalize

Floats = NDArray[np.float64]
Value = object  # plain data: None, numbers, strings, arrays, lists and dicts
Violation = tuple[float, str]  # by how much a constraint is missed, and which one it is
Point = tuple[int, int]  # exact coordinates: programs must not profit from rounding

NUM_SHOWN = 5  # violations listed in an error
ROUNDING = 1e-12  # smaller violations come from rounding and stay unmentioned
AGREEMENT = 1e-9  # ordinary rounding stays within this share of the exact area


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


def smallest_area(points: Floats) -> float:
    """Return the area of the smallest triangle of three of the points (n, 2), all within 1.

    It is rounded as the usual formula rounds it, so that published values are met to the last
    digit, unless rounding changes it noticeably: then the exact area is returned.
    """
    whole, units = exact_points(points)
    exact = smallest_triangle(whole) / (2 * units**2)
    rounded = min(_rounded_area(*corners) for corners in combinations(points.tolist(), 3))
    return rounded if isclose(rounded, exact, rel_tol=AGREEMENT) else exact


def smallest_triangle(points: list[Point]) -> int:
    """Return twice the area of the smallest triangle of three of the points."""
    return min(abs(doubled_area(a, b, c)) for a, b, c in combinations(points, 3))


def doubled_area(a: Point, b: Point, c: Point) -> int:
    """Return twice the area of a triangle, positive if its corners come counterclockwise."""
    return (b[0] - a[0]) * (c[1] - a[1]) - (c[0] - a[0]) * (b[1] - a[1])


def _rounded_area(a: list[float], b: list[float], c: list[float]) -> float:
    return abs(a[0] * (b[1] - c[1]) + b[0] * (c[1] - a[1]) + c[0] * (a[1] - b[1])) / 2


def exact_points(points: Floats) -> tuple[list[Point], int]:
    """The points in units in which all coordinates are integers, and how many make up 1."""
    ratios = [(x.as_integer_ratio(), y.as_integer_ratio()) for x, y in points.tolist()]
    units = max(denominator for pair in ratios for _, denominator in pair)
    return [(x * (units // p), y * (units // q)) for (x, p), (y, q) in ratios], units


def scaled(points: Floats) -> Floats:
    """Points divided by a power of 2, which is exact, so that all are within 1."""
    _, exponent = np.frexp(np.max(np.abs(points)))
    small: Floats = np.ldexp(points, -exponent)
    return small


def score_points(output: Value, shape: tuple[int, int], reference: float) -> Evaluation:
    """Return the verdict on points of the shape given, anywhere and of any scale.

    The objective is (dmax/dmin)^2, of the largest and the smallest distance of two points; the
    metric min_max_ratio is its reciprocal.

    Raises:
        ValueError: If the answer has another form, or the objective would not be finite.
    """
    points = float_array(output, "points", shape)
    ratio = squared_ratio(points)
    return Evaluation(
        score=normalize(1 / ratio, reference, Direction.MINIMIZE),
        objective=1 / ratio,
        is_valid=True,
        metrics={"min_max_ratio": ratio},
    )


def squared_ratio(points: Floats) -> float:
    """Return (dmin/dmax)^2, in (0, 1].

    The points are first scaled by a power of 2, which is exact and keeps squares in range.

    Raises:
        ValueError: Naming two points that coincide, or nearly so next to the largest distance.
    """
    small = scaled(points)
    first, second = np.triu_indices(len(points), 1)
    distances = np.sqrt(np.sum((small[first] - small[second]) ** 2, axis=1))
    closest, largest = int(np.argmin(distances)), float(np.max(distances))
    share = float(distances[closest]) / largest if largest > 0 else 0.0
    if share**2 < float_info.min:
        pair = f"points {first[closest]} and {second[closest]} coincide, or nearly so"
        raise ValueError(f"{pair}: their distance is {share:.3g} of the largest; expected above 0")
    return share**2
