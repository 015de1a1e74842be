"""The part of a program between its EVOLVE-BLOCK lines, and what Python code defines around it."""

import re
from dataclasses import dataclass

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
        if open_quote is None and _NEW_STATEMENT.match(line) and not is_decorated:
            groups.append([])
        groups[-1].append(line)
        for quote in _LONG_QUOTE.findall(line):
            if open_quote is None:
                open_quote = quote
            elif quote == open_quote:
                open_quote = None
    return tuple("\n".join(lines) for lines in groups if lines)
