"""Edits that make nested loops cheaper: what they compute again and again is computed before them.

Two changes, both for loops within loops. An expression that combines two rows of one array, such
as a distance, becomes a table filled by one vectorised statement. An array of which only single
entries are used becomes a list, whose entries Python reads faster.
"""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count

from costada.models.offline.entries import entry_arrays
from costada.models.offline.pairing import vectorised
from costada.models.offline.source import Program, Splice, names, read_program

_SIGNS: dict[type[ast.operator], str] = {
    ast.Mult: "*=",
    ast.Div: "/=",
    ast.Add: "+=",
    ast.Sub: "-=",
}


@dataclass(frozen=True, slots=True)
class _Nest:
    """Loops over the names `i` and `j`, one in the other, and the outermost loop around them."""

    outermost: ast.For
    inner: ast.For
    rows: tuple[str, str]


@dataclass(frozen=True, slots=True)
class _Table:
    """A table of an expression of two rows: its name, its value and where it is read."""

    name: str
    filling: str
    places: list[ast.expr]


def without_repetition(program: Program) -> str | None:
    """Return the program with one nest of loops made cheaper, or None where none can be."""
    program = read_program(_entry_by_entry(program)) or program
    changes = (_cheaper(program, nest) for nest in _nests(program))
    splices = next((each for each in changes if each), None)
    return program.changed(splices) if splices else None


def _cheaper(program: Program, nest: _Nest) -> list[Splice]:
    splices: list[Splice] = []
    above, below = [], []
    for table in _tables(program, nest):
        above.append(f"{table.name} = {table.filling}.tolist()")
        cell = f"{table.name}[{nest.rows[0]}][{nest.rows[1]}]"
        splices += [program.replacing(each, cell) for each in table.places]
    for name in sorted(entry_arrays(program, nest.outermost)):
        above.append(f"{name} = {name}.tolist()")
        below.append(f"{name} = np.array({name})")
    margin = " " * nest.outermost.col_offset
    if above:
        lines = "\n".join(margin + line for line in above)
        splices.append(program.before(nest.outermost, lines))
    if below:
        lines = "\n".join(margin + line for line in below)
        splices.append(program.after(nest.outermost, lines))
    return splices


def _entry_by_entry(program: Program) -> str:
    """Return the program with `array[[i, j]] *= value` as one statement for each entry."""
    changes = [
        node
        for nest in _nests(program)
        for node in ast.walk(nest.inner)
        if isinstance(node, ast.AugAssign) and type(node.op) in _SIGNS
    ]
    return program.changed(
        program.replacing(node, _separately(program, node, node.target))
        for node in changes
        if isinstance(node.target, ast.Subscript) and isinstance(node.target.slice, ast.List)
    )


def _separately(program: Program, node: ast.AugAssign, target: ast.Subscript) -> str:
    array, spaces = program.source(target.value), " " * node.col_offset
    entries = target.slice.elts if isinstance(target.slice, ast.List) else []
    sign = _SIGNS[type(node.op)]
    lines = [f"change = {program.source(node.value)}"]
    lines += [f"{array}[{ast.unparse(each)}] {sign} change" for each in entries]
    return f"\n{spaces}".join(lines)


def _nests(program: Program) -> Iterator[_Nest]:
    """Yield the innermost pair of loops of each outermost loop."""
    for function in program.functions():
        for outermost in function.body:
            pairs = (_pair(each) for each in ast.walk(outermost))
            pair = next((each for each in pairs if each is not None), None)
            if isinstance(outermost, ast.For) and pair is not None:
                yield _Nest(outermost, *pair)


def _pair(outer: ast.AST) -> tuple[ast.For, tuple[str, str]] | None:
    """Return the innermost loop directly in a loop, and the names both run over."""
    if not isinstance(outer, ast.For) or not isinstance(outer.target, ast.Name):
        return None
    inner = next((each for each in outer.body if isinstance(each, ast.For)), None)
    if inner is None or not isinstance(inner.target, ast.Name):
        return None
    if any(isinstance(each, ast.For) for each in inner.body):
        return None
    return inner, (outer.target.id, inner.target.id)


def _tables(program: Program, nest: _Nest) -> Iterator[_Table]:
    """Yield tables of the largest expressions of two rows in the inner loop."""
    queue, found = list[ast.AST](nest.inner.body), set[str]()
    reach = _reach(program, nest)
    fresh = (name for k in count(1) if (name := f"pair_table_{k}") not in program.text)
    changing = _stored(reach) - set(nest.rows)
    while queue:
        node = queue.pop(0)
        filling = vectorised(node, nest.rows) if isinstance(node, ast.Call) else None
        if filling is None or names(node) & changing:
            queue += ast.iter_child_nodes(node)
        elif (text := ast.unparse(node)) not in found:
            found.add(text)
            yield _Table(next(fresh), filling, _expressions(reach, text))


def _reach(program: Program, nest: _Nest) -> list[ast.stmt]:
    """Return the statements of a function from the loops on; a table above serves them all."""
    for function in program.functions():
        if nest.outermost in function.body:
            return function.body[function.body.index(nest.outermost) :]
    return []


def _stored(statements: list[ast.stmt]) -> set[str]:
    """Return the names of arrays that statements assign to, as a whole or in part."""
    return {
        ast.unparse(each).split("[")[0]
        for statement in statements
        for each in ast.walk(statement)
        if isinstance(each, ast.Name | ast.Subscript) and isinstance(each.ctx, ast.Store)
    }


def _expressions(statements: list[ast.stmt], text: str) -> list[ast.expr]:
    return [
        each
        for statement in statements
        for each in ast.walk(statement)
        if isinstance(each, ast.expr) and ast.unparse(each) == text
    ]
