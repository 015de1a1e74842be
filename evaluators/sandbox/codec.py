"""Encodes plain data as bytes: what crosses the border to and from a candidate's process.

A message is the length of its header (8 bytes, big-endian), the header (JSON), and the bodies
of its arrays. The header holds the value and, for each array, type and shape. Nothing in a
message is ever executed or unpickled. Both sides use this file; the candidate's side loads it
by path, so it imports nothing of ours, and numpy only when an array turns up.
"""

import json
import math
import sys
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Array: TypeAlias = NDArray[np.float64] | NDArray[np.int64]

Value: TypeAlias = (
    "bool | int | float | str | list[Value] | dict[str, Value]"
    " | NDArray[np.float64] | NDArray[np.int64] | None"
)

LENGTH_BYTES = 8  # length prefix of a header, and of each message in a sequence
ITEM_BYTES = 8
MAX_HEADER_BYTES = 4 * 1024 * 1024
MAX_DEPTH = 32
MAX_DIMENSIONS = 32
MAX_SHAPE_CHARS = 100
MAX_INTEGER = 2**63
_ENCODER = json.JSONEncoder(ensure_ascii=False)  # `json.dumps` makes one for each call
_DECODER = json.JSONDecoder()
DTYPES = {"float64": "<f8", "int64": "<i8"}


def encode(value: object) -> bytes:
    """Encode a value as one message.

    Args:
        value: None, bool, number, text, array, or lists, tuples and dicts of these. Tuples
            arrive as lists, arrays as float64 or int64.

    Raises:
        ValueError: Naming the type that cannot be sent, or the limit that is exceeded.
    """
    arrays: list[Array] = []
    tree = _to_tree(value, arrays, 0)
    shapes = [{"dtype": array.dtype.name, "shape": list(array.shape)} for array in arrays]
    text = _ENCODER.encode({"value": tree, "arrays": shapes})
    header = text.encode("utf-8", "replace")
    if len(header) > MAX_HEADER_BYTES:
        raise ValueError(
            f"plain values take {len(header)} bytes; expected at most {MAX_HEADER_BYTES} "
            "(use NumPy arrays for large data)"
        )
    bodies = [array.astype(DTYPES[array.dtype.name]).tobytes() for array in arrays]
    return b"".join([len(header).to_bytes(LENGTH_BYTES, "big"), header, *bodies])


def decode(message: bytes | memoryview) -> "Value":
    """Decode the value of one message, trusting nothing about it.

    Raises:
        ValueError: If sizes, shapes or types do not fit together, or bytes are left over.
    """
    size = int.from_bytes(message[:LENGTH_BYTES], "big")
    end = LENGTH_BYTES + size
    if size > MAX_HEADER_BYTES or end > len(message):
        raise ValueError(f"message announces {size} bytes of header, {len(message)} arrived")
    try:
        text = str(message[LENGTH_BYTES:end], "utf-8")
        header, num_read = _DECODER.raw_decode(text)
        tree, specs = header["value"], list(header["arrays"])
    except (ValueError, KeyError, TypeError, RecursionError):
        raise ValueError("message has a malformed header") from None
    if num_read != len(text):
        raise ValueError("message has a malformed header")
    arrays = []
    for spec in specs:
        array, end = _read_array(message, end, spec)
        arrays.append(array)
    if end != len(message):
        raise ValueError(f"message has {len(message) - end} bytes too many")
    return _from_tree(tree, arrays, 0)


def framed(message: bytes) -> bytes:
    """A message behind its length."""
    return len(message).to_bytes(LENGTH_BYTES, "big") + message


def _to_tree(value: object, arrays: "list[Array]", depth: int) -> object:
    if depth > MAX_DEPTH:
        raise ValueError(f"values are nested more than {MAX_DEPTH} deep")
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, float):
        return float(value)
    if isinstance(value, int):
        return _checked_integer(int(value))
    if isinstance(value, (list, tuple)):
        return [_to_tree(item, arrays, depth + 1) for item in value]
    if isinstance(value, dict):
        for key in value:
            if not isinstance(key, str):
                kind = type(key).__name__
                raise ValueError(f"a dict key of type {kind} cannot be returned; use text")
        return {"dict": {k: _to_tree(item, arrays, depth + 1) for k, item in value.items()}}
    array = _to_array(value)
    if not array.shape:
        return _to_tree(array.item(), arrays, depth + 1)
    arrays.append(array)
    return {"array": len(arrays) - 1}


def _to_array(value: object) -> "Array":
    kind = type(value).__name__
    if "numpy" not in sys.modules or not hasattr(value, "__array__"):
        raise ValueError(f"a value of type {kind} cannot be returned; use numbers and arrays")
    import numpy as np

    if "numpy.ma" in sys.modules and isinstance(value, np.ma.MaskedArray):
        raise ValueError("a masked array cannot be returned; fill it first")
    # Converted once: the `__array__` of a candidate's object may return something else next time.
    array = np.asarray(value)
    if array.dtype.kind == "f":
        return array.astype(np.float64)
    if array.dtype.kind in "iub" and not (array.size and int(array.max()) >= MAX_INTEGER):
        return array.astype(np.int64)
    raise ValueError(f"an array of {array.dtype} values cannot be returned; use float64 or int64")


def _read_array(message: bytes | memoryview, start: int, spec: object) -> tuple["Array", int]:
    if not isinstance(spec, dict) or spec.get("dtype") not in list(DTYPES):
        raise ValueError("message holds an array of unknown type")
    shape = spec.get("shape")
    if not isinstance(shape, list) or not all(type(n) is int and n >= 0 for n in shape):
        raise ValueError(f"message holds an array of shape {str(shape)[:MAX_SHAPE_CHARS]}")
    if len(shape) > MAX_DIMENSIONS:
        raise ValueError(f"message announces an array of {len(shape)} dimensions")
    # Before the product, which could be a number of a thousand digits.
    if any(n > len(message) for n in shape):
        raise ValueError("message announces an array, too few bytes arrived")
    count = math.prod(shape)
    end = start + count * ITEM_BYTES
    if end > len(message):
        raise ValueError(f"message announces an array of shape {shape}, too few bytes arrived")
    import numpy as np

    flat = np.frombuffer(message, DTYPES[spec["dtype"]], count, start)
    return flat.astype(spec["dtype"]).reshape(shape), end


def _from_tree(tree: object, arrays: "list[Array]", depth: int) -> "Value":
    if depth > MAX_DEPTH:
        raise ValueError(f"values are nested more than {MAX_DEPTH} deep")
    if tree is None or isinstance(tree, (bool, float)):
        return tree
    if isinstance(tree, str):
        return _storable(tree)
    if isinstance(tree, int):
        return _checked_integer(tree)
    if isinstance(tree, list):
        return [_from_tree(item, arrays, depth + 1) for item in tree]
    if isinstance(tree, dict) and len(tree) == 1:
        [(kind, inner)] = tree.items()
        if kind == "dict" and isinstance(inner, dict):
            return {_storable(k): _from_tree(item, arrays, depth + 1) for k, item in inner.items()}
        if kind == "array" and isinstance(inner, int) and 0 <= inner < len(arrays):
            return arrays[inner]
    raise ValueError("message holds a value of unknown form")


def _storable(text: str) -> str:
    """The text without surrogate halves, which no file or database takes."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def _checked_integer(value: int) -> int:
    if not -MAX_INTEGER <= value < MAX_INTEGER:
        raise ValueError("an integer of more than 64 bits cannot be returned")
    return value
