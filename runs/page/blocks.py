"""All texts of a run, packed so that a page can unpack a few of them when they are asked for."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterator
from dataclasses import dataclass
from gzip import compress

from costada.runs.page.feed import Feed

ITERATIONS = 20
"""Iterations in a block: a page waits for no more than a blink until it is unpacked."""

LEVEL = 6
LARGEST_PAGE = 4 * 2**30
"""Bytes of all texts of a page before they are packed."""


@dataclass(frozen=True, slots=True)
class Block:
    """The texts of some iterations: `first` is the lowest of them, `packed` gzip in base64."""

    first: int
    packed: str


def blocks(feed: Feed) -> Iterator[Block]:
    """Yield the texts of all iterations in order; none before a run has begun.

    Raises as the methods of `Feed` do.
    """
    size = 0
    for first in sorted({each - each % ITERATIONS for each in feed.iterations()}):
        texts = json.dumps(feed.texts(first, first + ITERATIONS - 1)).encode("ascii")
        size += len(texts)
        if size > LARGEST_PAGE:
            raise ValueError(f"texts of more than {LARGEST_PAGE:,} bytes, too many for one page")
        # mtime=0: the same run gives the same file.
        packed = compress(texts, LEVEL, mtime=0)
        yield Block(first, b64encode(packed).decode("ascii"))
