"""A generator's reply in, a program out."""

import re
from dataclasses import dataclass

from costada.prompts.edits import (
    Edit,
    apply_edits,
    find_edits,
    find_fences,
    has_unfinished_edit,
    mismatch,
    patch_summary,
    rewrite_summary,
    with_markers_on_own_lines,
    without_stray_markers,
)

BLOCK_START = "EVOLVE-BLOCK-START"
BLOCK_END = "EVOLVE-BLOCK-END"

UNREADABLE = re.compile("[\N{REPLACEMENT CHARACTER}\ud800-\udfff]")
"""Characters that cannot be encoded, and the one that replaces them when an answer is read."""

MAX_PROGRAM_CHARACTERS = 60_000
"""Longer programs are refused."""

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
class Proposal:
    """A program read from a reply; whether it runs is not known yet.

    Attributes:
        code: Full source text; defines the entry point, if known, and differs from the parent.
        changes: What was changed, one line per edit.
    """

    code: str
    changes: str


@dataclass(frozen=True, slots=True)
class Rejection:
    """Why a reply yields no program, worded for the model that wrote it."""

    reason: str


def parse_program(reply: str, parent_code: str, entry_point: str | None) -> Proposal | Rejection:
    """The program a reply proposes, or why there is none.

    SEARCH/REPLACE blocks are applied to the parent. If none of them changes it, a rewritten program
    is looked for. A part of a program is inserted into the parent (see `complete_program`).

    Args:
        reply: Raw text of the answer.
        parent_code: The program the prompt showed as the current one.
        entry_point: Name of the function the evaluator calls; None if it does not say.
    """
    text = with_markers_on_own_lines(reply.replace("\r\n", "\n"))
    if not text.strip():
        return Rejection("The answer is empty.")
    required = required_names(parent_code, entry_point)
    edits = find_edits(text)
    patched = apply_edits(parent_code, edits.complete)
    if _differs(patched.code, parent_code):
        return _checked(patched.code, patch_summary(patched), parent_code, required)
    rewrite = find_rewrite(edits.rest, patched.unmatched, parent_code, required)
    if rewrite is not None:
        return _checked(rewrite, rewrite_summary(rewrite), parent_code, required)
    if patched.unmatched:
        reasons = [mismatch(edit, parent_code) for edit in patched.unmatched]
        return Rejection("\n".join(["No SEARCH text occurs in the current program:", *reasons]))
    if edits.complete:
        return Rejection("The SEARCH/REPLACE blocks leave the program as it is.")
    if has_unfinished_edit(edits.rest):
        return Rejection("The answer ends before its first SEARCH/REPLACE block is complete.")
    return Rejection("The answer holds neither a SEARCH/REPLACE block nor a complete program.")


def _checked(
    text: str, changes: str, parent_code: str, required: frozenset[str]
) -> Proposal | Rejection:
    code = complete_program(text, parent_code, required)
    if code is None:
        names = ", ".join(f"`{name}`" for name in sorted(required))
        return Rejection(f"The program no longer defines {names} at the top level.")
    if not _differs(code, parent_code):
        return Rejection("The answer repeats the current program without a change.")
    if len(UNREADABLE.findall(code)) > len(UNREADABLE.findall(parent_code)):
        return Rejection("The program holds a character that cannot be encoded.")
    if len(code) > MAX_PROGRAM_CHARACTERS:
        return Rejection(
            f"The program has {len(code)} characters; at most {MAX_PROGRAM_CHARACTERS} are allowed."
        )
    return Proposal(code.strip("\n") + "\n", changes)


def _differs(code: str, parent_code: str) -> bool:
    return code.strip() != parent_code.strip()


def find_rewrite(
    rest: str, unmatched: tuple[Edit, ...], parent_code: str, required: frozenset[str]
) -> str | None:
    """The text that most likely is the new program or a part of it.

    Preferred is a text with a whole EVOLVE block, then one with the required names, then one with
    a definition of the parent's block; fenced texts come before the whole reply. Among equals the
    last is taken: models write a program again to correct it.

    Args:
        rest: The reply without its SEARCH/REPLACE blocks.
        unmatched: Blocks whose SEARCH text is not in the parent. A replacement that is a whole
            program or EVOLVE block counts all the same.
        parent_code: The program the reply was to change.
        required: Names a complete program defines.
    """
    fences = [fence for fence in find_fences(rest) if not has_unfinished_edit(fence.text)]
    replacements = [edit.replacement for edit in unmatched]
    fenced = [without_stray_markers(fence.text) for fence in fences]
    found = _most_complete([*replacements, *fenced], required)
    if found is not None:
        return found
    known = defined_names(cut_at_markers(parent_code).block)
    for fence in reversed(fences):
        is_part = has_marker(fence.text) or not known or known & defined_names(fence.text)
        if fence.is_closed and is_part:
            return fence.text
    if has_unfinished_edit(rest):
        return None
    whole = without_stray_markers(rest)
    start = PYTHON_MARKS[0].search(whole)
    return _most_complete([whole[start.start() :] if start else whole], required)


def _most_complete(texts: list[str], required: frozenset[str]) -> str | None:
    blocks = [text for text in texts if has_whole_block(text)]
    programs = [text for text in texts if required and _defines_all(text, required)]
    return next(reversed(blocks or programs), None)


@dataclass(frozen=True, slots=True)
class FramedProgram:
    """A program cut at its EVOLVE-BLOCK lines.

    Attributes:
        head: Everything up to and with the START line; empty if there is none.
        block: What lies between the two lines.
        tail: The END line and everything behind it; empty if there is none.
    """

    head: str
    block: str
    tail: str


def cut_at_markers(code: str, marks: Marks = PYTHON_MARKS) -> FramedProgram:
    """The code cut at its first START line and its last END line."""
    start = marks[0].search(code)
    first = start.end() if start else 0
    ends = [match.start() for match in marks[1].finditer(code) if match.start() >= first]
    last = ends[-1] if ends else len(code)
    return FramedProgram(code[:first], code[first:last], code[last:])


def has_whole_block(text: str, marks: Marks = PYTHON_MARKS) -> bool:
    """Whether the text holds a START line and an END line behind it."""
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

    A bare EVOLVE block is inserted, and so is a text that lacks a required name. A text with an
    EVOLVE-BLOCK line replaces the parent's block; one without replaces the functions and classes of
    the same names there. The rest of the parent stays as it is.

    Returns:
        The program, or None if neither way leads to one that defines the names.
    """
    part, parent = cut_at_markers(text), cut_at_markers(parent_code)
    has_frame = has_whole_block(parent_code)
    outside = part.head.strip(), part.tail.strip()
    is_block_alone = all(line and "\n" not in line for line in outside)
    if _defines_all(text, required) and not (has_frame and is_block_alone):
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
    return code if _defines_all(code, required) else None


def defines(code: str, name: str) -> bool:
    """Whether the name gets a value at the top level: by definition or assignment."""
    word = re.escape(name)
    pattern = (
        rf"^(?:async[ \t]+def|def|class)[ \t]+{word}\b"
        rf"|^{word}[ \t]*(?::[^=\n]+)?=(?!=)"
    )
    return re.search(pattern, code, re.MULTILINE) is not None


def _defines_all(code: str, names: frozenset[str]) -> bool:
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
        if open_quote is None and _NEW_STATEMENT.match(line) and not is_decorated:
            groups.append([])
        groups[-1].append(line)
        for quote in _LONG_QUOTE.findall(line):
            if open_quote is None:
                open_quote = quote
            elif quote == open_quote:
                open_quote = None
    return tuple("\n".join(lines) for lines in groups if lines)
