"""Areas of triangles and hulls, safe from programs that would profit from rounding.

Whole numbers decide: they are exact at any scale and in any place.
"""

from itertools import combinations, pairwise
from math import isclose

import numpy as np

from costada.evaluators.benchmarks.arrays import Floats

Point = tuple[int, int]
AGREEMENT = 1e-9
"""How far, relative to it, ordinary rounding may be from the exact area and still be used."""


def scaled(points: Floats) -> Floats:
    """Return points divided by a power of 2, which is exact, so that all are within 1."""
    _, exponent = np.frexp(np.max(np.abs(points)))
    small: Floats = np.ldexp(points, -exponent)
    return small


def smallest_area(points: Floats) -> float:
    """Return the area of the smallest triangle of three of the points (n, 2), all within 1.

    It is rounded as the usual formula rounds it, so that published values are met to the last
    digit, unless rounding changes it noticeably: then the exact area is returned.
    """
    whole, units = exact_points(points)
    exact = smallest_triangle(whole) / (2 * units**2)
    rounded = min(_rounded_area(*corners) for corners in combinations(points.tolist(), 3))
    return rounded if isclose(rounded, exact, rel_tol=AGREEMENT) else exact


def _rounded_area(a: list[float], b: list[float], c: list[float]) -> float:
    return abs(a[0] * (b[1] - c[1]) + b[0] * (c[1] - a[1]) + c[0] * (a[1] - b[1])) / 2


def exact_points(points: Floats) -> tuple[list[Point], int]:
    """Return the points of an array (n, 2) in units in which all coordinates are whole numbers.

    Returns:
        The points, exactly those that the doubles stand for, and how many units make up 1.
    """
    ratios = [(x.as_integer_ratio(), y.as_integer_ratio()) for x, y in points.tolist()]
    units = max(denominator for pair in ratios for _, denominator in pair)
    return [(x * (units // p), y * (units // q)) for (x, p), (y, q) in ratios], units


def smallest_triangle(points: list[Point]) -> int:
    """Return twice the area of the smallest triangle of three of the points."""
    return min(abs(doubled_area(a, b, c)) for a, b, c in combinations(points, 3))


def doubled_area(a: Point, b: Point, c: Point) -> int:
    """Return twice the area of a triangle, positive if its corners come counterclockwise."""
    return (b[0] - a[0]) * (c[1] - a[1]) - (c[0] - a[0]) * (b[1] - a[1])


def convex_hull(points: list[Point]) -> int:
    """Return twice the area of the convex hull of the points; 0 if all are on a line."""
    ordered = sorted(points)
    corners = _chain(ordered) + _chain(ordered[::-1])
    return sum(doubled_area(corners[0], b, c) for b, c in pairwise(corners))


def _chain(ordered: list[Point]) -> list[Point]:
    """Return the corners of one side of the hull, from the first point to before the last."""
    chain: list[Point] = []
    for point in ordered:
        while len(chain) > 1 and doubled_area(chain[-2], chain[-1], point) <= 0:
            chain.pop()
        chain.append(point)
    return chain[:-1]
