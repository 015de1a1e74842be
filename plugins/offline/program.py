"""A program as the offline model sees it, and what an edit of it is."""

import ast
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from random import Random

from costada.values.python_syntax import parsed_module

_BLOCK = re.compile(r"\s*#.*EVOLVE-BLOCK-(?P<edge>START|END)")


@dataclass(frozen=True, slots=True)
class Edit:
    """A changed program and what was done to it, in one sentence."""

    code: str
    summary: str


@dataclass(frozen=True, slots=True)
class Splice:
    """Replace the characters from `start` up to `end` with `text`."""

    start: int
    end: int
    text: str


@dataclass(frozen=True, slots=True)
class Program:
    """A program that parses.

    Attributes:
        text: The source, ending in one newline.
        tree: Its syntax tree.
        first_line: First line that may change, counted from 1.
        last_line: Last line that may change.
    """

    text: str
    tree: ast.Module
    first_line: int
    last_line: int

    def is_editable(self, node: ast.stmt | ast.expr) -> bool:
        """Whether all lines of a node lie in the part meant to change."""
        return self.first_line <= node.lineno and (node.end_lineno or 0) <= self.last_line

    def functions(self) -> list[ast.FunctionDef]:
        """The editable functions at the top level, in order."""
        found = (node for node in self.tree.body if isinstance(node, ast.FunctionDef))
        return [node for node in found if self.is_editable(node)]

    def function(self, name: str) -> ast.FunctionDef | None:
        """The editable top-level function of that name."""
        return next((node for node in self.functions() if node.name == name), None)

    def nodes(self) -> Iterator[ast.AST]:
        """All nodes of the editable functions."""
        return (node for function in self.functions() for node in ast.walk(function))

    def source(self, node: ast.stmt | ast.expr) -> str:
        """The text of a node."""
        span = self.replacing(node, "")
        return self.text[span.start : span.end]

    def lines(self, first: int, last: int) -> str:
        """Whole lines, counted from 1, both ends included."""
        return "\n".join(self.text.split("\n")[first - 1 : last])

    def replacing(self, node: ast.stmt | ast.expr, text: str) -> Splice:
        """The splice that puts a text in the place of a node."""
        first = self._offset(node.lineno, node.col_offset)
        return Splice(first, self._offset(last_line(node), node.end_col_offset or 0), text)

    def before(self, node: ast.stmt, text: str) -> Splice:
        """The splice that puts whole lines above a statement."""
        return self.replacing_lines(_first_line(node), _first_line(node) - 1, text)

    def after(self, node: ast.stmt, text: str) -> Splice:
        """The splice that puts whole lines below a statement."""
        return self.replacing_lines(last_line(node) + 1, last_line(node), text)

    def replacing_lines(self, first: int, last: int, text: str) -> Splice:
        """The splice that puts a text in the place of whole lines, both ends included."""
        ends = self._offset(first, 0), self._offset(last + 1, 0)
        return Splice(*ends, text if not text or text.endswith("\n") else text + "\n")

    def without(self, node: ast.stmt) -> Splice:
        """The splice that removes the lines of a statement and the blank ones below."""
        lines, last = self.text.split("\n"), last_line(node)
        while last < len(lines) - 1 and not lines[last].strip():
            last += 1
        return self.replacing_lines(_first_line(node), last, "")

    def importing(self, lines: Iterable[str]) -> Splice:
        """The splice that puts import lines above the first editable statement."""
        statements = (node for node in self.tree.body if not isinstance(node, ast.Expr))
        editable = [node for node in statements if self.is_editable(node)]
        line = _first_line(editable[0]) if editable else self.first_line
        is_among_imports = editable and isinstance(editable[0], ast.Import | ast.ImportFrom)
        text = "\n".join(lines) + ("\n" if is_among_imports else "\n\n\n")
        return self.replacing_lines(line, line - 1, text)

    def changed(self, splices: Iterable[Splice]) -> str:
        """The text with all splices carried out; they must not overlap."""
        text = self.text
        for splice in sorted(splices, key=lambda each: (each.start, each.end), reverse=True):
            text = text[: splice.start] + splice.text + text[splice.end :]
        return text

    def _offset(self, line: int, column: int) -> int:
        lines = self.text.split("\n")
        start = sum([len(each) + 1 for each in lines[: line - 1]])
        here = lines[line - 1] if line <= len(lines) else ""
        return min(start + len(here.encode()[:column].decode()), len(self.text))


@dataclass(frozen=True, slots=True)
class EditContext:
    """The programs of one prompt, which an edit may use.

    Attributes:
        program: The program to change.
        others: The other programs shown.
        is_exploration: Whether the prompt asks for a different program, not for a refined one.
    """

    program: Program
    others: tuple[Program, ...] = ()
    is_exploration: bool = False


EditKind = Callable[[EditContext, Random], Edit | None]
"""An edit of one kind; None where the program offers no place for it."""


def read_program(text: str) -> Program | None:
    """The program, or None where the text is not a program that can be parsed."""
    text = text.replace("\r\n", "\n").replace("\r", "\n").rstrip() + "\n"
    try:
        tree = parsed_module(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    lines = text.split("\n")
    edges = {"START": 0, "END": len(lines) + 1}
    for number, line in enumerate(lines, start=1):
        if found := _BLOCK.match(line):
            edges[found["edge"]] = number
    return Program(text, tree, edges["START"] + 1, edges["END"] - 1)


def names(node: ast.AST) -> set[str]:
    """The names that occur in a node."""
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}


def calls(node: ast.AST) -> Iterator[ast.Call]:
    """The calls in a node."""
    return (each for each in ast.walk(node) if isinstance(each, ast.Call))


def called_name(node: ast.AST | None) -> str:
    """The last part of the name of what is called; "" where nothing is."""
    if not isinstance(node, ast.Call):
        return ""
    if isinstance(node.func, ast.Attribute):
        return node.func.attr
    return node.func.id if isinstance(node.func, ast.Name) else ""


def assigned_name(node: ast.stmt) -> str | None:
    """The name a plain `name = value` statement assigns to."""
    if isinstance(node, ast.Assign) and len(node.targets) == 1:
        target = node.targets[0]
        return target.id if isinstance(target, ast.Name) else None
    return None


def stored_names(node: ast.AST) -> set[str]:
    """The names and arrays that a node assigns to, as a whole or in part."""
    return {
        ast.unparse(each).split("[")[0]
        for each in ast.walk(node)
        if isinstance(each, ast.Name | ast.Subscript) and isinstance(each.ctx, ast.Store)
    }


def range_call(loop: ast.expr) -> ast.Call | None:
    """The call of `range` in what a loop runs over, reversed or not."""
    if isinstance(loop, ast.Call) and called_name(loop) == "reversed" and len(loop.args) == 1:
        return range_call(loop.args[0])
    return loop if isinstance(loop, ast.Call) and called_name(loop) == "range" else None


def last_line(node: ast.stmt | ast.expr) -> int:
    """The line a node ends on."""
    return node.end_lineno or node.lineno


def indented(text: str) -> str:
    """The text with each line that is not blank moved to the right."""
    return "\n".join(f"    {line}" if line.strip() else "" for line in text.split("\n"))


def _first_line(node: ast.stmt) -> int:
    decorators = node.decorator_list if isinstance(node, ast.FunctionDef) else []
    return min([node.lineno, *(each.lineno for each in decorators)])
