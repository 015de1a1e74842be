"""How long a program's scoring takes, estimated from its text, and how often it may run.

The offline model cannot run a program. It counts operations, each at a rough time on one ordinary
core; a loop whose length is not written out counts as `LOOP_ITERATIONS`. The searches it writes may
score as often as fits into `SEARCH_SECONDS`.
"""

import ast
from dataclasses import dataclass

from costada.plugins.offline.constructor import EVALUATIONS, Constructor, find_constructor
from costada.plugins.offline.program import (
    Program,
    assigned_name,
    called_name,
    range_call,
    read_program,
)
from costada.values.python_syntax import parsed_module

SEARCH_SECONDS = 0.3
"""Seconds all searches of one program may take by this estimate."""

LOOP_ITERATIONS = 25
"""Assumed iterations of a loop whose length is not written in the program."""

MIN_SHARE = 0.5
"""Share of its evaluations a search must keep when a change makes scoring slower."""

_LIBRARY_CALL = 1.5e-6
_BUILTIN_CALL = 1.0e-7
_ARRAY_ACCESS = 1.2e-7
_LIST_ACCESS = 1.0e-8
_OPERATION = 1.5e-8
_OVERHEAD = 2.0e-5


@dataclass(frozen=True, slots=True)
class _Counter:
    """Adds up the seconds of a function of one program, which must not call itself."""

    program: Program
    lists: frozenset[str]

    def seconds(self, node: ast.AST) -> float:
        """Seconds that one run of a node takes."""
        turns, inner = 1.0, list(ast.iter_child_nodes(node))
        if isinstance(node, ast.For):
            turns, inner = _turns(node.iter), [*node.body]
        elif isinstance(node, ast.While):
            turns = LOOP_ITERATIONS
        elif isinstance(node, ast.ListComp | ast.GeneratorExp):
            turns, inner = _turns(node.generators[0].iter), [node.elt]
        return self._own(node) + turns * sum(self.seconds(each) for each in inner)

    def _own(self, node: ast.AST) -> float:
        if isinstance(node, ast.Call):
            if isinstance(node.func, ast.Attribute):
                return _LIBRARY_CALL
            callee = self.program.function(called_name(node))
            return _BUILTIN_CALL if callee is None else function_seconds(self.program, callee)
        if isinstance(node, ast.Subscript):
            root: ast.expr = node
            while isinstance(root, ast.Subscript):
                root = root.value
            is_list = isinstance(root, ast.Name) and root.id in self.lists
            return _LIST_ACCESS if is_list else _ARRAY_ACCESS
        return _OPERATION if isinstance(node, ast.BinOp | ast.Compare) else 0.0


def function_seconds(program: Program, function: ast.FunctionDef) -> float:
    """Estimated seconds of one run of a function; it must not call itself."""
    lists = frozenset(
        name
        for each in ast.walk(function)
        if isinstance(each, ast.Assign) and (name := assigned_name(each))
        if called_name(each.value) in ("tolist", "list")
    )
    counter = _Counter(program, lists)
    return sum(counter.seconds(each) for each in function.body)


def evaluation_limit(program: Program, constructor: Constructor) -> int:
    """How often the searches of a program may score an array, at least 10."""
    counter = _Counter(program, frozenset())
    try:
        parts = [*constructor.scoring, parsed_module(constructor.value)]
        seconds = _OVERHEAD + sum(counter.seconds(each) for each in parts)
    except RecursionError:
        seconds = SEARCH_SECONDS
    return max(10, int(SEARCH_SECONDS / seconds) // 10 * 10)


def evaluation_counts(constructor: Constructor) -> list[tuple[ast.Constant, int]]:
    """The numbers written for `evaluations` in the searches of a constructor."""
    return [
        (keyword.value, keyword.value.value)
        for search in constructor.searches
        if isinstance(search.value, ast.Call)
        for keyword in search.value.keywords
        if keyword.arg == EVALUATIONS
        if isinstance(keyword.value, ast.Constant) and isinstance(keyword.value.value, int)
    ]


def within_limit(code: str) -> str:
    """The program with its searches cut down to what fits, all by the same share."""
    return affordable(code, 0.0) or code


def affordable(code: str, least: float = MIN_SHARE) -> str | None:
    """The same, or None where less than that share of the evaluations would be left."""
    program = read_program(code)
    constructor = find_constructor(program) if program else None
    if program is None or constructor is None:
        return code
    counts = evaluation_counts(constructor)
    total = sum(count for _, count in counts)
    limit = evaluation_limit(program, constructor)
    if total <= limit:
        return code
    if limit < least * total:
        return None
    return program.changed(
        program.replacing(node, str(max(5, count * limit // total))) for node, count in counts
    )


def _turns(loop: ast.expr) -> float:
    counted = range_call(loop)
    if counted is None:
        return LOOP_ITERATIONS
    bounds = [_number(each) for each in counted.args]
    if None in bounds:
        return LOOP_ITERATIONS / len(bounds)
    try:
        return float(len(range(*(bound for bound in bounds if bound is not None))))
    except (TypeError, ValueError, OverflowError):
        return LOOP_ITERATIONS  # no bounds, a step of 0, or more turns than can be counted


def _number(node: ast.expr) -> int | None:
    try:
        value = ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return None
    return value if isinstance(value, int) else None
