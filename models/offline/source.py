"""A program as the offline model sees it: text, syntax tree and the lines meant to change."""

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

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
        """Tell whether all lines of a node lie in the part meant to change."""
        return self.first_line <= node.lineno and (node.end_lineno or 0) <= self.last_line

    def functions(self) -> tuple[ast.FunctionDef, ...]:
        """Return the editable functions at the top level, in order."""
        return tuple(
            node
            for node in self.tree.body
            if isinstance(node, ast.FunctionDef) and self.is_editable(node)
        )

    def function(self, name: str) -> ast.FunctionDef | None:
        """Return the editable top-level function of that name."""
        return next((node for node in self.functions() if node.name == name), None)

    def source(self, node: ast.stmt | ast.expr) -> str:
        """Return the text of a node."""
        span = self.replacing(node, "")
        return self.text[span.start : span.end]

    def lines(self, first: int, last: int) -> str:
        """Return whole lines, counted from 1, both ends included."""
        return "\n".join(self.text.split("\n")[first - 1 : last])

    def replacing(self, node: ast.stmt | ast.expr, text: str) -> Splice:
        """Return the splice that puts a text in the place of a node."""
        first = self._offset(node.lineno, node.col_offset)
        end = self._offset(node.end_lineno or node.lineno, node.end_col_offset or 0)
        return Splice(first, end, text)

    def between(self, left: ast.expr, right: ast.expr) -> Splice:
        """Return the splice that keeps the text between two nodes, ready to be altered."""
        start, end = self.replacing(left, "").end, self.replacing(right, "").start
        return Splice(start, end, self.text[start:end])

    def before(self, node: ast.stmt, text: str) -> Splice:
        """Return the splice that puts whole lines above a statement."""
        return self.replacing_lines(_first_line(node), _first_line(node) - 1, text)

    def after(self, node: ast.stmt, text: str) -> Splice:
        """Return the splice that puts whole lines below a statement."""
        last = node.end_lineno or node.lineno
        return self.replacing_lines(last + 1, last, text)

    def replacing_lines(self, first: int, last: int, text: str) -> Splice:
        """Return the splice that puts a text in the place of whole lines, both ends included."""
        ends = self._offset(first, 0), self._offset(last + 1, 0)
        return Splice(*ends, text if not text or text.endswith("\n") else text + "\n")

    def without(self, node: ast.stmt) -> Splice:
        """Return the splice that removes the lines of a statement and the blank ones below."""
        lines = self.text.split("\n")
        last = node.end_lineno or node.lineno
        while last < len(lines) - 1 and not lines[last].strip():
            last += 1
        return self.replacing_lines(_first_line(node), last, "")

    def importing(self, lines: Iterable[str]) -> Splice:
        """Return the splice that puts import lines above the first editable statement."""
        editable = [
            node
            for node in self.tree.body
            if self.is_editable(node) and not isinstance(node, ast.Expr)
        ]
        line = _first_line(editable[0]) if editable else self.first_line
        is_among_imports = editable and isinstance(editable[0], ast.Import | ast.ImportFrom)
        text = "\n".join(lines) + ("\n" if is_among_imports else "\n\n\n")
        return self.replacing_lines(line, line - 1, text)

    def changed(self, splices: Iterable[Splice]) -> str:
        """Return the text with all splices carried out; they must not overlap."""
        text = self.text
        for splice in sorted(splices, key=lambda each: (each.start, each.end), reverse=True):
            text = text[: splice.start] + splice.text + text[splice.end :]
        return text

    def _offset(self, line: int, column: int) -> int:
        lines = self.text.split("\n")
        start = sum([len(each) + 1 for each in lines[: line - 1]])
        here = lines[line - 1] if line <= len(lines) else ""
        return min(start + len(here.encode()[:column].decode()), len(self.text))


def read_program(text: str) -> Program | None:
    """Return the program, or None where the text is no program that can be parsed."""
    text = text.replace("\r\n", "\n").replace("\r", "\n").rstrip() + "\n"
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    first, last = _editable_lines(text)
    return Program(text, tree, first, last)


def names(node: ast.AST) -> set[str]:
    """Return the names that occur in a node."""
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}


def calls(node: ast.AST) -> Iterator[ast.Call]:
    """Return the calls in a node."""
    return (each for each in ast.walk(node) if isinstance(each, ast.Call))


def called_name(call: ast.Call) -> str:
    """Return the last part of the name of what is called, or an empty text."""
    if isinstance(call.func, ast.Attribute):
        return call.func.attr
    return call.func.id if isinstance(call.func, ast.Name) else ""


def assigned_name(node: ast.stmt) -> str | None:
    """Return the name a plain `name = value` statement assigns to."""
    if isinstance(node, ast.Assign) and len(node.targets) == 1:
        target = node.targets[0]
        return target.id if isinstance(target, ast.Name) else None
    return None


def range_call(loop: ast.expr) -> ast.Call | None:
    """Return the call of `range` in what a loop runs over, be it reversed or not."""
    if not isinstance(loop, ast.Call):
        return None
    if called_name(loop) == "reversed" and len(loop.args) == 1:
        return range_call(loop.args[0])
    return loop if called_name(loop) == "range" else None


def indented(text: str, spaces: int) -> str:
    """Return the text with each line that is not blank moved to the right."""
    return "\n".join(" " * spaces + line if line.strip() else "" for line in text.split("\n"))


def _first_line(node: ast.stmt) -> int:
    decorators = node.decorator_list if isinstance(node, ast.FunctionDef) else []
    return min([node.lineno, *(each.lineno for each in decorators)])


def _editable_lines(text: str) -> tuple[int, int]:
    lines = text.split("\n")
    edges = {
        found["edge"]: number
        for number, line in enumerate(lines, start=1)
        if (found := _BLOCK.match(line))
    }
    return edges.get("START", 0) + 1, edges.get("END", len(lines) + 1) - 1
