"""Limits on what is read from a run file: a hostile file can be small and unpack to a lot."""

import json
import zlib
from decimal import Decimal, InvalidOperation
from typing import Any

LARGEST_TEXT = 16 * 2**20
"""Bytes of one text: a prompt, an answer, a program."""

LARGEST_CELL = 32 * 2**20
"""Bytes of one value in the file; SQLite refuses larger ones."""

LARGEST_READING = 128 * 2**20
"""Bytes of all texts in memory at the same time: of a part of the page, of a population."""

LONGEST_AMOUNT = 100
LARGEST_EXPONENT = 30
"""Characters of an amount in dollars, and its magnitude as a power of ten."""


def inflated(packed: bytes) -> bytes:
    """Compressed bytes as they were.

    Raises:
        zlib.error: If they are damaged or larger than any text is.
    """
    decompressor = zlib.decompressobj()
    data = decompressor.decompress(packed, LARGEST_TEXT + 1)
    if len(data) > LARGEST_TEXT:
        raise zlib.error(f"it unpacks to more than {LARGEST_TEXT:,} bytes")
    if not decompressor.eof:
        raise zlib.error("it is cut short")
    return data


def parsed(text: str, *, has_constants: bool = True) -> Any:
    """What a row holds as JSON; without constants, what is no number in JSON is `None`.

    Raises:
        ValueError: If it is no JSON, or is nested too deeply.
    """
    try:
        return json.loads(text) if has_constants else json.loads(text, parse_constant=_nothing)
    except (RecursionError, TypeError) as error:
        raise ValueError(f"a row of the run file is not valid JSON ({error})") from None


def record(text: str, *, has_constants: bool = True) -> dict[str, Any]:
    """The JSON object that a row holds; raises `ValueError` if it holds none."""
    known = parsed(text, has_constants=has_constants)
    if not isinstance(known, dict):
        raise ValueError(f"a row of the run file holds {str(text)[:20]!r}, expected a JSON object")
    return known


def amount(text: str) -> Decimal:
    """Dollars as a row holds them.

    Raises:
        ValueError: If they are no number, or one that no bill can show: written out, a number of
            few characters can be very long.
    """
    try:
        dollars = Decimal(text) if len(text) <= LONGEST_AMOUNT else Decimal("nan")
    except (InvalidOperation, TypeError):
        dollars = Decimal("nan")
    if not dollars.is_finite() or abs(dollars.adjusted()) > LARGEST_EXPONENT:
        raise ValueError(f"a row of the run file holds {str(text)[:20]!r}, expected dollars")
    return dollars


def _nothing(_: str) -> None:
    return None
