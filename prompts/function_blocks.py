"""What a block for one function holds beside it, and where in the file each part belongs."""

import re
import textwrap
from dataclasses import dataclass, replace

from costada.values.python_source import Definition, PythonSource

_ASSIGNED = re.compile(r"([^\W\d]\w*)\s*(?::[^=\n]+)?=(?!=)")
_IMPORT = re.compile(r"(?:import|from)\s")
_METHOD = re.compile(
    r"^(?:@(?:static|class)method\b|(?:async\s+)?def\s+\w+\s*\(\s*(?:self|cls)\b)", re.MULTILINE
)
_AT_ENDS = ("from __future__", "if __name__")
_PLACEHOLDERS = frozenset({"...", "pass"})


@dataclass(frozen=True, slots=True)
class Piece:
    """A statement or definition of a module or class, with all lines inside of it.

    Attributes:
        first: Its first line.
        end: The line behind its last one.
        text: Its lines, not indented.
        name: What it defines or assigns; empty if it does neither.
        is_definition: Whether it is a function or class.
    """

    first: int
    end: int
    text: str
    name: str
    is_definition: bool

    @property
    def is_import(self) -> bool:
        """Whether it is an import."""
        return _IMPORT.match(self.text) is not None


@dataclass(frozen=True, slots=True)
class Block:
    """The parts of a block.

    Attributes:
        text: What takes the place of the function.
        imports: What is added to the imports of the file.
    """

    text: str
    imports: tuple[str, ...]


def sort_block(
    source: PythonSource, old: Definition, given: PythonSource, target: Definition
) -> Block | Piece:
    """The parts of a block, or the first one that has no place in the file.

    Beside the function may stand what is new in its module or class. Imports of a method's block go
    to those of the file. What the file holds word by word is left out.

    Args:
        source: The file.
        old: The function in it.
        given: The block.
        target: The function in the block.
    """
    scope, wrappers = _innermost(source, old), _classes_around(given, target)
    short = target.name.rpartition(".")[2]
    of_module = {each.text for each in pieces(source, None)}
    of_scope = {each.text for each in pieces(source, scope)} | _PLACEHOLDERS
    left_out: list[Piece] = []
    imports: list[str] = []
    for level in (None, *wrappers):
        is_beside = level == _innermost(given, target)
        known = of_scope | of_module if level is None else of_scope
        for each in pieces(given, level):
            is_target = each.first <= target.first < each.end or each.name == short
            if is_target:
                continue
            if each.text in known:
                left_out.append(each)
            elif each.is_import and not each.text.startswith(_AT_ENDS) and (scope or wrappers):
                left_out.append(each)
                imports.append(each.text)
            elif not is_beside or not _fits(each, source, scope, wrappers):
                return each
    return Block(_kept_text(given, wrappers, left_out), tuple(imports))


def pieces(source: PythonSource, around: Definition | None) -> list[Piece]:
    """What a class consists of, or a module if it is None; no docstrings and comments."""
    prefix = f"{around.name}." if around else ""
    named = {
        each.first: each.name.removeprefix(prefix)
        for each in source.definitions
        if _innermost(source, each) == around
    }
    ends = {first: end for first, end in source.statements if source.at(first) == around}
    ends |= {each.first: each.end for each in source.definitions if each.first in named}
    least = min((_indent(source.lines[first]) for first in ends), default=0)
    found: list[Piece] = []
    for first in sorted(ends):
        if _indent(source.lines[first]) == least:
            name = named.get(first) or _assigned_name(source.lines[first])
            found.append(Piece(first, ends[first], "", name, first in named))
        elif found:  # inside of an `if` or `try`
            found[-1] = replace(found[-1], end=ends[first])
    return [
        replace(each, text=textwrap.dedent("\n".join(source.lines[each.first : each.end])))
        for each in found
    ]


def _assigned_name(line: str) -> str:
    assigned = _ASSIGNED.match(line.strip())
    return assigned[1] if assigned else ""


def line_of_imports(source: PythonSource, old: Definition) -> int:
    """The line for further imports: behind those of the file that precede a function, or first."""
    of_module = pieces(source, None)
    ends = [each.end for each in of_module if each.is_import and each.end <= old.first]
    return max(ends, default=of_module[0].first)


def _fits(
    piece: Piece, source: PythonSource, scope: Definition | None, wrappers: list[Definition]
) -> bool:
    """Whether a part works in the place of the function and replaces nothing of the file."""
    if piece.text.startswith(_AT_ENDS) or (piece.name and _exists(source, scope, piece.name)):
        return False
    if scope is None:
        return not wrappers
    return bool(wrappers) or _METHOD.search(piece.text) is not None


def _exists(source: PythonSource, scope: Definition | None, name: str) -> bool:
    """Whether a class, or the module if it is None, defines or assigns a name anywhere."""
    if source.find(f"{scope.name}.{name}" if scope else name):
        return True
    return any(
        _assigned_name(source.lines[first]) == name and source.at(first) == scope
        for first, _ in source.statements
    )


def _kept_text(given: PythonSource, wrappers: list[Definition], left_out: list[Piece]) -> str:
    """The lines of a block, or of the class in it, without the parts that are left out."""
    first, end = 0, len(given.lines)
    dropped = {line for each in left_out for line in range(each.first, each.end)}
    if wrappers:
        inside = pieces(given, wrappers[-1])
        first = min(each.first for each in inside if each.first not in dropped)
        end = wrappers[-1].end
    lines = [given.lines[line] for line in range(first, end) if line not in dropped]
    return "\n".join(lines).strip("\n")


def _classes_around(source: PythonSource, inner: Definition) -> list[Definition]:
    return [
        each
        for each in source.definitions
        if each != inner and each.first <= inner.first and inner.end <= each.end
    ]


def _innermost(source: PythonSource, inner: Definition) -> Definition | None:
    """The class around a definition; None if it is in no class."""
    around = _classes_around(source, inner)
    return around[-1] if around else None


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())
