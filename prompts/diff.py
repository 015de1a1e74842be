"""SEARCH/REPLACE blocks: found in a reply, applied to a program."""

import re
from dataclasses import dataclass
from functools import reduce

from costada.prompts.fences import unwrapped
from costada.prompts.place import find_place

_OPENING = r"[ \t]*<{5,9} ?SEARCH\b"
_DIVIDER = r"={7}[ \t]*\n"
_CLOSING = r"[ \t]*>{5,9} ?REPLACE\b"

_BLOCK = re.compile(
    rf"^{_OPENING}.*\n"
    rf"(?P<search>(?:(?!{_OPENING}|{_DIVIDER}).*\n)*+){_DIVIDER}"
    rf"(?P<replacement>(?:(?!{_OPENING}|{_CLOSING}).*\n)*+){_CLOSING}.*$",
    re.MULTILINE,
)
_GLUED_MARKER = re.compile(
    r"(?<=\S)[ \t]*(?:<{7} SEARCH|>{7} REPLACE)[ \t]*$|(?<=[^\s=#])={7}[ \t]*$", re.MULTILINE
)
_MARKER_SIGNS = ("<<<<<<< SEARCH", ">>>>>>> REPLACE", "=======")
_STRAY_OPENING = re.compile(rf"^{_OPENING}", re.MULTILINE)
_STRAY_DIVIDER = re.compile(rf"^{_DIVIDER}", re.MULTILINE)
_STRAY_CLOSING = re.compile(rf"^{_CLOSING}", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Edit:
    """One block: whole lines to look for and the lines to put in their place."""

    search: str
    replacement: str


@dataclass(frozen=True, slots=True)
class Edits:
    """The blocks of a reply.

    Attributes:
        complete: Blocks with all three markers, in order.
        rest: The reply without these blocks.
    """

    complete: tuple[Edit, ...]
    rest: str


@dataclass(frozen=True, slots=True)
class Patched:
    """A program after its edits.

    Attributes:
        code: The program; an edit without a place has left no trace in it.
        applied: Edits that found their place, in order.
        unmatched: Edits that did not.
    """

    code: str
    applied: tuple[Edit, ...] = ()
    unmatched: tuple[Edit, ...] = ()


def separated(reply: str) -> str:
    """Return the reply with every marker that ends a line of other text on a line of its own."""
    if not any(sign in reply for sign in _MARKER_SIGNS):
        return reply
    return _GLUED_MARKER.sub(r"\n\g<0>", reply)


def find_edits(reply: str) -> Edits:
    """Return the blocks of a reply; one begun anew before its end counts from the new beginning."""
    if "SEARCH" not in reply:
        return Edits((), reply)
    complete = tuple(
        Edit(_body(block["search"]), _body(block["replacement"]))
        for block in _BLOCK.finditer(reply)
    )
    return Edits(complete, _BLOCK.sub("", reply))


def has_unfinished_edit(text: str) -> bool:
    """Tell whether a block begins in a text from which the complete ones were taken out."""
    return "SEARCH" in text and _STRAY_OPENING.search(text) is not None


def without_stray_markers(text: str) -> str:
    """Return the new lines of a block whose SEARCH marker was forgotten, else the text itself."""
    closing = _STRAY_CLOSING.search(text) if "REPLACE" in text else None
    if closing is None:
        return text
    return _STRAY_DIVIDER.split(text[: closing.start()])[-1]


def apply_edits(code: str, edits: tuple[Edit, ...]) -> Patched:
    """Return the program after the edits, each applied to what the ones before it left."""
    return reduce(_apply, edits, Patched(code))


def _apply(patched: Patched, edit: Edit) -> Patched:
    lines = patched.code.split("\n")
    place = find_place(lines, edit.search, edit.replacement)
    if place is None:
        return Patched(patched.code, patched.applied, (*patched.unmatched, edit))
    lines[place.start : place.end] = place.lines
    return Patched("\n".join(lines), (*patched.applied, edit), patched.unmatched)


def _body(text: str) -> str:
    return unwrapped(text).rstrip()
