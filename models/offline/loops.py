"""Edits of how often something is repeated and in which order."""

import ast
from random import Random

from costada.models.offline.constructor import find_constructor
from costada.models.offline.expense import affordable, evaluation_counts, evaluation_limit
from costada.models.offline.scene import Scene
from costada.models.offline.source import Edit, Program, indented, names, range_call

LEAST_RISE = 1.1
"""Factor by which a longer search is longer at the least."""


def change_evaluations(scene: Scene, rng: Random) -> Edit | None:
    """Let a search run longer, up to what fits into the time."""
    return more_evaluations(scene, rng.choice((1.3, 1.5, 2.0)), rng)


def more_evaluations(scene: Scene, factor: float, rng: Random) -> Edit | None:
    """Multiply the evaluations of one search; None where no time is left for it."""
    constructor = find_constructor(scene.program)
    counts = evaluation_counts(constructor) if constructor else []
    if constructor is None or not counts:
        return None
    node, count = rng.choice(counts)
    others = sum(each for _, each in counts) - count
    room = evaluation_limit(scene.program, constructor) - others
    number = min(round(count * factor), room)
    if number < LEAST_RISE * count:
        return None
    code = scene.program.changed([scene.program.replacing(node, str(number))])
    return Edit(code, f"Search longer: {number} evaluations instead of {count}.")


def reverse_order(scene: Scene, rng: Random) -> Edit | None:
    """Walk through a loop over a range in the opposite order, or back again."""
    loops = [
        node
        for function in scene.program.functions()
        for node in ast.walk(function)
        if isinstance(node, ast.For) and range_call(node.iter) and names(node.target) != {"_"}
    ]
    if not loops:
        return None
    loop = rng.choice(loops)
    text = scene.program.source(loop.iter)
    is_reversed = text.startswith("reversed(")
    new = text.removeprefix("reversed(")[:-1] if is_reversed else f"reversed({text})"
    code = scene.program.changed([scene.program.replacing(loop.iter, new)])
    return Edit(code, f"Walk through the loop over {ast.unparse(loop.target)} the other way round.")


def repeat_corrections(scene: Scene, rng: Random) -> Edit | None:
    """Correct in three gentle passes instead of one: a factor takes effect by its root.

    Fits a loop that multiplies entries by a factor it has computed. The last pass applies the
    whole factor, so what the loop guaranteed still holds.
    """
    places = [
        (loop, factor)
        for function in scene.program.functions()
        for loop in function.body
        if isinstance(loop, ast.For) and (factor := _factor(loop)) is not None
    ]
    if not places or "passes_left" in scene.program.text:
        return None
    code = _in_passes(scene.program, *rng.choice(places))
    fitting = affordable(code)
    return Edit(fitting, "Correct in three gentle passes.") if fitting else None


def _in_passes(program: Program, loop: ast.For, factor: ast.expr) -> str:
    softened = f"({program.source(factor)}) ** (1.0 / passes_left)"
    first, last = loop.lineno, loop.end_lineno or loop.lineno
    changed = program.changed([program.replacing(factor, softened)]).split("\n")
    last += len(changed) - len(program.text.split("\n"))
    body = indented("\n".join(changed[first - 1 : last]), 4)
    head = " " * loop.col_offset + "for passes_left in (3, 2, 1):"
    return "\n".join([*changed[: first - 1], head, body, *changed[last:]])


def _factor(loop: ast.For) -> ast.expr | None:
    """Return the quotient by which the loop multiplies entries, if there is just one."""
    found = {
        _quotient(each.value, loop) or each.value
        for each in ast.walk(loop)
        if isinstance(each, ast.AugAssign)
        and isinstance(each.op, ast.Mult)
        and isinstance(each.target, ast.Subscript)
    }
    factor = found.pop() if len(found) == 1 else None
    return factor if isinstance(factor, ast.BinOp) and isinstance(factor.op, ast.Div) else None


def _quotient(value: ast.expr, loop: ast.For) -> ast.expr | None:
    """Return what a name stands for in the loop."""
    for each in ast.walk(loop):
        if isinstance(each, ast.Assign) and ast.unparse(each.targets[0]) == ast.unparse(value):
            return each.value
    return None
