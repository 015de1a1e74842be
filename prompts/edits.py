"""Fenced code and SEARCH/REPLACE blocks: found in a reply, applied to a program."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce
from itertools import dropwhile, islice

_FENCE_OPENING = re.compile(
    r"(?P<indent>[ \t]*)(?P<ticks>`{3,})[ \t]*+(?P<language>[\w+#.-]*)[ \t]*"
)


@dataclass(frozen=True, slots=True)
class Fence:
    """A fenced part of a reply.

    Attributes:
        language: The word behind the opening backticks, in lower case; often empty.
        text: What stands between the fences.
        is_closed: Whether the closing fence was there; if not, the reply ends in this part.
    """

    language: str
    text: str
    is_closed: bool


def fenced(text: str, language: str) -> str:
    """Return the text in a fence longer than any run of backticks in it."""
    longest = max(map(len, re.findall("`+", text)), default=0) if "`" in text else 0
    ticks = "`" * max(3, longest + 1)
    body = text.strip("\n")
    return f"{ticks}{language}\n{body}\n{ticks}"


def find_fences(reply: str) -> tuple[Fence, ...]:
    """Return the fenced parts of a reply in order.

    A part ends at a line of at least as many backticks with the same indentation, so that a
    fence inside an indented docstring does not end it.
    """
    found: list[Fence] = []
    opening: re.Match[str] | None = None
    body: list[str] = []
    for line in reply.split("\n"):
        if opening is None:
            opening, body = _FENCE_OPENING.fullmatch(line), []
        elif _closes(line, opening):
            found.append(_fence(opening, body, is_closed=True))
            opening = None
        else:
            body.append(line)
    if opening is not None:
        found.append(_fence(opening, body, is_closed=False))
    return tuple(found)


def unwrapped(text: str) -> str:
    """Return what the fence around the whole text encloses, or the text if there is none."""
    fences = find_fences(text)
    if len(fences) == 1 and _FENCE_OPENING.match(text) and text.rstrip().endswith("`"):
        return fences[0].text
    return text


def _closes(line: str, opening: re.Match[str]) -> bool:
    if "`" not in line:
        return False
    closing = line.rstrip().removeprefix(opening["indent"])
    return set(closing) == {"`"} and len(closing) >= len(opening["ticks"])


def _fence(opening: re.Match[str], body: list[str], *, is_closed: bool) -> Fence:
    return Fence(opening["language"].lower(), "\n".join(body), is_closed)


@dataclass(frozen=True, slots=True)
class Place:
    """Lines `start` to `end` (excluded) of a program, and the lines that replace them."""

    start: int
    end: int
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Shift:
    """A change of indentation; only one of the two texts is not empty."""

    added: str = ""
    removed: str = ""

    def fits(self, line: str) -> bool:
        """Tell whether the line has the indentation to lose; a blank line needs none."""
        return not line.strip() or line.startswith(self.removed)

    def moved(self, line: str) -> str:
        """Return the line at its new indentation."""
        return self.added + line.removeprefix(self.removed) if line.strip() else line

    def leads(self, line: str, other: str) -> bool:
        """Tell whether the moved line equals the other but for trailing blanks."""
        return self.fits(line) and self.moved(line).rstrip() == other.rstrip()


def find_place(program: list[str], search: str, replacement: str) -> Place | None:
    """Return where the edit belongs, or None.

    The first place where all lines are equal is taken. Without one, a place counts if it differs
    only in blank lines and trailing blanks; or, failing that, also in indentation that is shifted
    by the same amount on every line, in which case the replacement is shifted too. Such a place
    is taken only if it is the only one.

    Args:
        program: Lines of the program.
        search: Text to look for; nothing is found if it is blank.
        replacement: Text to put there; a blank one deletes the lines.
    """
    if not search.strip():
        return None
    new = replacement.split("\n") if replacement.strip() else []
    exact = _exact_place(program, search.split("\n"), new)
    if exact is not None:
        return exact
    close = list(_close_places(program, search, new))
    unshifted = [place for shift, place in close if shift == _Shift()]
    for places in (unshifted, [place for _, place in close]):
        if places:
            return places[0] if len(places) == 1 else None
    return None


def missing_line(program: str, search: str) -> str | None:
    """Return the first line of the SEARCH text that the program does not contain, if any."""
    present = {line.rstrip() for line in program.split("\n")}
    return next((line for line in search.split("\n") if line.rstrip() not in present), None)


def _exact_place(program: list[str], search: list[str], new: list[str]) -> Place | None:
    size = len(search)
    for start in range(len(program) - size + 1):
        if program[start : start + size] == search:
            return Place(start, start + size, tuple(new))
    return None


def _close_places(
    program: list[str], search: str, new: list[str]
) -> Iterator[tuple[_Shift, Place]]:
    wanted = [line.rstrip() for line in search.split("\n") if line.strip()]
    filled = [number for number, line in enumerate(program) if line.strip()]
    for first in range(len(filled) - len(wanted) + 1):
        numbers = filled[first : first + len(wanted)]
        shift = _shift_between(wanted[0], program[numbers[0]])
        pairs = ((line, program[number]) for line, number in zip(wanted, numbers, strict=True))
        if all(shift.leads(*pair) for pair in pairs) and all(map(shift.fits, new)):
            yield shift, Place(numbers[0], numbers[-1] + 1, tuple(map(shift.moved, new)))


def _shift_between(wanted: str, found: str) -> _Shift:
    have, need = _indentation(wanted), _indentation(found)
    if need.endswith(have):
        return _Shift(added=need.removesuffix(have))
    return _Shift(removed=have.removesuffix(need))


def _indentation(line: str) -> str:
    return line[: len(line) - len(line.lstrip())]


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


_DEFINITION = re.compile(r"^[ \t]*(?:async[ \t]+def|def|class)[ \t]+(?P<name>\w+)", re.MULTILINE)
_DOCSTRING = re.compile(r"\s*[rR]?(?:\"\"\"|''')\s*(?P<line>.*)")


def patch_summary(patched: Patched) -> str:
    """Return a line for each edit that was applied, and one that counts the others."""
    lines = [_edit_summary(edit) for edit in patched.applied]
    if patched.unmatched:
        lines.append(f"edits without a place: {len(patched.unmatched)}")
    return "\n".join(lines)


def rewrite_summary(text: str) -> str:
    """Return a line about the first function or class of a rewritten text, or its length."""
    return f"rewrite of {_definition_summary(text) or _length(text)}"


def _edit_summary(edit: Edit) -> str:
    definition = _definition_summary(edit.replacement)
    if definition is not None:
        return definition
    old, new = edit.search.strip(), edit.replacement.strip()
    if "\n" not in old + new:
        return f"{old} -> {new}"
    return f"{_length(old)} -> {_length(new)}"


def _definition_summary(text: str) -> str | None:
    found = _DEFINITION.search(text)
    if found is None:
        return None
    lines = text[found.start() :].split("\n")
    body = dropwhile(lambda line: not line.rstrip().endswith(":"), lines)
    docstring = _DOCSTRING.match("\n".join(islice(body, 1, None)))
    purpose = docstring["line"].strip(" \t\"'") if docstring else ""
    return f"{found['name']}: {purpose}" if purpose else found["name"]


def _length(text: str) -> str:
    count = len(text.split("\n")) if text else 0
    return f"{count} line{'' if count == 1 else 's'}"
