"""From what a candidate returned to arrays of exactly the expected form."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from costada.evaluators.sandbox.wire import Value

Floats = NDArray[np.float64]


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
    if isinstance(value, list):
        for item in value:
            yield from _leaves(item)
    else:
        yield value


def _shape(value: Value) -> tuple[int, ...] | None:
    """Return the shape of nested lists and arrays, None if they are ragged."""
    if not isinstance(value, list):
        return value.shape if isinstance(value, np.ndarray) else ()
    shapes = {_shape(item) for item in value}
    if not shapes:
        return (0,)
    inner = shapes.pop()
    return None if shapes or inner is None else (len(value), *inner)


def _kind(value: Value) -> str:
    if isinstance(value, str):
        return "text"
    return "a dict" if isinstance(value, dict) else repr(value)
