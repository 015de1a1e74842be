"""Edits of nested loops: compute before them what repeats, use what they leave, correct gently.

An expression that combines two rows of one array, such as a distance, becomes a table filled by one
vectorised statement. An array of which only single entries are used becomes a list, whose entries
Python reads faster. Where a greedy loop keeps `v[i] + v[j]` below a limit, an entry may rise again
to the least that its limits leave. A loop that multiplies entries by a factor may do so in passes.
"""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from random import Random

from costada.plugins.offline.program import (
    Edit,
    EditContext,
    Program,
    Splice,
    assigned_name,
    called_name,
    indented,
    last_line,
    names,
    range_call,
    read_program,
    stored_names,
)
from costada.plugins.offline.running_time import affordable
from costada.values.python_syntax import parsed_expression

_SIGNS: dict[type[ast.operator], str] = {
    ast.Mult: "*=",
    ast.Div: "/=",
    ast.Add: "+=",
    ast.Sub: "-=",
}

_ELEMENTWISE = frozenset(("sqrt", "abs", "square", "power", "maximum", "minimum", "log", "exp"))

_REDUCING = frozenset(("sum", "norm", "max", "min"))
"""Functions that make one number of a row."""


@dataclass(frozen=True, slots=True)
class _Nest:
    """Loops over the names `i` and `j`, one in the other, and the outermost loop around them."""

    outermost: ast.For
    inner: ast.For
    rows: tuple[str, str]


def without_repetition(program: Program) -> str | None:
    """The program with one nest of loops made cheaper, or None where none can be."""
    program = read_program(_entry_by_entry(program)) or program
    changes = (_cheaper(program, nest) for nest in _nests(program))
    splices = next((each for each in changes if each), None)
    return program.changed(splices) if splices else None


def _nests(program: Program) -> Iterator[_Nest]:
    """The innermost pair of loops of each outermost loop."""
    for function in program.functions():
        for outermost in function.body:
            if not isinstance(outermost, ast.For):
                continue
            for outer in ast.walk(outermost):
                if not isinstance(outer, ast.For) or not isinstance(outer.target, ast.Name):
                    continue
                inner = next((each for each in outer.body if isinstance(each, ast.For)), None)
                if inner is None or not isinstance(inner.target, ast.Name):
                    continue
                if not any(isinstance(each, ast.For) for each in inner.body):
                    yield _Nest(outermost, inner, (outer.target.id, inner.target.id))
                    break


def _entry_by_entry(program: Program) -> str:
    """The program with `array[[i, j]] *= value` as one statement for each entry."""
    splices = []
    for node in (node for nest in _nests(program) for node in ast.walk(nest.inner)):
        if not isinstance(node, ast.AugAssign) or type(node.op) not in _SIGNS:
            continue
        target = node.target
        if isinstance(target, ast.Subscript) and isinstance(target.slice, ast.List):
            array, sign = program.source(target.value), _SIGNS[type(node.op)]
            lines = [f"change = {program.source(node.value)}"]
            lines += [f"{array}[{ast.unparse(each)}] {sign} change" for each in target.slice.elts]
            spaces = " " * node.col_offset
            splices.append(program.replacing(node, f"\n{spaces}".join(lines)))
    return program.changed(splices)


def _cheaper(program: Program, nest: _Nest) -> list[Splice]:
    splices: list[Splice] = []
    above, below = [], []
    for name, filling, places in _tables(program, nest):
        above.append(f"{name} = {filling}.tolist()")
        cell = f"{name}[{nest.rows[0]}][{nest.rows[1]}]"
        splices += [program.replacing(each, cell) for each in places]
    for name in sorted(_entry_arrays(program, nest.outermost)):
        above.append(f"{name} = {name}.tolist()")
        below.append(f"{name} = np.array({name})")
    margin = " " * nest.outermost.col_offset
    for lines, place in ((above, program.before), (below, program.after)):
        if lines:
            splices.append(place(nest.outermost, "\n".join(margin + line for line in lines)))
    return splices


def _tables(program: Program, nest: _Nest) -> Iterator[tuple[str, str, list[ast.expr]]]:
    """Tables of the largest expressions of two rows in the inner loop: name, value, places."""
    reached = _statements_from(program, nest.outermost)
    fresh = (name for k in count(1) if (name := f"pair_table_{k}") not in program.text)
    changing = set[str]().union(*map(stored_names, reached)) - set(nest.rows)
    queue, found = list[ast.AST](nest.inner.body), set[str]()
    while queue:
        node = queue.pop(0)
        filling = _vectorised(node, nest.rows) if isinstance(node, ast.Call) else None
        if filling is None or names(node) & changing:
            queue += ast.iter_child_nodes(node)
        elif (text := ast.unparse(node)) not in found:
            found.add(text)
            parts = (each for statement in reached for each in ast.walk(statement))
            places = [e for e in parts if isinstance(e, ast.expr) and ast.unparse(e) == text]
            yield next(fresh), filling, places


def _statements_from(program: Program, loop: ast.For) -> list[ast.stmt]:
    """The statements of a function from the loop on; a table above serves them all."""
    for function in program.functions():
        if loop in function.body:
            return function.body[function.body.index(loop) :]
    return []


def _entry_arrays(program: Program, loop: ast.For) -> set[str]:
    """Arrays of which the loop uses single entries only, so that lists would serve it better."""
    nodes = list(ast.walk(loop))
    entries = [
        each.value.id
        for each in nodes
        if isinstance(each, ast.Subscript) and isinstance(each.slice, ast.Name | ast.Constant)
        if isinstance(each.value, ast.Name)
    ]
    uses = [each.id for each in nodes if isinstance(each, ast.Name)]
    made = _flat_arrays(program, loop)
    return {name for name in made & set(entries) if uses.count(name) == entries.count(name)}


def _flat_arrays(program: Program, loop: ast.For) -> set[str]:
    """One-dimensional arrays made by a statement above the loop, not lists by then."""
    arrays: set[str] = set()
    for function in program.functions():
        above = function.body[: function.body.index(loop)] if loop in function.body else []
        for statement in above:
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
    return name == "array" or (is_reduced and name in _REDUCING)


def _vectorised(value: ast.expr, rows: tuple[str, str]) -> str | None:
    """The value for all pairs of rows as one expression, or None where it has none."""
    rewriter = _PairRewriter(rows)
    try:
        table = ast.unparse(rewriter.visit(parsed_expression(ast.unparse(value))))
    except (RecursionError, SyntaxError, ValueError):
        return None
    is_complete = rewriter.seen == set(rows) and len(rewriter.arrays) == 1
    return table if is_complete and not rewriter.is_foreign and "axis=-1" in table else None


class _PairRewriter(ast.NodeTransformer):
    """Turns `array[i]` and `array[j]` into the two axes of a table."""

    def __init__(self, rows: tuple[str, str]) -> None:
        self.rows = rows
        self.seen: set[str] = set()
        self.arrays: set[str] = set()
        self.is_foreign = False

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        """Replace a row by all rows along its axis."""
        index = node.slice.id if isinstance(node.slice, ast.Name) else ""
        if index not in self.rows or not isinstance(node.value, ast.Name):
            self.is_foreign = True
            return node
        self.seen.add(index)
        self.arrays.add(node.value.id)
        axes = "[:, None]" if index == self.rows[0] else "[None, :]"
        return parsed_expression(node.value.id + axes)

    def visit_Call(self, node: ast.Call) -> ast.expr:
        """Reduce over the last axis only; leave what works entry by entry."""
        name = called_name(node)
        is_library = isinstance(node.func, ast.Attribute) and not node.keywords
        if not is_library or name not in _ELEMENTWISE | _REDUCING:
            self.is_foreign = True
            return node
        node.func = parsed_expression(f"np.{'linalg.' * (name == 'norm')}{name}")
        node.args = [self.visit(each) for each in node.args]
        if name in _REDUCING:
            node.keywords = [ast.keyword("axis", parsed_expression("-1"))]
        return node

    def visit_Name(self, node: ast.Name) -> ast.expr:
        """Refuse every other name, for it may change from turn to turn."""
        self.is_foreign = True
        return node


@dataclass(frozen=True, slots=True)
class _Pairs:
    """Nested loops over `i` and `j` that keep `values[i] + values[j]` below a limit."""

    outermost: ast.For
    rows: tuple[str, str]
    values: str
    limit: str
    size: str


def use_slack(context: EditContext, rng: Random) -> Edit | None:
    """Let each entry rise to what its limits leave, after the loop that lowered them.

    Whatever the entries mean, the test `v[i] + v[j] > limit` says that each pair of them shares a
    limit. Once all pairs hold, an entry may rise to the least that its limits leave; each such step
    keeps every limit.
    """
    program = context.program
    found = [
        pairs
        for function in program.functions()
        for outermost in function.body
        for loop in ast.walk(outermost)
        if isinstance(outermost, ast.For) and isinstance(loop, ast.For)
        if (pairs := _pairs(outermost, loop)) is not None
    ]
    if not found or "_caps" in program.text:
        return None
    pairs = rng.choice(found)
    values, (i, j) = pairs.values, pairs.rows
    caps, spaces = f"{values}_caps", " " * pairs.outermost.col_offset
    lines = (
        f"for {i} in range({pairs.size}):",
        f"    room = [{pairs.limit} - {values}[{j}] for {j} in range({pairs.size}) if {j} != {i}]",
        f"    {values}[{i}] = min({caps}[{i}], *room)",
    )
    code = program.changed(
        [
            program.before(pairs.outermost, f"{spaces}{caps} = list({values})"),
            program.after(pairs.outermost, "\n".join(spaces + line for line in lines)),
        ]
    )
    fitting = affordable(code)
    summary = f"Let each entry of {values} rise to what its limits leave."
    return Edit(fitting, summary) if fitting else None


def _pairs(outermost: ast.For, outer: ast.For) -> _Pairs | None:
    inner, counted = outer.body[0], range_call(outer.iter)
    if not isinstance(inner, ast.For) or counted is None or len(counted.args) != 1:
        return None
    if not isinstance(outer.target, ast.Name) or not isinstance(inner.target, ast.Name):
        return None
    rows = (outer.target.id, inner.target.id)
    test = next((each.test for each in inner.body if isinstance(each, ast.If)), None)
    if not isinstance(test, ast.Compare) or not isinstance(test.ops[0], ast.Gt | ast.GtE):
        return None
    if not isinstance(test.left, ast.BinOp) or not isinstance(test.left.op, ast.Add):
        return None
    parts = [ast.unparse(test.left.left), ast.unparse(test.left.right)]
    values = parts[0].split("[")[0]
    if sorted(parts) != sorted(f"{values}[{row}]" for row in rows):
        return None
    limit = ast.unparse(test.comparators[0])
    for statement in inner.body:  # a name from the loop stands for its value
        if assigned_name(statement) == limit and isinstance(statement, ast.Assign):
            limit = f"({ast.unparse(statement.value)})"
            break
    return _Pairs(outermost, rows, values, limit, ast.unparse(counted.args[0]))


def repeat_corrections(context: EditContext, rng: Random) -> Edit | None:
    """Correct in three gentle passes instead of one: a factor takes effect by its root.

    Fits a loop that multiplies entries by a factor it has computed. The last pass applies the
    whole factor, so what the loop guaranteed still holds.
    """
    program = context.program
    places = [
        (loop, factor)
        for function in program.functions()
        for loop in function.body
        if isinstance(loop, ast.For) and (factor := _factor(loop)) is not None
    ]
    if not places or "passes_left" in program.text:
        return None
    loop, factor = rng.choice(places)
    softened = f"({program.source(factor)}) ** (1.0 / passes_left)"
    changed = program.changed([program.replacing(factor, softened)]).split("\n")
    first = loop.lineno - 1
    last = last_line(loop) + len(changed) - len(program.text.split("\n"))
    head = " " * loop.col_offset + "for passes_left in (3, 2, 1):"
    body = indented("\n".join(changed[first:last]))
    fitting = affordable("\n".join([*changed[:first], head, body, *changed[last:]]))
    return Edit(fitting, "Correct in three gentle passes.") if fitting else None


def _factor(loop: ast.For) -> ast.expr | None:
    """The quotient by which the loop multiplies entries, if there is just one."""
    nodes = list(ast.walk(loop))
    assigned = [each for each in nodes if isinstance(each, ast.Assign)]
    found = set()
    for each in nodes:
        if not isinstance(each, ast.AugAssign) or not isinstance(each.op, ast.Mult):
            continue
        if isinstance(each.target, ast.Subscript):
            name = ast.unparse(each.value)
            meant = (a.value for a in assigned if ast.unparse(a.targets[0]) == name)
            found.add(next(meant, each.value))
    factor = found.pop() if len(found) == 1 else None
    return factor if isinstance(factor, ast.BinOp) and isinstance(factor.op, ast.Div) else None
