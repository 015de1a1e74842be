"""A program written down: as SEARCH/REPLACE blocks against another one, or as a whole."""

import re
from difflib import SequenceMatcher

Block = tuple[list[str], list[str]]
"""Lines to look for and lines to put in their place."""

_CONTEXTS = (1, 2, 4, 8)


def replace_blocks(old: str, new: str) -> str | None:
    """Return blocks that turn one program into the other when applied in order.

    A block shows as many unchanged lines around its change as it takes to find its place. None
    where eight are not enough.
    """
    before, after = old.rstrip().split("\n"), new.rstrip().split("\n")
    for context in _CONTEXTS:
        blocks = _blocks(before, after, context)
        if blocks and _applied(before, blocks) == after:
            return "\n\n".join(map(_written, blocks))
    return None


def fenced(code: str) -> str:
    """Return a whole program in a fence longer than any run of backticks in it."""
    ticks = "`" * max([3, *(len(run) + 1 for run in re.findall("`+", code))])
    return f"{ticks}python\n{code.strip()}\n{ticks}"


def _blocks(before: list[str], after: list[str], context: int) -> list[Block]:
    matcher = SequenceMatcher(None, before, after, autojunk=False)
    return [
        _trimmed(before[group[0][1] : group[-1][2]], after[group[0][3] : group[-1][4]])
        for group in matcher.get_grouped_opcodes(context)
    ]


def _trimmed(search: list[str], replacement: list[str]) -> Block:
    """Return the block without blank lines at its edges that both sides have."""
    for edge in (0, -1):
        while search and replacement and not (search[edge] + replacement[edge]).strip():
            del search[edge], replacement[edge]
    return search, replacement


def _applied(lines: list[str], blocks: list[Block]) -> list[str]:
    """Return the lines after all blocks, each put where its search occurs first.

    Nothing is returned if that would depend on blank lines at the edge of a block.
    """
    for each in blocks:
        search, replacement = each
        if any(not side or not side[0].strip() or not side[-1].strip() for side in each):
            return []
        places = range(len(lines) - len(search) + 1)
        place = next((k for k in places if lines[k : k + len(search)] == search), None)
        if place is None:
            return []
        lines = [*lines[:place], *replacement, *lines[place + len(search) :]]
    return lines


def _written(block: Block) -> str:
    search, replacement = ("\n".join(lines) for lines in block)
    return f"<<<<<<< SEARCH\n{search}\n=======\n{replacement}\n>>>>>>> REPLACE"
