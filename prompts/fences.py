"""Fenced code: written so that nothing inside can end it, and read from a reply."""

import re
from dataclasses import dataclass

_OPENING = re.compile(r"(?P<indent>[ \t]*)(?P<ticks>`{3,})[ \t]*+(?P<language>[\w+#.-]*)[ \t]*")


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
            opening, body = _OPENING.fullmatch(line), []
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
    if len(fences) == 1 and _OPENING.match(text) and text.rstrip().endswith("`"):
        return fences[0].text
    return text


def _closes(line: str, opening: re.Match[str]) -> bool:
    if "`" not in line:
        return False
    closing = line.rstrip().removeprefix(opening["indent"])
    return set(closing) == {"`"} and len(closing) >= len(opening["ticks"])


def _fence(opening: re.Match[str], body: list[str], *, is_closed: bool) -> Fence:
    return Fence(opening["language"].lower(), "\n".join(body), is_closed)
