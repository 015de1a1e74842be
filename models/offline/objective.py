"""The number a program tries to raise, found in its text.

A number is recognised by the call that makes it of many, such as a sum or a minimum.
"""

import ast
from collections.abc import Iterator

from costada.models.offline.source import Program, assigned_name, called_name, names

_REDUCERS = frozenset(("sum", "min", "max", "mean", "median", "prod", "std", "norm", "float"))
_LOSSES = ("loss", "cost", "error", "penalty", "energy")


def value_expression(
    program: Program, function: ast.FunctionDef, scoring: tuple[ast.stmt, ...], array: str
) -> str | None:
    """Return the number to maximise: returned, made of what is returned, or by a function."""
    for node in _returned(function), *_made_of_result(program, function):
        if (value := _last_number(node, scoring)) is not None:
            return _signed(ast.unparse(value))
    for other in program.functions():
        if other.name != function.name and len(other.args.args) == 1 and _is_scalar(other):
            return _signed(f"{other.name}({array})")
    return None


def _returned(function: ast.FunctionDef) -> ast.expr | None:
    last = function.body[-1] if function.body else None
    return last.value if isinstance(last, ast.Return) else None


def _last_number(node: ast.expr | None, scoring: tuple[ast.stmt, ...]) -> ast.expr | None:
    """Return the last part of what is returned that is a number made of many."""
    reduced = {
        name
        for each in scoring
        if isinstance(each, ast.Assign) and (name := assigned_name(each)) and _reduces(each.value)
    }
    parts = node.elts if isinstance(node, ast.Tuple) else [node]
    for part in reversed(parts):
        if part is not None and (_reduces(part) or names(part) & reduced):
            return part
    return None


def _made_of_result(program: Program, function: ast.FunctionDef) -> Iterator[ast.expr]:
    """Yield what callers return, in terms of what the function returns."""
    returned = _returned(function)
    for caller in program.tree.body:
        if not isinstance(caller, ast.FunctionDef) or caller.name == function.name:
            continue
        for statement in caller.body:
            if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Call):
                end = _returned(caller)
                if called_name(statement.value) == function.name and end and returned:
                    meaning = _meaning(statement.targets[0], returned)
                    yield _Substitution(meaning).visit(
                        ast.parse(ast.unparse(end), mode="eval").body
                    )


def _meaning(target: ast.expr, value: ast.expr) -> dict[str, ast.expr]:
    """Return what each name of a target stands for."""
    if isinstance(target, ast.Name):
        return {target.id: value}
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
        pairs = zip(target.elts, value.elts, strict=False)
        return {name.id: part for name, part in pairs if isinstance(name, ast.Name)}
    return {}


class _Substitution(ast.NodeTransformer):
    """Puts expressions in the place of names."""

    def __init__(self, meaning: dict[str, ast.expr]) -> None:
        """Remember what each name stands for."""
        self.meaning = meaning

    def visit_Name(self, node: ast.Name) -> ast.expr:
        """Return what the name stands for, or the name."""
        return self.meaning.get(node.id, node)


def _signed(value: str) -> str:
    return f"-{value}" if any(word in value.lower() for word in _LOSSES) else value


def _reduces(node: ast.expr) -> bool:
    """Tell whether an expression is a call that makes one number of many."""
    if not isinstance(node, ast.Call) or called_name(node) not in _REDUCERS:
        return False
    return len(node.args) <= 1 and not any(each.arg == "axis" for each in node.keywords)


def _is_scalar(function: ast.FunctionDef) -> bool:
    """Tell whether a function returns a reduced value or a name that begins as a number."""
    returned = _returned(function)
    if isinstance(returned, ast.Name):
        name = returned.id
        starts = [each for each in function.body if assigned_name(each) == name]
        returned = starts[0].value if starts and isinstance(starts[0], ast.Assign) else None
    return _is_number(returned)


def _is_number(node: ast.expr | None) -> bool:
    if isinstance(node, ast.Attribute):
        return node.attr == "inf"
    return isinstance(node, ast.Constant) or (node is not None and _reduces(node))
