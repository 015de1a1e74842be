"""Parts of a reply, fenced texts and SEARCH/REPLACE blocks, and how blocks change a program."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import dropwhile, islice

from costada.values.program_form import find_language

_FENCE = re.compile(r"(?P<indent>[ \t]*)(?P<ticks>`{3,})(?P<info>[^`]*)")
_TITLE = re.compile(r"(?:title|file|filename|path)\s*[=:]\s*[\"']?", re.IGNORECASE)
_WORD = re.compile(r"[\w+#-]+")

DIFFS = ("diff", "patch")
"""Words after the backticks of diffs, which are not the texts of files."""

NESTING = ("markdown", "md", "text", "txt", "")
"""Words after the backticks of texts that may hold fences of their own."""


@dataclass(frozen=True, slots=True)
class Fence:
    """A fenced part of a reply.

    Attributes:
        first: Number of the line that opens it, counted from 0.
        last: Number of the line that closes it, or of the last line.
        info: What follows the opening backticks.
        text: What is between the fences.
        is_closed: Whether the closing fence was there; if not, the reply ends in this part.
    """

    first: int
    last: int
    info: str
    text: str
    is_closed: bool

    @property
    def language(self) -> str:
        """The word for its language, in lower case; empty if there is none."""
        word = _WORD.match(self.info)
        rest = self.info[word.end() :] if word else ""
        if word is None or rest.startswith((".", "/")):
            return ""
        return word[0].lower()

    @property
    def is_diff(self) -> bool:
        """Whether it holds a diff, not a text."""
        return self.language in DIFFS

    @property
    def path(self) -> str:
        """What follows its language, or is in its place: a path, if it looks like one."""
        rest = self.info.removeprefix(self.info[: len(self.language)]).lstrip(" \t:=,{")
        return _TITLE.sub("", rest, count=1).strip(" \t\"'}")


def find_fences(reply: str) -> tuple[Fence, ...]:
    """The fenced parts of a reply in order.

    A part ends at a line of at least as many backticks, which are not indented or as the opening
    ones: a fence inside an indented docstring does not end it. In one whose language is Markdown,
    plain text or unknown, a fence that opens with a language closes first.
    """
    lines = reply.split("\n")
    found, number = [], 0
    while number < len(lines):
        opening = _FENCE.fullmatch(lines[number]) if "`" in lines[number] else None
        if opening is None:
            number += 1
            continue
        last, is_closed = _end_of(lines, number, opening)
        text = "\n".join(lines[number + 1 : last if is_closed else last + 1])
        found.append(Fence(number, last, opening["info"].strip(), text, is_closed))
        number = last + 1
    return tuple(found)


def _end_of(lines: list[str], first: int, opening: re.Match[str]) -> tuple[int, bool]:
    """The line that closes a fence, and whether there is one."""
    # In a fence of code, backticks belong to the code and open nothing.
    may_nest = opening["info"].strip().lower() in NESTING
    depth, latest = 0, None
    for number in range(first + 1, len(lines)):
        inner = _FENCE.fullmatch(lines[number]) if "`" in lines[number] else None
        if inner is None or len(inner["ticks"]) < len(opening["ticks"]):
            continue
        if inner["info"].strip():
            word = _WORD.match(inner["info"].strip())
            depth += bool(may_nest and word and find_language(word[0]))
        elif inner["indent"] in ("", opening["indent"]) or depth:
            latest = number
            if not depth:
                return number, True
            depth -= 1
    # With an inner fence left open, the last line that could close ends this one.
    return (len(lines) - 1, False) if latest is None or depth == 0 else (latest, True)


def unfenced(text: str) -> str:
    """What the fence around the whole text encloses, or the text if there is none."""
    fences = find_fences(text)
    if len(fences) == 1 and fences[0].first == 0 and fences[0].is_closed:
        behind = text.split("\n")[fences[0].last + 1 :]
        return text if any(line.strip() for line in behind) else fences[0].text
    return text


def fenced(text: str, language: str) -> str:
    """A text in a fence longer than any run of backticks in it, so that nothing inside ends it.

    Its lines end in LF.
    """
    longest = max(map(len, re.findall("`+", text)), default=0) if "`" in text else 0
    ticks = "`" * max(3, longest + 1)
    body = text.replace("\r\n", "\n").strip("\n")
    return f"{ticks}{language}\n{body}\n{ticks}"


# Linear time without possessive quantifiers, which CPython matches wrongly before 3.11.5: wherever
# a repetition gives something back, what must follow it fails at once.
# Models miscount the signs before SEARCH and REPLACE; the divider has no word, and so is exact.
_OPENING = r"[ \t]*<{5,9} ?SEARCH\b"
_DIVIDER = r"={7}[ \t]*\n"
_CLOSING = r"[ \t]*>{5,9} ?REPLACE\b"
BLOCK = re.compile(
    rf"^{_OPENING}.*\n"
    rf"(?P<search>(?:(?!{_OPENING}|{_DIVIDER}).*\n)*){_DIVIDER}"
    rf"(?P<replacement>(?:(?!{_OPENING}|{_CLOSING}).*\n)*){_CLOSING}.*$",
    re.MULTILINE,
)
"""A SEARCH/REPLACE block with all three markers."""

_MARKER_SIGNS = ("<<<<<<< SEARCH", ">>>>>>> REPLACE", "=======")
# Behind `=` or `#`, a row of signs is a rule or a comment in a program, not a marker.
_GLUED_MARKER = re.compile(
    r"(?<=\S)[ \t]*(?:<{7} SEARCH|>{7} REPLACE)[ \t]*$|(?<=[^\s=#])={7}[ \t]*$", re.MULTILINE
)
_STRAY_OPENING = re.compile(rf"^{_OPENING}", re.MULTILINE)
_STRAY_DIVIDER = re.compile(rf"^{_DIVIDER}", re.MULTILINE)
_STRAY_CLOSING = re.compile(rf"^{_CLOSING}", re.MULTILINE)

_DEFINITION = re.compile(r"^[ \t]*(?:async[ \t]+def|def|class)[ \t]+(?P<name>\w+)", re.MULTILINE)
_DOCSTRING = re.compile(r"\s*[rR]?(?:\"\"\"|''')\s*(?P<line>.*)")


@dataclass(frozen=True, slots=True)
class Edit:
    """One block: whole lines to look for and the lines to put in their place."""

    search: str
    replacement: str


@dataclass(frozen=True, slots=True)
class Edits:
    """The blocks of a reply that have all three markers, and the reply without them."""

    complete: tuple[Edit, ...]
    rest: str


@dataclass(frozen=True, slots=True)
class Patched:
    """A program after its edits; `unmatched` are those that found no place and changed nothing."""

    code: str
    applied: tuple[Edit, ...] = ()
    unmatched: tuple[Edit, ...] = ()


def with_markers_on_own_lines(reply: str) -> str:
    """The reply with each marker on a separate line."""
    if not any(sign in reply for sign in _MARKER_SIGNS):
        return reply
    return _GLUED_MARKER.sub(r"\n\g<0>", reply)


def find_edits(reply: str) -> Edits:
    """The blocks of a reply; one that begins again before its end counts from there."""
    if "SEARCH" not in reply:
        return Edits((), reply)
    return Edits(tuple(map(as_edit, BLOCK.finditer(reply))), BLOCK.sub("", reply))


def as_edit(block: re.Match[str]) -> Edit:
    """The edit of a `BLOCK` found in a reply; fences around its two texts are left out."""
    return Edit(unfenced(block["search"]).rstrip(), unfenced(block["replacement"]).rstrip())


def has_unfinished_edit(text: str) -> bool:
    """Whether a block begins in a text from which the complete ones were taken out."""
    return "SEARCH" in text and _STRAY_OPENING.search(text) is not None


def without_stray_markers(text: str) -> str:
    """The new lines of a block whose SEARCH marker was forgotten, else the text itself."""
    closing = _STRAY_CLOSING.search(text) if "REPLACE" in text else None
    return text if closing is None else _STRAY_DIVIDER.split(text[: closing.start()])[-1]


def apply_edits(code: str, edits: tuple[Edit, ...]) -> Patched:
    """The program after the edits, each applied to what the ones before it left."""
    lines, applied, unmatched = code.split("\n"), [], []
    for edit in edits:
        place = _find_place(lines, edit)
        if place is None:
            unmatched.append(edit)
            continue
        lines[place.start : place.end] = place.lines
        applied.append(edit)
    return Patched("\n".join(lines), tuple(applied), tuple(unmatched))


@dataclass(frozen=True, slots=True)
class _Place:
    """Lines `start` to `end` (excluded) of a program, and the lines that replace them."""

    start: int
    end: int
    lines: tuple[str, ...]
    is_shifted: bool = False


def _find_place(program: list[str], edit: Edit) -> _Place | None:
    """Where the edit belongs, or None; a blank SEARCH text has no place.

    The first place where all lines are equal is taken. Without one, a place counts if it differs
    only in blank lines and trailing blanks; or, failing that, also in indentation that is shifted
    by the same amount on every line, in which case the replacement is shifted too. Such a place
    is taken only if it is the only one.
    """
    if not edit.search.strip():
        return None
    search = edit.search.split("\n")
    new = edit.replacement.split("\n") if edit.replacement.strip() else []
    for start in range(len(program) - len(search) + 1):
        end = start + len(search)
        if program[start:end] == search:
            return _Place(start, end, tuple(new))
    close = list(_close_places(program, search, new))
    candidates = [place for place in close if not place.is_shifted] or close
    return candidates[0] if len(candidates) == 1 else None


def _close_places(program: list[str], search: list[str], new: list[str]) -> Iterator[_Place]:
    wanted = [line.rstrip() for line in search if line.strip()]
    filled = [number for number, line in enumerate(program) if line.strip()]
    for first in range(len(filled) - len(wanted) + 1):
        numbers = filled[first : first + len(wanted)]
        added, removed = _shift(wanted[0], program[numbers[0]])

        def fits(line: str, removed: str = removed) -> bool:
            return not line.strip() or line.startswith(removed)

        def shift(line: str, added: str = added, removed: str = removed) -> str:
            return added + line.removeprefix(removed) if line.strip() else line

        pairs = zip(wanted, (program[number] for number in numbers), strict=True)
        if all(fits(line) and shift(line) == found.rstrip() for line, found in pairs) and all(
            map(fits, new)
        ):
            lines = tuple(map(shift, new))
            yield _Place(numbers[0], numbers[-1] + 1, lines, is_shifted=bool(added or removed))


def _shift(wanted: str, found: str) -> tuple[str, str]:
    """The indentation to add and to remove so that one line is indented like another."""
    have, need = (line[: len(line) - len(line.lstrip())] for line in (wanted, found))
    return (need.removesuffix(have), "") if need.endswith(have) else ("", have.removesuffix(need))


def mismatch(edit: Edit, program: str) -> str:
    """Why a SEARCH text has no place in a program, for the model that wrote it."""
    if not edit.search.strip():
        return "- A SEARCH text is empty."
    first = edit.search.strip("\n").split("\n")[0]
    present = {line.rstrip() for line in program.split("\n")}
    missing = [line for line in edit.search.split("\n") if line.rstrip() not in present]
    if missing:
        why = f"the program has no line `{missing[0]}`"
    else:
        why = "its lines are in the program, but not one behind the other, or more than once"
    return f"- The one that begins with `{first}`: {why}."


def patch_summary(patched: Patched) -> str:
    """What was changed: a line for each edit that was applied, and one that counts the others."""
    lines = []
    for edit in patched.applied:
        old, new = edit.search.strip(), edit.replacement.strip()
        definition = _definition_summary(edit.replacement)
        is_one_line = "\n" not in old + new
        change = f"{old} -> {new}" if is_one_line else f"{_length(old)} -> {_length(new)}"
        lines.append(change if definition is None else definition)
    if patched.unmatched:
        lines.append(f"edits without a place: {len(patched.unmatched)}")
    return "\n".join(lines)


def rewrite_summary(text: str) -> str:
    """A line about the first function or class of a rewritten text, or its length."""
    return f"rewrite of {_definition_summary(text) or _length(text)}"


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
