"""Which arrays a loop reads and writes entry by entry, so that lists would serve it better."""

import ast

from costada.models.offline.pairing import REDUCING
from costada.models.offline.source import Program, assigned_name, called_name


def entry_arrays(program: Program, loop: ast.For) -> set[str]:
    """Return arrays of which the loop uses single entries only."""
    entries = [e for e in ast.walk(loop) if isinstance(e, ast.Subscript) and _is_entry(e)]
    found = {each.value.id for each in entries if isinstance(each.value, ast.Name)}
    counts = {name: sum(_is_name(each, name) for each in ast.walk(loop)) for name in found}
    made = _array_names(program, loop)
    return {
        name
        for name in found & made
        if counts[name] == sum(_is_name(each.value, name) for each in entries)
    }


def _is_entry(node: ast.Subscript) -> bool:
    return isinstance(node.slice, ast.Name | ast.Constant)


def _is_name(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def _array_names(program: Program, loop: ast.For) -> set[str]:
    """Return one-dimensional arrays made by a statement above the loop, not lists by then."""
    arrays: set[str] = set()
    for function in program.functions():
        if loop not in function.body:
            continue
        for statement in function.body[: function.body.index(loop)]:
            name = assigned_name(statement)
            if name is None or not isinstance(statement, ast.Assign):
                continue
            if isinstance(statement.value, ast.Call) and _is_flat(statement.value):
                arrays.add(name)
            else:
                arrays.discard(name)
    return arrays


def _is_flat(call: ast.Call) -> bool:
    name = called_name(call)
    if name in ("ones", "zeros", "empty"):
        return not any(isinstance(each, ast.Tuple | ast.List) for each in call.args)
    is_reduced = any(keyword.arg == "axis" for keyword in call.keywords)
    return name == "array" or (is_reduced and name in REDUCING)
