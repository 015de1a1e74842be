"""Edits of numbers written in a program: perturb, scale, round."""

import ast
from collections.abc import Iterator
from random import Random

from costada.models.offline.scene import Scene
from costada.models.offline.source import Edit, Program

MAX_LITERALS = 3
"""Different numbers changed by one edit."""

Place = tuple[str, float]
"""A statement's text and a number in it: equal numbers in equal statements change together."""


def change_literals(scene: Scene, rng: Random) -> Edit | None:
    """Change one to three numbers with a fractional part, each in its own way."""
    places = _places(scene.program)
    if not places:
        return None
    count = min(rng.randint(1, MAX_LITERALS), len(places))
    chosen = rng.sample(sorted(places), count)
    splices, words = [], []
    for place in chosen:
        old = place[1]
        new, verb = _changed(old, rng, scene.is_bold)
        splices += [scene.program.replacing(node, _written(new)) for node in places[place]]
        words.append(f"{verb} {_written(old)} to {_written(new)}")
    return Edit(scene.program.changed(splices), ", ".join(words).capitalize() + ".")


def new_seed(scene: Scene, rng: Random) -> Edit | None:
    """Give a random generator another seed: an integer passed as `seed` or to a generator."""
    seeds = [node for each in scene.program.functions() for node in _seeds(each)]
    if not seeds:
        return None
    node = rng.choice(seeds)
    number = rng.choice([each for each in range(1, 1000) if each != node.value])
    code = scene.program.changed([scene.program.replacing(node, str(number))])
    return Edit(code, f"Draw other random numbers: seed {node.value!r} becomes {number}.")


def _places(program: Program) -> dict[Place, list[ast.Constant]]:
    places: dict[Place, list[ast.Constant]] = {}
    numbers = (
        (statement, node)
        for function in program.functions()
        for statement in _simple_statements(function)
        for node in ast.walk(statement)
        if isinstance(node, ast.Constant)
    )
    for statement, node in numbers:
        if isinstance(node.value, float) and _is_tunable(node.value):
            places.setdefault((ast.unparse(statement), node.value), []).append(node)
    return places


def _simple_statements(function: ast.FunctionDef) -> Iterator[ast.stmt]:
    for node in ast.walk(function):
        if isinstance(node, ast.Assign | ast.AugAssign | ast.Expr | ast.Return | ast.AnnAssign):
            yield node


def _is_tunable(value: float) -> bool:
    return 1e-6 < abs(value) < 1e6 and value != 1.0


def _seeds(function: ast.FunctionDef) -> Iterator[ast.Constant]:
    for call in (each for each in ast.walk(function) if isinstance(each, ast.Call)):
        named = [keyword.value for keyword in call.keywords if keyword.arg == "seed"]
        is_generator = ast.unparse(call.func).endswith(("default_rng", "random.seed"))
        for node in [*named, *(call.args if is_generator else [])]:
            if isinstance(node, ast.Constant) and isinstance(node.value, int):
                yield node


def _changed(value: float, rng: Random, is_bold: bool) -> tuple[float, str]:
    way = rng.choice(("perturb", "perturb", "scale", "round"))
    if way == "scale":
        return value * rng.choice((0.67, 0.8, 1.25, 1.5)), "scale"
    if way == "round" and (rounded := float(f"{value:.1g}")) != value:
        return rounded, "round"
    return value * (1.0 + rng.gauss(0.0, 0.2 if is_bold else 0.1)), "move"


def _written(value: float) -> str:
    return repr(float(f"{value:.4g}"))
