"""Edits of expressions: another operator, a shifted index, a disturbed array."""

import ast
from dataclasses import replace
from random import Random

from costada.models.offline.constructor import find_constructor
from costada.models.offline.scene import Scene
from costada.models.offline.source import Edit, Program, names

_SWAPS: dict[type[ast.operator], tuple[str, str]] = {
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "/"),
    ast.Div: ("/", "*"),
}


def swap_operator(scene: Scene, rng: Random) -> Edit | None:
    """Turn plus into minus or times into over, or the other way round."""
    places = [
        node
        for function in scene.program.functions()
        for node in _arithmetic_in(function)
        if type(node.op) in _SWAPS and not _holds_text(node)
    ]
    if not places:
        return None
    node = rng.choice(places)
    old, new = _SWAPS[type(node.op)]
    gap = scene.program.between(node.left, node.right)
    code = scene.program.changed([replace(gap, text=gap.text.replace(old, new, 1))])
    return Edit(code, f"Write `{new}` for `{old}` in `{ast.unparse(node)}`.")


def shift_index(scene: Scene, rng: Random) -> Edit | None:
    """Shift a count, in a product, by a share of one: a loop's variable or a written-out range."""
    loops = (each for each in _loops(scene.program) if "range(" in ast.unparse(each.iter))
    counts = {name for loop in loops for name in names(loop.target)}
    places = [
        side
        for function in scene.program.functions()
        for node in _arithmetic_in(function)
        if isinstance(node.op, ast.Mult | ast.Div)
        for side in (node.left, node.right)
        if ast.unparse(side) in counts or ast.unparse(side).startswith("np.arange(")
    ]
    if not places:
        return None
    node = rng.choice(places)
    text, share = scene.program.source(node), rng.choice((0.25, 0.5, 0.75))
    code = scene.program.changed([scene.program.replacing(node, f"({text} + {share})")])
    return Edit(code, f"Shift `{text}` by {share}.")


def disturb_array(scene: Scene, rng: Random) -> Edit | None:
    """Add a little noise to the array a constructor has built, so that no entries coincide."""
    constructor = find_constructor(scene.program)
    if constructor is None or "noise = " in scene.program.text:
        return None
    size, seed = rng.choice((0.01, 0.02, 0.05)), rng.randrange(1, 1000)
    array, margin = constructor.array, constructor.margin
    lines = (
        f"{margin}noise = np.random.default_rng({seed}).normal(0.0, {size}, {array}.shape)\n"
        f"{margin}{array} += noise\n"
    )
    if constructor.repairs:
        splice = scene.program.before(constructor.repairs[0], lines)
    else:
        splice = scene.program.after(constructor.built, lines)
    code = scene.program.changed([splice])
    return Edit(code, f"Disturb {array} by noise of size {size} before it is scored.")


def _loops(program: Program) -> list[ast.For]:
    return [
        node
        for function in program.functions()
        for node in ast.walk(function)
        if isinstance(node, ast.For)
    ]


def _arithmetic_in(function: ast.FunctionDef) -> list[ast.BinOp]:
    """Return the arithmetic in a function, but for indexes and lengths of loops."""
    found = [node for statement in function.body for node in ast.walk(statement)]
    counting = {id(part) for node in found for part in _counting(node)}
    return [node for node in found if isinstance(node, ast.BinOp) and id(node) not in counting]


def _counting(node: ast.AST) -> list[ast.AST]:
    if isinstance(node, ast.Subscript):
        return list(ast.walk(node.slice))
    return list(ast.walk(node.iter)) if isinstance(node, ast.For) else []


def _holds_text(node: ast.BinOp) -> bool:
    return any(isinstance(e, ast.Constant) and isinstance(e.value, str) for e in ast.walk(node))
