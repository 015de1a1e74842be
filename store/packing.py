"""Texts as bytes: compressed, against an earlier text where they share much with it.

An answer repeats the program that its prompt showed, and a prompt repeats most of the one before.
"""

import zlib
from collections.abc import Callable

from costada.store.bounds import inflated

LEVEL = 1
AGAINST_ANOTHER = b"\0"
"""First byte of a text that needs another one; no compressed text begins with it."""

DIGEST_BYTES = 32
WINDOW = 32_768
"""Bytes of another text that compression can look back at."""

SHORTEST_BASE = 2048
"""Bytes from which on a text is worth comparing others with."""

CLEAR_GAIN = 16
"""At this ratio nobody asks what compression alone would have brought."""

LEAST_GAIN = 0.7
"""Share of a text's own compressed size from which on another text is no help."""


class Packer:
    """Compresses texts; at hand is one earlier text that they are compared with."""

    def __init__(self) -> None:
        self._base = b""
        self._compressor = zlib.compressobj(LEVEL)

    def pack(self, data: bytes) -> bytes:
        """Return a text's bytes in a form that `unpack` understands, alone or with its base."""
        if not self._base:
            return zlib.compress(data, LEVEL)
        against = self._against_base(data)
        if len(against) * CLEAR_GAIN < len(data):
            return against
        alone = zlib.compress(data, LEVEL)
        return against if len(against) < LEAST_GAIN * len(alone) else alone

    def offer_base(self, name: str, data: bytes, packed: bytes) -> None:
        """Compare later texts with this one, if it is stored for good and stands alone."""
        if len(data) >= SHORTEST_BASE and not packed.startswith(AGAINST_ANOTHER):
            self._base = bytes.fromhex(name)
            self._compressor = zlib.compressobj(LEVEL, zdict=data[-WINDOW:])

    def _against_base(self, data: bytes) -> bytes:
        compressor = self._compressor.copy()
        return b"".join(
            (AGAINST_ANOTHER, self._base, compressor.compress(data), compressor.flush())
        )


def unpack(packed: bytes, text_of: Callable[[str], bytes]) -> bytes:
    """Return a text's bytes; `text_of` returns those of another text by name.

    Raises:
        zlib.error: If the packed bytes are damaged, or larger than any text when unpacked.
    """
    if not packed.startswith(AGAINST_ANOTHER):
        return inflated(packed)
    start = len(AGAINST_ANOTHER)
    base, rest = packed[start : start + DIGEST_BYTES], packed[start + DIGEST_BYTES :]
    if not rest:
        raise zlib.error("it is cut short")
    return inflated(rest, text_of(base.hex())[-WINDOW:])
