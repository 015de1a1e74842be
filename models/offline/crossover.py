"""Edits that take a part of another program: a function, or the numbers of a statement."""

import ast
from random import Random

from costada.models.offline.expense import within_limit
from costada.models.offline.scene import Scene
from costada.models.offline.source import Edit, Program, Splice, called_name, calls, read_program


def take_function(scene: Scene, rng: Random) -> Edit | None:
    """Replace a function by another program's function of that name, with all it calls."""
    places = [
        (mine, theirs, other)
        for other in scene.others
        for mine in scene.program.functions()
        if (theirs := other.function(mine.name)) is not None
        if _signature(mine) == _signature(theirs)
        if scene.program.source(mine) != other.source(theirs)
    ]
    if not places:
        return None
    mine, theirs, other = rng.choice(places)
    splices = [scene.program.replacing(mine, other.source(theirs))]
    splices += _missing_functions(scene.program, mine, theirs, other)
    splices += _missing_imports(scene.program, other)
    code = within_limit(scene.program.changed(splices))
    return Edit(code, f"Take {mine.name} from another program.")


def take_numbers(scene: Scene, rng: Random) -> Edit | None:
    """Replace the numbers of a function by those at the same places of another program."""
    places = []
    for other in scene.others:
        for mine in scene.program.functions():
            theirs = other.function(mine.name)
            pairs = _differing_numbers(mine, theirs) if theirs is not None else []
            if pairs:
                places.append((mine.name, pairs))
    if not places:
        return None
    name, pairs = rng.choice(places)
    chosen = [pair for pair in pairs if rng.random() < 0.5] or pairs[:1]
    code = scene.program.changed(
        scene.program.replacing(mine, repr(theirs.value)) for mine, theirs in chosen
    )
    return Edit(within_limit(code), f"Take numbers of {name} from another program.")


def _signature(function: ast.FunctionDef) -> str:
    return ast.unparse(function.args)


def _missing_functions(
    program: Program, mine: ast.FunctionDef, theirs: ast.FunctionDef, other: Program
) -> list[Splice]:
    known = {node.name for node in program.functions()}
    wanted, found = [theirs], []
    while wanted:
        for call in calls(wanted.pop()):
            needed = other.function(called_name(call))
            if needed is not None and needed.name not in known:
                known.add(needed.name)
                wanted.append(needed)
                found.append(needed)
    return [program.before(mine, other.source(each) + "\n\n\n") for each in found]


def _missing_imports(program: Program, other: Program) -> list[Splice]:
    wanted = [
        other.source(node)
        for node in other.tree.body
        if isinstance(node, ast.Import | ast.ImportFrom) and other.is_editable(node)
    ]
    missing = [line for line in wanted if line not in program.text]
    return [program.importing(missing)] if missing else []


def _differing_numbers(
    mine: ast.FunctionDef, theirs: ast.FunctionDef
) -> list[tuple[ast.Constant, ast.Constant]]:
    """Return numbers that differ between two functions which are otherwise the same."""
    pairs = list(zip(_numbers(mine), _numbers(theirs), strict=False))
    if _shape(mine) != _shape(theirs):
        return []
    return [(a, b) for a, b in pairs if a.value != b.value]


def _numbers(function: ast.FunctionDef) -> list[ast.Constant]:
    return [
        node
        for node in ast.walk(function)
        if isinstance(node, ast.Constant) and isinstance(node.value, int | float)
    ]


def _shape(function: ast.FunctionDef) -> str:
    copy = read_program(ast.unparse(function))
    if copy is None:
        return ""
    for node in _numbers(copy.functions()[0]):
        node.value = 0
    return ast.dump(copy.tree)
