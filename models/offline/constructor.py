"""What the offline model finds out about a program that builds an array of numbers.

A constructor is a function without required arguments that builds an array, derives further
values from it and returns them. Statements that end the building by `array = f(array)` are its
repair, and those behind are its scoring. The model can repeat both for any other array and so let
a search judge changes the way the program does.
"""

import ast
from dataclasses import dataclass

from costada.models.offline.objective import value_expression
from costada.models.offline.source import (
    Program,
    assigned_name,
    called_name,
    indented,
    names,
    read_program,
)

OBJECTIVE = "objective"
"""Name of the nested function that scores an array."""

REPAIR = "repair"
"""Name of the nested function that moves an array to where the constructor wants it."""

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
        """Return nested functions that repair and score an array as this function does."""
        repair = self._nested_function(REPAIR, "Repair", self.repairs, self.array, program)
        objective = self._nested_function(OBJECTIVE, "Score", self.scoring, self.value, program)
        return f"{repair}\n\n{objective}"

    def _nested_function(
        self, name: str, verb: str, body: tuple[ast.stmt, ...], value: str, program: Program
    ) -> str:
        head = f"{self.margin}def {name}({self.array}):"
        doc = f'{self.margin}    """{verb} an array {_AS_HERE}"""'
        parts = [indented(program.lines(each.lineno, each.end_lineno or 0), 4) for each in body]
        return "\n".join([head, doc, *parts, f"{self.margin}    return {value}"])


def find_constructor(program: Program) -> Constructor | None:
    """Return the first function that builds an array whose value can be computed."""
    for function in program.functions():
        if _required(function) or not isinstance(function.body[-1], ast.Return):
            continue
        if (array := _array(function)) is not None:
            found = _read(program, function, array)
            if found is not None:
                return found
    return None


def with_fresh_functions(code: str) -> str:
    """Return the program with nested functions that repeat what its constructor does by now."""
    program = read_program(code)
    constructor = find_constructor(program) if program else None
    if program is None or constructor is None:
        return code
    old = [each for each in constructor.function.body if _repeats_constructor(each)]
    if len(old) != len((REPAIR, OBJECTIVE)):
        return code
    first, last = old[0].lineno, old[-1].end_lineno or old[-1].lineno
    return program.changed(
        [program.replacing_lines(first, last, constructor.nested_functions(program))]
    )


def _repeats_constructor(statement: ast.stmt) -> bool:
    if not isinstance(statement, ast.FunctionDef):
        return False
    return (ast.get_docstring(statement) or "").endswith(_AS_HERE)


def _required(function: ast.FunctionDef) -> bool:
    return len(function.args.args) > len(function.args.defaults)


def _array(function: ast.FunctionDef) -> str | None:
    made = [
        name
        for statement in function.body
        if isinstance(statement, ast.Assign) and (name := assigned_name(statement))
        if isinstance(statement.value, ast.Call) and called_name(statement.value) in _MAKERS
    ]
    returned = names(function.body[-1])
    return next((name for name in made if name in returned), None)


def _read(program: Program, function: ast.FunctionDef, array: str) -> Constructor | None:
    body = function.body[:-1]
    searches = tuple(each for each in body if isinstance(each, ast.Assign) and is_search(each))
    own = [s for s in body if not isinstance(s, ast.FunctionDef) and s not in searches]
    built = max((k for k, each in enumerate(own) if _builds(each, array)), default=-1)
    start = built + 1
    while start > 0 and _is_repair(own[start - 1], array):
        start -= 1
    if start == 0:
        return None  # nothing here makes the array: it comes from outside or from a search
    scoring = tuple(own[built + 1 :])
    value = value_expression(program, function, scoring, array)
    if value is None:
        return None
    repairs = tuple(own[start : built + 1])
    return Constructor(function, array, own[built], repairs, scoring, value, searches)


def is_search(statement: ast.stmt) -> bool:
    """Tell whether a statement hands an array to a search of a bounded number of evaluations."""
    if not isinstance(statement, ast.Assign) or not isinstance(statement.value, ast.Call):
        return False
    return any(keyword.arg == EVALUATIONS for keyword in statement.value.keywords)


def _builds(statement: ast.stmt, array: str) -> bool:
    """Tell whether a statement assigns to the array or to parts of it."""
    return any(
        isinstance(each, ast.Name | ast.Subscript)
        and isinstance(each.ctx, ast.Store)
        and ast.unparse(each).split("[")[0] == array
        for each in ast.walk(statement)
    )


def _is_repair(statement: ast.stmt, array: str) -> bool:
    if not isinstance(statement, ast.Assign) or assigned_name(statement) != array:
        return False
    return array in names(statement.value)
