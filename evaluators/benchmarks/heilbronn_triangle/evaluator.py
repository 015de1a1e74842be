"""Heilbronn's problem: 11 points in a triangle, no three of them close to a line."""

from collections.abc import Iterable, Iterator
from itertools import chain, combinations
from math import isclose

import numpy as np
from numpy.typing import NDArray

from costada import Direction, Evaluation, normalize

Floats = NDArray[np.float64]
Value = object  # plain data: None, numbers, texts, arrays, lists and dicts
Point = tuple[int, int]  # exact coordinates: programs must not profit from rounding
AGREEMENT = 1e-9  # ordinary rounding stays within this share of the exact area
Violation = tuple[float, str]  # by how much a constraint is missed, and which one it is
NUM_SHOWN = 5  # violations listed in an error
ROUNDING = 1e-12  # smaller violations come from rounding and stay unmentioned

# GUIDE-BLOCK-START
# A check that fails raises; the score is then 0.
# normalize(objective, REFERENCE, direction) is objective / REFERENCE where the objective is
# maximized, REFERENCE / objective where it is minimized.

NUM_POINTS = 11
SLOPE = 1.7320508075688772
TRIANGLE_AREA = 0.4330127018922193
REFERENCE = 0.036529889880030156
TOLERANCE = 1e-06
# GUIDE-BLOCK-END


# GUIDE-BLOCK-START
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


def exact_points(points: Floats) -> tuple[list[Point], int]:
    """The points in units in which all coordinates are whole numbers, and how many make up 1."""
    ratios = [(x.as_integer_ratio(), y.as_integer_ratio()) for x, y in points.tolist()]
    units = max(denominator for pair in ratios for _, denominator in pair)
    return [(x * (units // p), y * (units // q)) for (x, p), (y, q) in ratios], units


def _rounded_area(a: list[float], b: list[float], c: list[float]) -> float:
    return abs(a[0] * (b[1] - c[1]) + b[0] * (c[1] - a[1]) + c[0] * (a[1] - b[1])) / 2


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
