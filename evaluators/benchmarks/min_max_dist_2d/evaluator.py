"""16 points in the plane, the largest of their distances small next to the smallest."""

from collections.abc import Iterator
from itertools import chain
from sys import float_info

import numpy as np
from numpy.typing import NDArray

from costada import Direction, Evaluation, normalize

Floats = NDArray[np.float64]
Value = object  # plain data: None, numbers, texts, arrays, lists and dicts

# GUIDE-BLOCK-START
# A check that fails raises; the score is then 0.
# normalize(objective, REFERENCE, direction) is objective / REFERENCE where the objective is
# maximized, REFERENCE / objective where it is minimized.

SHAPE = (16, 2)
REFERENCE = 12.889266112
# GUIDE-BLOCK-END


# GUIDE-BLOCK-START
def score(output: Value) -> Evaluation:
    """Return the verdict on 16 points in the plane, an array (16, 2).

    Raises:
        ValueError: If the answer has another form, or two points coincide.
    """
    return score_points(output, SHAPE, REFERENCE)


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
