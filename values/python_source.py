"""Functions and classes of a Python text, found by its tokens: nothing is parsed or executed."""

import re
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from tokenize import TokenInfo

FUNCTION_SIGN = "::"
"""Stands between the path of a file and the name of a function in it."""

NOT_PYTHON = (tokenize.TokenError, SyntaxError)
NEUTRAL = (tokenize.COMMENT, tokenize.NL, tokenize.ENCODING)
_QUOTES = re.compile(r"^[rRuUbB]*(\"\"\"|'''|\"|')|(\"\"\"|'''|\"|')$")


@dataclass(frozen=True, slots=True)
class Definition:
    """A function or class of a text; its lines count from 0.

    Attributes:
        name: Its name behind those of the definitions around it, such as `Class.method`.
        is_class: Whether it is a class.
        first: The line of its first decorator, or of its head.
        head: The line of its head.
        body: The line behind its head.
        end: The line behind its last one.
        indent: What its lines are indented by.
        summary: The first line of its docstring; empty if it has none.
    """

    name: str
    is_class: bool
    first: int
    head: int
    body: int
    end: int
    indent: str
    summary: str


@dataclass(frozen=True, slots=True)
class PythonSource:
    """What a Python text consists of.

    Attributes:
        lines: Its lines.
        definitions: Its functions and classes, in the order in which they begin; none of those
            that are inside of a function.
        statements: First line of each logical line outside of functions, and the line behind it;
            heads of definitions and docstrings are left out.
        in_strings: The lines that begin inside of a string.
    """

    lines: tuple[str, ...]
    definitions: tuple[Definition, ...]
    statements: tuple[tuple[int, int], ...]
    in_strings: frozenset[int]

    def find(self, name: str) -> tuple[Definition, ...]:
        """The definitions of a name; several where it is defined again."""
        return tuple(each for each in self.definitions if each.name == name)

    def at(self, line: int) -> Definition | None:
        """The innermost definition around a line; None outside of all."""
        around = [each for each in self.definitions if each.first <= line < each.end]
        return around[-1] if around else None

    def text(self, definition: Definition) -> str:
        """The lines of a definition."""
        return "\n".join(self.lines[definition.first : definition.end])


@lru_cache(maxsize=512)
def read_python(text: str) -> PythonSource | None:
    """What a text consists of, its lines ending in LF; None if its tokens are not Python's."""
    lines = text.split("\n")
    scan = _Scan()
    try:
        for token in tokenize.generate_tokens(iter([f"{line}\n" for line in lines]).__next__):
            scan.take(token)
    except NOT_PYTHON:
        return None
    found = sorted(scan.done, key=lambda each: (each.first, -each.end))
    strings = frozenset(scan.in_strings)
    return PythonSource(tuple(lines), tuple(found), tuple(scan.statements), strings)


@dataclass(slots=True)
class _Open:
    """A definition whose end is not known yet, and the depth of its head."""

    name: str
    is_class: bool
    first: int
    head: int
    indent: str
    depth: int
    body: int = 0
    end: int = 0
    summary: str = ""
    awaits_docstring: bool = True


@dataclass(slots=True)
class _Scan:
    """Takes the tokens of a text one by one."""

    done: list[Definition] = field(default_factory=list)
    statements: list[tuple[int, int]] = field(default_factory=list)
    in_strings: set[int] = field(default_factory=set)
    _line: list[TokenInfo] = field(default_factory=list)
    _opened: list[_Open] = field(default_factory=list)
    _depth: int = 0
    _decorated: int | None = None
    _is_start: bool = True

    def take(self, token: TokenInfo) -> None:
        """Take the next token."""
        kind = token.type
        if kind == tokenize.NEWLINE:
            if self._line:  # not the one that is added behind a last line without an end
                self._end_line()
            self._line = []
        elif kind == tokenize.INDENT:
            self._depth += 1
        elif kind == tokenize.DEDENT:
            self._depth -= 1
        elif kind == tokenize.ENDMARKER:
            self._close(0)
        elif kind not in NEUTRAL:
            self._line.append(token)
            if token.end[0] > token.start[0]:
                self.in_strings.update(range(token.start[0], token.end[0]))

    def _end_line(self) -> None:
        """Take a logical line: close what ends before it, and open what it begins."""
        words, first = self._line, self._line[0].start[0] - 1
        end = words[-1].end[0]
        self._close(self._depth)
        if words[0].string == "@":
            self._decorated = first if self._decorated is None else self._decorated
            return
        opened = self._opened[-1] if self._opened else None
        is_text = all(each.type == tokenize.STRING for each in words)
        if opened and opened.awaits_docstring:
            opened.awaits_docstring = False
            if is_text:
                opened.summary = _first_line(words[0].string)
        for each in self._opened:
            each.end = end
        names = [each.string for each in words[:3]]
        if names[:1] == ["async"]:
            names.pop(0)
        if names[:1] in (["def"], ["class"]) and len(names) > 1:
            outer = f"{opened.name}." if opened else ""
            indent = words[0].line[: words[0].start[1]]
            start = first if self._decorated is None else self._decorated
            kind = _Open(outer + names[1], names[0] == "class", start, first, indent, self._depth)
            kind.body = kind.end = end
            # A body in the line of the head.
            kind.awaits_docstring = words[-1].string == ":"
            self._opened.append(kind)
        elif not (opened and not opened.is_class) and not (is_text and (opened or self._is_start)):
            self.statements.append((first, end))
        self._decorated, self._is_start = None, False

    def _close(self, depth: int) -> None:
        while self._opened and self._opened[-1].depth >= depth:
            each = self._opened.pop()
            if self._opened and not all(around.is_class for around in self._opened):
                continue
            self.done.append(
                Definition(
                    name=each.name,
                    is_class=each.is_class,
                    first=each.first,
                    head=each.head,
                    body=each.body,
                    end=each.end,
                    indent=each.indent,
                    summary=each.summary,
                )
            )


def _first_line(string: str) -> str:
    """The first line of a docstring that is not blank."""
    bare = _QUOTES.sub("", string).strip()
    return bare.split("\n")[0].strip() if bare else ""


def shifted(source: PythonSource, old: str, new: str) -> Iterator[str]:
    """The lines of a text that is indented in another way.

    Lines inside of strings stay as they are, and so do those that are indented less.

    Args:
        source: The text.
        old: What its first line is indented by.
        new: What it is to be indented by.
    """
    for number, line in enumerate(source.lines):
        is_kept = number in source.in_strings or not line.strip() or not line.startswith(old)
        yield line if is_kept else new + line.removeprefix(old)
