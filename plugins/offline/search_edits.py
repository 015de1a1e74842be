"""Edits that let a constructor search: another search, a second one, a longer one, a polish.

The searches judge arrays by the program's own statements (see `constructor`), so they fit every
program that builds an array and computes its value. Each takes the array to start from, the
functions that score an array (higher is better) and that repair one, how often it may score, a
step relative to the spread of the array, and a seed. None knows what the numbers stand for.
"""

import ast
from dataclasses import dataclass
from importlib.resources import files
from random import Random

from costada.plugins.offline.constructor import OBJECTIVE, REPAIR, Constructor, find_constructor
from costada.plugins.offline.loop_edits import without_repetition
from costada.plugins.offline.program import (
    Edit,
    EditContext,
    Program,
    Splice,
    called_name,
    calls,
    range_call,
    read_program,
)
from costada.plugins.offline.running_time import evaluation_counts, evaluation_limit, within_limit

FIRST_EVALUATIONS = 40
"""Evaluations of the first search of a program: a cautious beginning."""

POLISH_SHARE = 0.05
"""Step of a polish relative to the usual step of its method."""

MIN_RISE = 1.1
"""Factor by which a longer search is longer at the least."""


@dataclass(frozen=True, slots=True)
class Method:
    """A search written out as a function, in a file of the folder `searches`.

    Attributes:
        name: Name of the function and of its file.
        approach: The library function it rests on.
        step: Step to begin with, as a share of the spread of the array.
        min_factor: Its least evaluations, as a multiple of `FIRST_EVALUATIONS`.
        needs: Import line it needs besides `import numpy as np`, or an empty text.
    """

    name: str
    approach: str
    step: float
    min_factor: int = 1
    needs: str = ""

    @property
    def text(self) -> str:
        """The function."""
        file = files("costada.plugins.offline").joinpath("searches", f"{self.name}.txt")
        return file.read_text(encoding="utf-8")


METHODS = {
    each.name: each
    for each in (
        Method("array_search", "numpy.random.Generator.normal", 0.03),
        Method("row_search", "numpy.random.Generator.integers", 0.1),
        Method("annealing", "numpy.exp", 0.07),
        Method("compass_search", "numpy.ndindex", 0.05),
        Method("restart_search", "numpy.random.Generator.uniform", 0.1),
        Method(
            "gradient_search", "scipy.optimize.minimize", 0.05, 10, "from scipy import optimize"
        ),
    )
}


def search_with(chosen: Method, context: EditContext, rng: Random) -> Edit | None:
    """Give the constructor a search, in the place of the one it may already have."""
    program, constructor = context.program, find_constructor(context.program)
    if constructor is None:
        return None
    first = chosen.min_factor * FIRST_EVALUATIONS
    if first > evaluation_limit(program, constructor):
        return None
    counts = [count for _, count in evaluation_counts(constructor)]
    number = max([first, *(count * 3 // 2 for count in counts)])
    call = _call(constructor, chosen, number, chosen.step * rng.uniform(0.6, 1.6), rng)
    splices = _with_function(program, constructor, chosen)
    if constructor.searches:
        search = constructor.searches[0]
        splices.append(program.replacing(search, call))
        old = program.function(called_name(search.value))
        if old is not None and old.name != chosen.name and program.text.count(f"{old.name}(") <= 2:
            splices.append(program.without(old))
    else:
        functions = constructor.nested_functions(program)
        text = f"\n{functions}\n\n{constructor.margin}{call}\n"
        splices.append(program.after(constructor.built, text))
    code = within_limit(program.changed(splices))
    return Edit(code, f"Improve {constructor.array} by {chosen.name}.")


def polish(context: EditContext, rng: Random) -> Edit | None:
    """Append a search with a small step behind the searches there are."""
    constructor = find_constructor(context.program)
    chosen = METHODS[rng.choice(("row_search", "compass_search"))]
    counts = evaluation_counts(constructor) if constructor else []
    if constructor is None or len(constructor.searches) != 1 or not counts:
        return None
    number = max(10, counts[0][1] // 3)
    call = _call(constructor, chosen, number, chosen.step * POLISH_SHARE, rng)
    splices = _with_function(context.program, constructor, chosen)
    splices.append(context.program.after(constructor.searches[0], constructor.margin + call))
    code = within_limit(context.program.changed(splices))
    return Edit(code, f"Polish {constructor.array} by {chosen.name} with a small step.")


def _call(
    constructor: Constructor, chosen: Method, evaluations: int, step: float, rng: Random
) -> str:
    array, seed = constructor.array, rng.randrange(1, 1000)
    settings = f"evaluations={evaluations}, step={float(f'{step:.2g}')}, seed={seed}"
    return f"{array} = {chosen.name}({array}, {OBJECTIVE}, {REPAIR}, {settings})"


def _with_function(program: Program, constructor: Constructor, chosen: Method) -> list[Splice]:
    """The splices that define the method and import what it needs."""
    splices = []
    if program.function(chosen.name) is None:
        splices.append(program.before(constructor.function, chosen.text + "\n\n"))
    needs = [line for line in ("import numpy as np", chosen.needs) if line]
    missing = [line for line in needs if line not in program.text]
    return [*splices, program.importing(missing)] if missing else splices


def change_evaluations(context: EditContext, rng: Random) -> Edit | None:
    """Let a search run longer, up to what fits into the time."""
    return more_evaluations(rng.choice((1.3, 1.5, 2.0)), context, rng)


def more_evaluations(factor: float, context: EditContext, rng: Random) -> Edit | None:
    """Multiply the evaluations of one search; None where no time is left for it."""
    constructor = find_constructor(context.program)
    counts = evaluation_counts(constructor) if constructor else []
    if constructor is None or not counts:
        return None
    node, count = rng.choice(counts)
    others = sum(each for _, each in counts) - count
    room = evaluation_limit(context.program, constructor) - others
    number = min(round(count * factor), room)
    if number < MIN_RISE * count:
        return None
    code = context.program.changed([context.program.replacing(node, str(number))])
    return Edit(code, f"Search longer: {number} evaluations instead of {count}.")


def cheaper_scoring(context: EditContext, rng: Random) -> Edit | None:
    """Compute outside of nested loops what can be; spend the time won on more evaluations."""
    code = without_repetition(context.program)
    program = read_program(code) if code is not None else None
    constructor = find_constructor(program) if program else None
    if program is None or constructor is None:
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


def shrink_step(context: EditContext, rng: Random) -> Edit | None:
    """Let the spread of a loop's random numbers shrink to nothing by the end of the loop."""
    program = context.program
    places = [
        (loop, share, step)
        for loop in program.nodes()
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
    shrunk = program.replacing(step, f"{step.id} * {left}")
    code = program.changed([program.replacing(loop.target, "turn"), shrunk])
    return Edit(code, "Shrink the step of the search while it goes on.")


def _share_of_turns(loop: ast.expr) -> str | None:
    """Share of a loop over a range that is done at `turn`; None for any other loop."""
    if not isinstance(loop, ast.Call) or range_call(loop) is not loop or loop.keywords:
        return None
    if not 1 <= len(loop.args) <= 3 or any(isinstance(each, ast.Starred) for each in loop.args):
        return None
    if len(loop.args) == 1:
        return f"turn / ({ast.unparse(loop.args[0])})"
    start, stop = (ast.unparse(each) for each in loop.args[:2])
    return f"(turn - ({start})) / (({stop}) - ({start}))"
