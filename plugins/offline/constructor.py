"""What the offline model finds out about a program that builds an array of numbers.

A constructor is a function without required arguments that builds an array, derives further
values from it and returns them. Statements that end the building by `array = f(array)` are its
repair, and those behind are its scoring. The model can repeat both for any other array and so let
a search judge changes the way the program does. The number it raises is recognised by the call
that makes it of many, such as a sum or a minimum.
"""

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from costada.plugins.offline.program import (
    Program,
    assigned_name,
    called_name,
    indented,
    last_line,
    names,
    read_program,
    stored_names,
)
from costada.values.python_syntax import parsed_expression

OBJECTIVE, REPAIR = "objective", "repair"
"""Names of the nested functions that score an array, and move it to where it belongs."""

EVALUATIONS = "evaluations"
"""Keyword that bounds how often a search scores an array."""

_AS_HERE = "the way this constructor does."

_MAKERS = frozenset(
    (
        *("zeros", "ones", "empty", "full", "array", "asarray", "copy", "reshape", "linspace"),
        *("stack", "vstack", "column_stack", "concatenate", "uniform", "normal"),
        *("standard_normal", "random", "random_sample", "rand", "randn"),
    )
)
_REDUCERS = frozenset(("sum", "min", "max", "mean", "median", "prod", "std", "norm", "float"))
_LOSSES = ("loss", "cost", "error", "penalty", "energy")


@dataclass(frozen=True, slots=True)
class Constructor:
    """A function that builds an array and what it derives from it.

    Attributes:
        function: The function.
        array: Name of the array it builds.
        built: The statement with which the array is complete.
        repairs: The last statements of the building, `built` included, that repair the array.
        scoring: Statements from the finished array to the return, searches left out.
        value: Expression of the number to maximise, valid behind `scoring`.
        searches: Statements `array = search(array, objective, evaluations=..., ...)`.
    """

    function: ast.FunctionDef
    array: str
    built: ast.stmt
    repairs: tuple[ast.stmt, ...]
    scoring: tuple[ast.stmt, ...]
    value: str
    searches: tuple[ast.Assign, ...]

    @property
    def margin(self) -> str:
        """The indentation of the function's statements."""
        return " " * self.built.col_offset

    def nested_functions(self, program: Program) -> str:
        """Nested functions that repair and score an array as this function does."""
        texts = []
        for name, verb, body, value in (
            (REPAIR, "Repair", self.repairs, self.array),
            (OBJECTIVE, "Score", self.scoring, self.value),
        ):
            head = f"{self.margin}def {name}({self.array}):"
            doc = f'{self.margin}    """{verb} an array {_AS_HERE}"""'
            parts = [indented(program.lines(each.lineno, last_line(each))) for each in body]
            texts.append("\n".join([head, doc, *parts, f"{self.margin}    return {value}"]))
        return "\n\n".join(texts)


def find_constructor(program: Program) -> Constructor | None:
    """The first function that builds an array whose value can be computed."""
    for function in program.functions():
        is_required = len(function.args.args) > len(function.args.defaults)
        if is_required or not isinstance(function.body[-1], ast.Return):
            continue
        returned = names(function.body[-1])
        made = (
            name
            for statement in function.body
            if (name := assigned_name(statement)) is not None
            if isinstance(statement, ast.Assign) and called_name(statement.value) in _MAKERS
        )
        array = next((name for name in made if name in returned), None)
        found = _read(program, function, array) if array is not None else None
        if found is not None:
            return found
    return None


def with_fresh_functions(code: str) -> str:
    """The program with nested functions that repeat what its constructor does by now."""
    program = read_program(code)
    constructor = find_constructor(program) if program else None
    if program is None or constructor is None:
        return code
    old = [
        each
        for each in constructor.function.body
        if isinstance(each, ast.FunctionDef) and (ast.get_docstring(each) or "").endswith(_AS_HERE)
    ]
    if len(old) != len((REPAIR, OBJECTIVE)):
        return code
    functions = constructor.nested_functions(program)
    return program.changed([program.replacing_lines(old[0].lineno, last_line(old[-1]), functions)])


def _read(program: Program, function: ast.FunctionDef, array: str) -> Constructor | None:
    body = function.body[:-1]
    searches = tuple(each for each in body if isinstance(each, ast.Assign) and _is_search(each))
    own = [s for s in body if not isinstance(s, ast.FunctionDef) and s not in searches]
    built = max((k for k, each in enumerate(own) if array in stored_names(each)), default=-1)
    start = built + 1
    while start > 0 and _is_repair(own[start - 1], array):
        start -= 1
    if start == 0:
        return None  # nothing here makes the array: it comes from outside or from a search
    scoring = tuple(own[built + 1 :])
    value = _value_expression(program, function, scoring, array)
    if value is None:
        return None
    repairs = tuple(own[start : built + 1])
    return Constructor(function, array, own[built], repairs, scoring, value, searches)


def _is_search(statement: ast.Assign) -> bool:
    call = statement.value
    return isinstance(call, ast.Call) and any(each.arg == EVALUATIONS for each in call.keywords)


def _is_repair(statement: ast.stmt, array: str) -> bool:
    if not isinstance(statement, ast.Assign) or assigned_name(statement) != array:
        return False
    return array in names(statement.value)


def _value_expression(
    program: Program, function: ast.FunctionDef, scoring: tuple[ast.stmt, ...], array: str
) -> str | None:
    """The number to maximise: returned, made of what is returned, or by a function."""
    found = None
    for node in _returned(function), *_made_of_result(program, function):
        if (part := _last_number(node, scoring)) is not None:
            found = ast.unparse(part)
            break
    else:
        for other in program.functions():
            if other.name != function.name and len(other.args.args) == 1 and _is_scalar(other):
                found = f"{other.name}({array})"
                break
    if found is None:
        return None
    return f"-{found}" if any(word in found.lower() for word in _LOSSES) else found


def _returned(function: ast.FunctionDef) -> ast.expr | None:
    last = function.body[-1] if function.body else None
    return last.value if isinstance(last, ast.Return) else None


def _last_number(node: ast.expr | None, scoring: tuple[ast.stmt, ...]) -> ast.expr | None:
    """The last part of what is returned that is a number made of many."""
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
    """What callers return, in terms of what the function returns."""
    returned = _returned(function)
    for caller in program.tree.body:
        if not isinstance(caller, ast.FunctionDef) or caller.name == function.name:
            continue
        end = _returned(caller)
        for statement in caller.body:
            if not isinstance(statement, ast.Assign) or not end or not returned:
                continue
            if called_name(statement.value) == function.name:
                copy = parsed_expression(ast.unparse(end))
                yield _Substitution(statement.targets[0], returned).visit(copy)


class _Substitution(ast.NodeTransformer):
    """Puts what was assigned to names in their place."""

    def __init__(self, target: ast.expr, value: ast.expr) -> None:
        self.meaning: dict[str, ast.expr] = {}
        pairs = [(target, value)]
        if isinstance(target, ast.Tuple):
            parts = value.elts if isinstance(value, ast.Tuple) else []
            pairs = list(zip(target.elts, parts, strict=False))
        for name, part in pairs:
            if isinstance(name, ast.Name):
                self.meaning[name.id] = part

    def visit_Name(self, node: ast.Name) -> ast.expr:
        """What the name stands for, or the name."""
        return self.meaning.get(node.id, node)


def _reduces(node: ast.expr | None) -> bool:
    """Whether an expression is a call that makes one number of many."""
    if not isinstance(node, ast.Call) or called_name(node) not in _REDUCERS:
        return False
    return len(node.args) <= 1 and not any(each.arg == "axis" for each in node.keywords)


def _is_scalar(function: ast.FunctionDef) -> bool:
    """Whether a function returns a reduced value or a name that begins as a number."""
    returned = _returned(function)
    if isinstance(returned, ast.Name):
        name = returned.id
        starts = [each for each in function.body if assigned_name(each) == name]
        returned = starts[0].value if starts and isinstance(starts[0], ast.Assign) else None
    if isinstance(returned, ast.Attribute):
        return returned.attr == "inf"
    return isinstance(returned, ast.Constant) or _reduces(returned)
