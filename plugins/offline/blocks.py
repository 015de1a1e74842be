"""Changed programs as answers: SEARCH/REPLACE blocks, or a fence."""

import re
from difflib import SequenceMatcher

_CONTEXTS = (1, 2, 4, 8)
"""Unchanged lines around a change that are tried in turn."""

Block = tuple[list[str], list[str]]
"""Lines to look for and lines to put in their place."""


def replace_blocks(old: str, new: str) -> str | None:
    """SEARCH/REPLACE blocks that turn one program into the other when applied in order.

    A block shows as many unchanged lines around its change as it takes to find its place. None
    where eight are not enough.
    """
    before, after = old.rstrip().split("\n"), new.rstrip().split("\n")
    for context in _CONTEXTS:
        matcher = SequenceMatcher(None, before, after, autojunk=False)
        blocks: list[Block] = []
        for group in matcher.get_grouped_opcodes(context):
            search = before[group[0][1] : group[-1][2]]
            replacement = after[group[0][3] : group[-1][4]]
            for edge in (0, -1):  # without blank lines at the edges that both sides have
                while search and replacement and not (search[edge] + replacement[edge]).strip():
                    del search[edge], replacement[edge]
            blocks.append((search, replacement))
        if blocks and _applied(before, blocks) == after:
            parts = [("\n".join(search), "\n".join(put)) for search, put in blocks]
            texts = [f"<<<<<<< SEARCH\n{a}\n=======\n{b}\n>>>>>>> REPLACE" for a, b in parts]
            return "\n\n".join(texts)
    return None


def _applied(lines: list[str], blocks: list[Block]) -> list[str]:
    """The lines after all blocks, each put where its search occurs first.

    Nothing is returned if that would depend on blank lines at the edge of a block.
    """
    for search, replacement in blocks:
        for side in (search, replacement):
            if not side or not side[0].strip() or not side[-1].strip():
                return []
        places = range(len(lines) - len(search) + 1)
        place = next((k for k in places if lines[k : k + len(search)] == search), None)
        if place is None:
            return []
        lines = [*lines[:place], *replacement, *lines[place + len(search) :]]
    return lines


def fenced(code: str, language: str = "python") -> str:
    """A whole program in a fence longer than any run of backticks in it."""
    ticks = "`" * max([3, *(len(run) + 1 for run in re.findall("`+", code))])
    return f"{ticks}{language}\n{code.strip()}\n{ticks}"
