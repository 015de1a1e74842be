"""The whole text of a file as a reply gives it, in the frame of its EVOLVE-BLOCK lines."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from costada.prompts.reply_parts import (
    Edit,
    Fence,
    apply_edits,
    find_fences,
    has_unfinished_edit,
    patch_summary,
    without_stray_markers,
)
from costada.values.program_form import PYTHON, TEXT, Language, find_language

BLOCK_START = "EVOLVE-BLOCK-START"
BLOCK_END = "EVOLVE-BLOCK-END"

Marks = tuple[re.Pattern[str], re.Pattern[str]]
"""What finds the lines that begin and end the part that is meant to change."""


def _marks(comment: str) -> Marks:
    start, end = (
        re.compile(rf"^[ \t]*{comment}[ \t]*{word}.*$", re.MULTILINE)
        for word in (BLOCK_START, BLOCK_END)
    )
    return start, end


PYTHON_MARKS = _marks("#")
ANY_MARKS = _marks(r"(?:[^\w\s]{1,6}|REM|C)")
"""Marks behind the comment sign of any language."""

_HEAD = re.compile(r"^(?:async[ \t]+def|def|class)[ \t]+(?P<name>\w+)", re.MULTILINE)
_NEW_STATEMENT = re.compile(r"[^\s#)\]}]")
_LONG_QUOTE = re.compile(r"\"\"\"|'''")


@dataclass(frozen=True, slots=True)
class FramedProgram:
    """A program cut at its EVOLVE-BLOCK lines.

    Attributes:
        head: Everything up to and with the START line; empty if there is none.
        block: What lies between the two lines.
        tail: The END line and everything after it; empty if there is none.
    """

    head: str
    block: str
    tail: str


# One reply asks eight times for the same two or three texts: the parent, a fence, the new program.
@lru_cache(maxsize=8)
def cut_at_markers(code: str, marks: Marks = PYTHON_MARKS) -> FramedProgram:
    """The code cut at its first START line and its last END line."""
    # The plain search first: the patterns try to match at each line of a program.
    start = marks[0].search(code) if BLOCK_START in code else None
    first = start.end() if start else 0
    found = marks[1].finditer(code, first) if BLOCK_END in code else ()
    ends = [match.start() for match in found]
    last = ends[-1] if ends else len(code)
    return FramedProgram(code[:first], code[first:last], code[last:])


def has_whole_block(text: str, marks: Marks = PYTHON_MARKS) -> bool:
    """Whether the text holds a START line and an END line after it."""
    framed = cut_at_markers(text, marks)
    return bool(framed.head and framed.tail)


def has_marker(text: str) -> bool:
    """Whether the text holds a START or an END line."""
    framed = cut_at_markers(text)
    return bool(framed.head or framed.tail)


def required_names(parent_code: str, entry_point: str | None) -> frozenset[str]:
    """What a changed program must define: the entry point, or all that the frame does.

    The frame decides where the entry point is unknown; a parent without one demands nothing.
    """
    if entry_point is not None:
        return frozenset({entry_point})
    if not has_whole_block(parent_code):
        return frozenset()
    parent = cut_at_markers(parent_code)
    return defined_names(f"{parent.head}\n{parent.tail}")


def complete_program(text: str, parent_code: str, required: frozenset[str]) -> str | None:
    """The text as a program with the required names, inserted into its parent where needed.

    A bare EVOLVE block is inserted, also with one of its two lines, and so is a text that lacks a
    required name. A text with an EVOLVE-BLOCK line replaces the parent's block; one without
    replaces the functions and classes of the same names there. The rest of the parent stays as it
    is.

    Returns:
        The program, or None if neither way leads to one that defines the names.
    """
    part, parent = cut_at_markers(text), cut_at_markers(parent_code)
    has_frame = has_whole_block(parent_code)
    outside = part.head.strip(), part.tail.strip()
    # Nothing but marker lines outside, perhaps only one: the reply has the block, not the program.
    is_block_alone = any(outside) and not any("\n" in line for line in outside)
    if defines_all(text, required) and not (has_frame and is_block_alone):
        return text
    block: str | None
    if has_frame and has_marker(text):
        block = part.block if part.head else "\n" + part.block
        block = block if part.tail else block.rstrip("\n") + "\n"
    else:
        block = with_definitions(parent.block, part.block)
    if block is None:
        return None
    code = parent.head + block + parent.tail
    return code if defines_all(code, required) else None


def defines(code: str, name: str) -> bool:
    """Whether the name gets a value at the top level: by definition or assignment."""
    word = re.escape(name)
    pattern = (
        rf"^(?:async[ \t]+def|def|class)[ \t]+{word}\b"
        rf"|^{word}[ \t]*(?::[^=\n]+)?=(?!=)"
    )
    return re.search(pattern, code, re.MULTILINE) is not None


def defines_all(code: str, names: frozenset[str]) -> bool:
    """Whether every name gets a value at the top level."""
    return all(defines(code, name) for name in names)


def defined_names(code: str) -> frozenset[str]:
    """The names of the functions and classes at the top level."""
    return frozenset(match["name"] for match in _HEAD.finditer(code))


def with_definitions(code: str, changes: str) -> str | None:
    """The code with the definitions it shares with `changes` taken from there.

    All of `changes` is put where the first shared definition stood; the others are dropped. None
    if the two share no definition.
    """
    shared = defined_names(code) & defined_names(changes)
    if not shared:
        return None
    kept: list[str] = []
    is_placed = False
    for statement in top_level_statements(code):
        head = _HEAD.search(statement)
        if head is None or head["name"] not in shared:
            kept.append(statement)
        elif not is_placed:
            kept.append(changes.strip("\n") + "\n\n")
            is_placed = True
    return "\n".join(kept)


def top_level_statements(code: str) -> tuple[str, ...]:
    """The code cut at its top-level statements; joined by line ends it is whole again.

    Decorators, and the blank and comment lines behind a statement, belong to it.
    """
    groups: list[list[str]] = [[]]
    open_quote: str | None = None
    for line in code.split("\n"):
        is_decorated = bool(groups[-1]) and groups[-1][-1].startswith("@")
        # A long string may hold lines that look like statements.
        if open_quote is None and _NEW_STATEMENT.match(line) and not is_decorated:
            groups.append([])
        groups[-1].append(line)
        for quote in _LONG_QUOTE.findall(line):
            if open_quote is None:
                open_quote = quote
            elif quote == open_quote:
                open_quote = None
    return tuple("\n".join(lines) for lines in groups if lines)


UNREADABLE = re.compile("[\N{REPLACEMENT CHARACTER}\ud800-\udfff]")
"""Characters that cannot be encoded, and the one that replaces them when an answer is read."""

MAX_PROGRAM_CHARACTERS = 60_000
"""Longer programs are refused."""

MIN_SHARED = 0.2
"""Share of a fence's lines that the parent has where its language is another one."""

MIN_LENGTH = 0.5
"""Share of the longest fence's length from which on a later fence counts as its correction."""


FAMILIES = (
    ("C", "C++", "CUDA", "Metal"),
    ("JavaScript", "TypeScript"),
    ("Python", "Triton"),
    ("YAML", "JSON", "TOML"),
)
"""Languages whose names models use for one another."""


@dataclass(frozen=True, slots=True)
class Rejection:
    """Why a reply yields no program, worded for the model that wrote it."""

    reason: str


def are_related(one: Language, other: Language) -> bool:
    """Whether two languages are equal, or models use the name of one for the other."""
    return one == other or any({one.name, other.name} <= set(family) for family in FAMILIES)


def edit_text(parent: str, edits: tuple[Edit, ...]) -> tuple[str, str, tuple[Edit, ...]]:
    """A text after edits with its line ends kept, what was changed, and the edits without place."""
    has_returns = "\r\n" in parent
    patched = apply_edits(parent.replace("\r\n", "\n") if has_returns else parent, edits)
    code = patched.code.replace("\n", "\r\n") if has_returns else patched.code
    return code, patch_summary(patched), patched.unmatched


def invalid_text_reason(text: str, parent: str, growth: int = 0) -> str | None:
    """Why a changed text cannot be that of a candidate; None if it can.

    One beyond the limit may have `growth` characters more than its parent.
    """
    # What a parent has already, its child may keep; the same goes for a length beyond the limit.
    if len(UNREADABLE.findall(text)) > len(UNREADABLE.findall(parent)):
        return "holds a character that cannot be encoded"
    limit = max(MAX_PROGRAM_CHARACTERS, len(parent) + growth)
    if len(text) > limit:
        return f"has {len(text)} characters; at most {limit} are allowed"
    return None


def find_whole_text(
    rest: str,
    unmatched: Sequence[Edit],
    parent: str,
    language: Language,
    entry_point: str | None = None,
) -> str | Rejection:
    """The text that most likely is the new one or the part of it between the marks, or why none is.

    Args:
        rest: The reply without its SEARCH/REPLACE blocks.
        unmatched: Blocks whose SEARCH text is not in the parent.
        parent: The text that the reply was to change.
        language: Its language.
        entry_point: Name of a function that a Python text must define; None if there is none.
    """
    # What half a block left behind is not a program.
    fences = [fence for fence in find_fences(rest) if not has_unfinished_edit(fence.text)]
    if language == PYTHON:
        required = required_names(parent, entry_point)
        found = _find_python(rest, fences, unmatched, parent, required)
    else:
        fences = [fence for fence in fences if fence.text.strip() and not fence.is_diff]
        found = _find_ranked(rest, fences, parent, language)
    if found is not None:
        return found
    if has_unfinished_edit(rest):
        return Rejection("The answer ends before its first SEARCH/REPLACE block is complete.")
    if language != PYTHON and any(not fence.is_closed for fence in fences):
        return Rejection("The answer ends before its program is complete.")
    if not parent:
        defining = f" that defines `{entry_point}` at the top level" if entry_point else ""
        return Rejection(f"The answer holds no complete program{defining}.")
    return Rejection("The answer holds neither a SEARCH/REPLACE block nor a complete program.")


def _find_python(
    rest: str,
    fences: Sequence[Fence],
    unmatched: Sequence[Edit],
    parent: str,
    required: frozenset[str],
) -> str | None:
    """A Python text, from the fences or the whole reply.

    Preferred is a text with a whole EVOLVE block, then one with the required names, then one with
    a definition of the parent's block; fenced texts come before the whole reply. Among equals the
    last is taken: models write a program again to correct it. The replacement of an unmatched block
    counts if it is a whole program or EVOLVE block.
    """
    replacements = [edit.replacement for edit in unmatched]
    fenced = [without_stray_markers(fence.text) for fence in fences]
    found = _most_complete([*replacements, *fenced], required)
    if found is not None:
        return found
    known = defined_names(cut_at_markers(parent).block)
    for fence in reversed(fences):
        is_part = has_marker(fence.text) or not known or known & defined_names(fence.text)
        if fence.is_closed and is_part:
            return fence.text
    # Without its end a block would be read as part of the program.
    if has_unfinished_edit(rest):
        return None
    whole = without_stray_markers(rest)
    start = PYTHON_MARKS[0].search(whole)
    return _most_complete([whole[start.start() :] if start else whole], required)


def _most_complete(texts: list[str], required: frozenset[str]) -> str | None:
    blocks = [text for text in texts if has_whole_block(text)]
    programs = [text for text in texts if required and defines_all(text, required)]
    return next(reversed(blocks or programs), None)


def _find_ranked(rest: str, fences: Sequence[Fence], parent: str, language: Language) -> str | None:
    """A text in another language, from the fences or between marks without a fence.

    Preferred is a fence with both EVOLVE-BLOCK marks, then one of the right language, then one that
    names none, then one of another language that shares lines with the parent. Among those that
    are not much shorter than the longest, the last is taken.
    """
    ranks = {fence: _rank(fence, parent, language) for fence in fences}
    highest = max(ranks.values(), default=0)
    if highest > 0:
        best = [fence for fence in fences if ranks[fence] == highest]
        longest = max(len(fence.text) for fence in best)
        return [each.text for each in best if len(each.text) >= MIN_LENGTH * longest][-1]
    block = cut_at_markers(rest, ANY_MARKS)
    if fences or not (block.head and block.tail):
        return None
    start, end = (line.strip().split("\n") for line in (block.head, block.tail))
    return f"{start[-1]}{block.block}{end[0]}"


def _rank(fence: Fence, parent: str, language: Language) -> int:
    if has_whole_block(fence.text, ANY_MARKS):
        return 4
    if not fence.is_closed:
        return 0
    found = find_language(fence.language) if fence.language else TEXT
    if found == language:
        return 3
    if found in (None, TEXT) or are_related(found, language):
        return 2
    if language == TEXT and found.is_document:
        return 2
    return 1 if shared_ratio(fence.text, parent) >= MIN_SHARED else 0


def shared_ratio(text: str, parent: str) -> float:
    """Share of the lines of a text that another one has; blank lines do not count."""
    lines = [line.strip() for line in text.split("\n") if line.strip()]
    known = {line.strip() for line in parent.split("\n")}
    return sum(line in known for line in lines) / max(1, len(lines))


def whole_text(
    text: str, parent: str, language: Language, entry_point: str | None = None
) -> str | None:
    """A rewritten text in the frame of its parent, where it is the part between the marks alone.

    Args:
        text: What a reply gives as the new text.
        parent: The text that it replaces; empty if there is none.
        language: Their language.
        entry_point: Name of a function that a Python text must define; None if there is none.

    Returns:
        The whole text; None if a Python text lacks a name that it must define.
    """
    if language == PYTHON:
        whole = complete_program(text, parent, required_names(parent, entry_point))
    else:
        whole = _insert_into_frame(text, parent)
    return None if whole is None else whole.strip("\n") + "\n"


def _insert_into_frame(text: str, parent: str) -> str:
    frame, part = cut_at_markers(parent, ANY_MARKS), cut_at_markers(text, ANY_MARKS)
    if not (frame.head and frame.tail):
        return text
    around = f"{frame.head}\n{frame.tail}".split("\n")
    outside = [line for line in around if line.strip() and "EVOLVE-BLOCK" not in line]
    known = {line.strip() for line in text.split("\n")}
    kept = sum(line.strip() in known for line in outside)
    # With half the lines of the frame the text is a whole file, not only what is between the marks.
    if outside and 2 * kept >= len(outside):
        return text
    return f"{frame.head}\n{part.block.strip(chr(10))}\n{frame.tail}"
