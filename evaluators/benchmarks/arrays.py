"""From what a candidate returned to arrays of exactly the expected form."""

import numpy as np
from numpy.typing import NDArray

from costada.evaluators.sandbox.wire import Value


def float_array(value: Value, name: str, shape: tuple[int, ...]) -> NDArray[np.float64]:
    """Return value as a finite float64 array of exactly the shape given.

    Args:
        value: A plain array, or nested lists of numbers.
        name: What the array is called in errors.
        shape: The only shape accepted.

    Raises:
        ValueError: Telling expected and actual shape or type, or where a number is not finite.
    """
    try:
        array = np.asarray(value)
    except ValueError:
        raise ValueError(f"{name} is ragged; expected an array of shape {shape}") from None
    if array.dtype.kind not in "iuf":
        kind = "text" if array.dtype.kind in "US" else array.dtype.name
        raise ValueError(f"{name} holds {kind} values; expected numbers, shape {shape}")
    if array.shape != shape:
        raise ValueError(f"{name} has shape {array.shape}; expected {shape}")
    floats = array.astype(np.float64)
    faulty = np.argwhere(~np.isfinite(floats))
    if len(faulty):
        place = ", ".join(str(i) for i in faulty[0])
        raise ValueError(
            f"{name}[{place}] is {floats[tuple(faulty[0])]}; expected finite numbers "
            f"({len(faulty)} of {floats.size} are not finite)"
        )
    return floats
