"""A part of a program put back into the fixed frame of its parent."""

import re
from dataclasses import dataclass

from costada.prompts.definitions import defined_names, defines_all, merged

BLOCK_START = "EVOLVE-BLOCK-START"
BLOCK_END = "EVOLVE-BLOCK-END"

_START_LINE = re.compile(rf"^[ \t]*#[ \t]*{BLOCK_START}.*$", re.MULTILINE)
_END_LINE = re.compile(rf"^[ \t]*#[ \t]*{BLOCK_END}.*$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Framed:
    """A program cut at its EVOLVE-BLOCK lines.

    Attributes:
        head: Everything up to and with the START line; empty if there is none.
        block: What lies between the two lines.
        tail: The END line and everything behind it; empty if there is none.
    """

    head: str
    block: str
    tail: str


def cut_at_markers(code: str) -> Framed:
    """Return the code cut at its first START line and its last END line."""
    start = _START_LINE.search(code)
    first = start.end() if start else 0
    ends = [match.start() for match in _END_LINE.finditer(code) if match.start() >= first]
    last = ends[-1] if ends else len(code)
    return Framed(code[:first], code[first:last], code[last:])


def has_whole_block(text: str) -> bool:
    """Tell whether the text holds a START line and an END line behind it."""
    framed = cut_at_markers(text)
    return bool(framed.head and framed.tail)


def has_marker(text: str) -> bool:
    """Tell whether the text holds a START or an END line."""
    framed = cut_at_markers(text)
    return bool(framed.head or framed.tail)


def from_block_start(text: str) -> str:
    """Return the text from its first START line on, or all of it if it has none."""
    start = _START_LINE.search(text)
    return text[start.start() :] if start else text


def required_names(parent_code: str, entry_point: str | None) -> frozenset[str]:
    """Return what a changed program must define: the entry point, or all that the frame does.

    The frame decides where the entry point is unknown; a parent without one demands nothing.
    """
    if entry_point is not None:
        return frozenset({entry_point})
    if not has_whole_block(parent_code):
        return frozenset()
    parent = cut_at_markers(parent_code)
    return defined_names(f"{parent.head}\n{parent.tail}")


def completed(text: str, parent_code: str, required: frozenset[str]) -> str | None:
    """Return a program with the required names: the text, put into its parent if need be.

    Put in is a bare EVOLVE block, and anything that lacks a required name. A text with an
    EVOLVE-BLOCK line replaces the parent's block; one without replaces the functions and classes
    of the same names there. The rest of the parent stays as it is.

    Returns:
        The program, or None if neither way leads to one that defines the names.
    """
    part, parent = cut_at_markers(text), cut_at_markers(parent_code)
    has_frame = has_whole_block(parent_code)
    if defines_all(text, required) and not (has_frame and _is_block_alone(part)):
        return text
    block: str | None
    if has_frame and has_marker(text):
        block = part.block if part.head else "\n" + part.block
        block = block if part.tail else block.rstrip("\n") + "\n"
    else:
        block = merged(parent.block, part.block)
    if block is None:
        return None
    code = parent.head + block + parent.tail
    return code if defines_all(code, required) else None


def _is_block_alone(part: Framed) -> bool:
    outside = part.head.strip(), part.tail.strip()
    return all(line and "\n" not in line for line in outside)
