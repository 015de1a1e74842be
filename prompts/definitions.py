"""Functions and classes at the top level of a program, found as text."""

import re
from dataclasses import dataclass

_HEAD = re.compile(r"^(?:async[ \t]+def|def|class)[ \t]+(?P<name>\w+)", re.MULTILINE)
_NEW_STATEMENT = re.compile(r"[^\s#)\]}]")
_LONG_QUOTE = re.compile(r"\"\"\"|'''")


@dataclass(frozen=True, slots=True)
class Piece:
    """The lines of one top-level statement.

    Attributes:
        name: Name of the function or class it defines; None for any other statement.
        text: The lines, with decorators, and the blank and comment lines behind.
    """

    name: str | None
    text: str


def defines(code: str, name: str) -> bool:
    """Tell whether the name gets a value at the top level: by definition or assignment."""
    word = re.escape(name)
    pattern = (
        rf"^(?:async[ \t]+def|def|class)[ \t]+{word}\b"
        rf"|^{word}[ \t]*(?::[^=\n]+)?=(?!=)"
    )
    return re.search(pattern, code, re.MULTILINE) is not None


def defines_all(code: str, names: frozenset[str]) -> bool:
    """Tell whether every one of the names gets a value at the top level."""
    return all(defines(code, name) for name in names)


def defined_names(code: str) -> frozenset[str]:
    """Return the names of the functions and classes at the top level."""
    return frozenset(match["name"] for match in _HEAD.finditer(code))


def merged(code: str, changes: str) -> str | None:
    """Return the code with the definitions it shares with `changes` taken from there.

    All of `changes` is put where the first shared definition stood; the others are dropped.

    Returns:
        The merged code, or None if the two share no definition.
    """
    shared = defined_names(code) & defined_names(changes)
    if not shared:
        return None
    kept: list[str] = []
    is_placed = False
    for piece in pieces(code):
        if piece.name not in shared:
            kept.append(piece.text)
        elif not is_placed:
            kept.append(changes.strip("\n") + "\n\n")
            is_placed = True
    return "\n".join(kept)


def pieces(code: str) -> tuple[Piece, ...]:
    """Return the code cut at its top-level statements; joined by line ends it is whole again."""
    groups: list[list[str]] = [[]]
    open_quote: str | None = None
    for line in code.split("\n"):
        is_decorated = bool(groups[-1]) and groups[-1][-1].startswith("@")
        if open_quote is None and _NEW_STATEMENT.match(line) and not is_decorated:
            groups.append([])
        groups[-1].append(line)
        open_quote = _open_quote(line, open_quote)
    return tuple(_piece("\n".join(lines)) for lines in groups if lines)


def _piece(text: str) -> Piece:
    head = _HEAD.search(text)
    return Piece(head["name"] if head else None, text)


def _open_quote(line: str, open_quote: str | None) -> str | None:
    """Return the long quote that is still open behind the line."""
    for quote in _LONG_QUOTE.findall(line):
        if open_quote is None:
            open_quote = quote
        elif quote == open_quote:
            open_quote = None
    return open_quote
