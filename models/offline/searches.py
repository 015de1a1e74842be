"""Edits that let a constructor search: another search, a second one, a polish at the end.

The searches judge arrays by the program's own statements (see `constructor`), so they fit every
program that builds an array and computes its value.
"""

import ast
from random import Random

from costada.models.offline.constructor import OBJECTIVE, REPAIR, Constructor, find_constructor
from costada.models.offline.expense import evaluation_counts, evaluation_limit, within_limit
from costada.models.offline.hoisting import without_repetition
from costada.models.offline.methods import Method, method
from costada.models.offline.scene import Scene
from costada.models.offline.source import Edit, Program, Splice, called_name, calls, read_program

FIRST_EVALUATIONS = 40
"""Evaluations of the first search of a program: a cautious beginning."""

POLISH_SHARE = 0.05
"""Step of a polish relative to the usual step of its method."""


def search_with(scene: Scene, chosen: Method, rng: Random) -> Edit | None:
    """Give the constructor a search, in the place of the one it may already have."""
    constructor = find_constructor(scene.program)
    if constructor is None:
        return None
    if chosen.appetite * FIRST_EVALUATIONS > evaluation_limit(scene.program, constructor):
        return None
    counts = [count for _, count in evaluation_counts(constructor)]
    number = max([chosen.appetite * FIRST_EVALUATIONS, *(count * 3 // 2 for count in counts)])
    step = float(f"{chosen.step * rng.uniform(0.6, 1.6):.2g}")
    call = _call(constructor, chosen, number, step, rng)
    splices = _with_functions(scene.program, constructor, chosen)
    if constructor.searches:
        splices.append(scene.program.replacing(constructor.searches[0], call))
        splices += _without_function(scene.program, constructor.searches[0], chosen)
    else:
        splices.append(_first_search(scene.program, constructor, call))
    code = within_limit(scene.program.changed(splices))
    return Edit(code, f"Improve {constructor.array} by {chosen.name}.")


def polish(scene: Scene, rng: Random) -> Edit | None:
    """Append a search with a small step behind the searches there are."""
    constructor = find_constructor(scene.program)
    chosen = method(rng.choice(("row_search", "compass_search")))
    if constructor is None or chosen is None or len(constructor.searches) != 1:
        return None
    counts = evaluation_counts(constructor)
    if not counts:
        return None
    last = constructor.searches[0]
    number = max(10, counts[0][1] // 3)
    call = _call(constructor, chosen, number, float(f"{chosen.step * POLISH_SHARE:.2g}"), rng)
    splices = _with_functions(scene.program, constructor, chosen)
    splices.append(scene.program.after(last, constructor.margin + call))
    code = within_limit(scene.program.changed(splices))
    return Edit(code, f"Polish {constructor.array} by {chosen.name} with a small step.")


def cheaper_scoring(scene: Scene, rng: Random) -> Edit | None:
    """Compute outside of nested loops what can be; spend the time won on more evaluations."""
    code = without_repetition(scene.program)
    program = read_program(code) if code is not None else None
    constructor = find_constructor(program) if program else None
    if code is None or program is None or constructor is None:
        return None
    factor = rng.choice((2, 3))
    code = program.changed(
        program.replacing(node, str(count * factor))
        for node, count in evaluation_counts(constructor)
    )
    words = "Compute tables outside of the nested loops"
    if constructor.searches:
        words += f" and search {factor} times as long in the time this saves"
    return Edit(within_limit(code), f"{words}.")


def shrink_step(scene: Scene, rng: Random) -> Edit | None:
    """Let the spread of a loop's random numbers shrink to nothing while the loop goes on."""
    places = [
        (loop, share, step)
        for function in scene.program.functions()
        for loop in ast.walk(function)
        if isinstance(loop, ast.For) and ast.unparse(loop.target) == "_"
        if (share := _share_of_turns(loop.iter)) is not None
        for call in calls(loop)
        if called_name(call) in ("normal", "uniform")
        for step in call.args[1:2]
        if isinstance(step, ast.Name)
    ]
    if not places:
        return None
    loop, share, step = rng.choice(places)
    left = f"(1.0 - {share})" + rng.choice(("", " ** 2"))
    code = scene.program.changed(
        [
            scene.program.replacing(loop.target, "turn"),
            scene.program.replacing(step, f"{step.id} * {left}"),
        ]
    )
    return Edit(code, "Shrink the step of the search while it goes on.")


def _share_of_turns(loop: ast.expr) -> str | None:
    """Share of a loop over a range that is done at `turn`; None for any other loop."""
    if not isinstance(loop, ast.Call) or called_name(loop) != "range" or loop.keywords:
        return None
    if not 1 <= len(loop.args) <= 3 or any(isinstance(each, ast.Starred) for each in loop.args):
        return None
    if len(loop.args) == 1:
        return f"turn / ({ast.unparse(loop.args[0])})"
    start, stop = (ast.unparse(each) for each in loop.args[:2])
    return f"(turn - ({start})) / (({stop}) - ({start}))"


def _call(
    constructor: Constructor, chosen: Method, evaluations: int, step: float, rng: Random
) -> str:
    array, seed = constructor.array, rng.randrange(1, 1000)
    settings = f"evaluations={evaluations}, step={step}, seed={seed}"
    return f"{array} = {chosen.name}({array}, {OBJECTIVE}, {REPAIR}, {settings})"


def _with_functions(program: Program, constructor: Constructor, chosen: Method) -> list[Splice]:
    """Return the splices that define the method and import what it needs."""
    splices = []
    if program.function(chosen.name) is None:
        splices.append(program.before(constructor.function, chosen.text + "\n\n"))
    needs = [line for line in ("import numpy as np", chosen.needs) if line]
    missing = [line for line in needs if line not in program.text]
    if missing:
        splices.append(program.importing(missing))
    return splices


def _first_search(program: Program, constructor: Constructor, call: str) -> Splice:
    functions = constructor.nested_functions(program)
    return program.after(constructor.built, f"\n{functions}\n\n{constructor.margin}{call}\n")


def _without_function(program: Program, search: ast.Assign, chosen: Method) -> list[Splice]:
    """Return the splice that removes the function of a search no longer called."""
    if not isinstance(search.value, ast.Call):
        return []
    old = program.function(called_name(search.value))
    if old is None or old.name == chosen.name or program.text.count(f"{old.name}(") > 2:
        return []
    return [program.without(old)]
