"""An edit that uses what a greedy loop over pairs leaves unused.

It fits nested loops with a test `v[i] + v[j] > limit` that lower entries of `v`: whatever the
entries mean, the test says that each pair of them shares a limit. Once all pairs hold, an entry
may rise to the least that its limits leave; each such step keeps every limit.
"""

import ast
from dataclasses import dataclass
from random import Random

from costada.models.offline.expense import affordable
from costada.models.offline.scene import Scene
from costada.models.offline.source import Edit, Program, assigned_name, range_call


@dataclass(frozen=True, slots=True)
class _Pairs:
    """Nested loops that keep `values[i] + values[j]` below a limit.

    Attributes:
        outermost: The outermost loop around them.
        rows: The names `i` and `j`.
        values: Name of the array with the entries.
        limit: Expression of the limit in terms of `i` and `j`.
        size: Expression of the number of entries.
    """

    outermost: ast.For
    rows: tuple[str, str]
    values: str
    limit: str
    size: str


def use_slack(scene: Scene, rng: Random) -> Edit | None:
    """Let each entry rise to what its limits leave, after the loop that lowered them."""
    program = scene.program
    found = [pairs for pairs in _all_pairs(program) if "_caps" not in program.text]
    if not found:
        return None
    pairs = rng.choice(found)
    caps, spaces = f"{pairs.values}_caps", " " * pairs.outermost.col_offset
    code = program.changed(
        [
            program.before(pairs.outermost, f"{spaces}{caps} = list({pairs.values})"),
            program.after(pairs.outermost, _rise(pairs, caps, spaces)),
        ]
    )
    summary = f"Let each entry of {pairs.values} rise to what its limits leave."
    fitting = affordable(code)
    return Edit(fitting, summary) if fitting else None


def _rise(pairs: _Pairs, caps: str, spaces: str) -> str:
    i, j = pairs.rows
    left = f"{pairs.limit} - {pairs.values}[{j}]"
    lines = (
        f"for {i} in range({pairs.size}):",
        f"    room = [{left} for {j} in range({pairs.size}) if {j} != {i}]",
        f"    {pairs.values}[{i}] = min({caps}[{i}], *room)",
    )
    return "\n".join(spaces + line for line in lines)


def _all_pairs(program: Program) -> list[_Pairs]:
    return [
        pairs
        for function in program.functions()
        for outermost in function.body
        for loop in ast.walk(outermost)
        if isinstance(outermost, ast.For) and isinstance(loop, ast.For)
        if (pairs := _pairs(outermost, loop)) is not None
    ]


def _pairs(outermost: ast.For, outer: ast.For) -> _Pairs | None:
    inner, counted = outer.body[0], range_call(outer.iter)
    if not isinstance(inner, ast.For) or counted is None or len(counted.args) != 1:
        return None
    if not isinstance(outer.target, ast.Name) or not isinstance(inner.target, ast.Name):
        return None
    rows = (outer.target.id, inner.target.id)
    test = next((each.test for each in inner.body if isinstance(each, ast.If)), None)
    values = _shared_values(test, rows)
    if values is None or not isinstance(test, ast.Compare):
        return None
    limit = _spelled_out(test.comparators[0], inner)
    return _Pairs(outermost, rows, values, limit, ast.unparse(counted.args[0]))


def _shared_values(test: ast.expr | None, rows: tuple[str, str]) -> str | None:
    """Return `v` of a test `v[i] + v[j] > limit`."""
    if not isinstance(test, ast.Compare) or not isinstance(test.ops[0], ast.Gt | ast.GtE):
        return None
    if not isinstance(test.left, ast.BinOp) or not isinstance(test.left.op, ast.Add):
        return None
    parts = [ast.unparse(test.left.left), ast.unparse(test.left.right)]
    name = parts[0].split("[")[0]
    return name if sorted(parts) == sorted(f"{name}[{row}]" for row in rows) else None


def _spelled_out(limit: ast.expr, inner: ast.For) -> str:
    """Return the limit, with a name from the loop replaced by what it stands for."""
    text = ast.unparse(limit)
    for statement in inner.body:
        if assigned_name(statement) == text and isinstance(statement, ast.Assign):
            return f"({ast.unparse(statement.value)})"
    return text
