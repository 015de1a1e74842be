"""Fenced parts of a reply with all that stands behind their backticks: language, path, both."""

import re
from dataclasses import dataclass

from costada.values.program_form import find_language

_OPENING = re.compile(r"(?P<indent>[ \t]*)(?P<ticks>`{3,})(?P<info>[^`]*)")
_TITLE = re.compile(r"(?:title|file|filename|path)\s*[=:]\s*[\"']?", re.IGNORECASE)
_WORD = re.compile(r"[\w+#-]+")

DIFFS = ("diff", "patch")
"""Words behind the backticks of differences, which are not the texts of files."""

NESTING = ("markdown", "md", "text", "txt", "")
"""Words behind the backticks of texts that may hold fences of their own."""


@dataclass(frozen=True, slots=True)
class Fence:
    """A fenced part of a reply.

    Attributes:
        first: Number of the line that opens it, counted from 0.
        last: Number of the line that closes it, or of the last line.
        info: What stands behind the opening backticks.
        text: What stands between the fences.
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
        """Whether it holds a difference, not a text."""
        return self.language in DIFFS

    @property
    def path(self) -> str:
        """What stands behind its language, or in the place of it: a path, if it is one."""
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
        opening = _OPENING.fullmatch(lines[number]) if "`" in lines[number] else None
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
    may_nest = opening["info"].strip().lower() in NESTING
    depth, latest = 0, None
    for number in range(first + 1, len(lines)):
        inner = _OPENING.fullmatch(lines[number]) if "`" in lines[number] else None
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
