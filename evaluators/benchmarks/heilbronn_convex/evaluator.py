"""Heilbronn's problem in a convex region of any shape: 13 points, no three close to a line.

A hull is a line up to rounding if its width is below its coordinates divided by RESOLUTION.
"""

from collections.abc import Iterator
from itertools import chain, combinations, pairwise
from math import isclose

import numpy as np
from numpy.typing import NDArray

from costada import Direction, Evaluation, normalize

Floats = NDArray[np.float64]
Value = object  # plain data: None, numbers, texts, arrays, lists and dicts
Point = tuple[int, int]  # exact coordinates: programs must not profit from rounding
AGREEMENT = 1e-9  # ordinary rounding stays within this share of the exact area

# GUIDE-BLOCK-START
# A check that fails raises; the score is then 0.
# normalize(objective, REFERENCE, direction) is objective / REFERENCE where the objective is
# maximized, REFERENCE / objective where it is minimized.

NUM_POINTS = 13
REFERENCE = 0.030936889034895654
RESOLUTION = 100000000000000
# GUIDE-BLOCK-END


# GUIDE-BLOCK-START
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


def convex_hull(points: list[Point]) -> int:
    """Return twice the area of the convex hull of the points; 0 if all are on a line."""
    ordered = sorted(points)
    corners = _chain(ordered) + _chain(ordered[::-1])
    return sum(doubled_area(corners[0], b, c) for b, c in pairwise(corners))


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


def scaled(points: Floats) -> Floats:
    """Points divided by a power of 2, which is exact, so that all are within 1."""
    _, exponent = np.frexp(np.max(np.abs(points)))
    small: Floats = np.ldexp(points, -exponent)
    return small


def exact_points(points: Floats) -> tuple[list[Point], int]:
    """The points in units in which all coordinates are whole numbers, and how many make up 1."""
    ratios = [(x.as_integer_ratio(), y.as_integer_ratio()) for x, y in points.tolist()]
    units = max(denominator for pair in ratios for _, denominator in pair)
    return [(x * (units // p), y * (units // q)) for (x, p), (y, q) in ratios], units


def _rounded_area(a: list[float], b: list[float], c: list[float]) -> float:
    return abs(a[0] * (b[1] - c[1]) + b[0] * (c[1] - a[1]) + c[0] * (a[1] - b[1])) / 2


def _chain(ordered: list[Point]) -> list[Point]:
    """Corners of one side of the hull, from the first point to before the last."""
    chain: list[Point] = []
    for point in ordered:
        while len(chain) > 1 and doubled_area(chain[-2], chain[-1], point) <= 0:
            chain.pop()
        chain.append(point)
    return chain[:-1]


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
