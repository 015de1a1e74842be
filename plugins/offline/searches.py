"""Searches for Python programs that build an array: a first one, another one, a longer one.

A constructor is a function `def build():` that assigns an array. It can be searched if another
function `def score(array):` has one parameter of that name. The search calls this function for
other arrays and raises the sum of the numbers that it returns, so it needs to know neither what
they mean nor the task. Everything is found by what a line says and how far it is indented, which
fits programs that are written in the usual way.

The offline model cannot run a program. It estimates the time of a score from the text. All searches
of a program together may score as often as fits into `SEARCH_SECONDS`.
"""

import re
from dataclasses import dataclass
from importlib.resources import files
from random import Random

from costada.plugins.offline.edits import Edit, EditContext, margin_of

FIRST_EVALUATIONS = 40
"""Evaluations of the first search of a program: a cautious beginning."""

MIN_RISE = 1.1
"""Factor by which a longer search is longer at least."""

SEARCH_SECONDS = 0.8
"""Seconds that all searches of one program may take by the estimate."""

LOOP_ITERATIONS = 20
"""Assumed iterations of each loop."""

MAX_DEPTH = 9
"""Nested loops that count."""

LINE_SECONDS, LIBRARY_SECONDS, OVERHEAD_SECONDS = 1e-7, 3e-6, 3e-5
"""Assumed time of a line, of a call of NumPy in it, and of a turn of a search besides the score."""

EVALUATIONS = re.compile(r"(?<=, evaluations=)\d{1,9}(?=, step=)")
"""How often the call of a search may score."""

_HEAD = re.compile(r"^def (?P<name>\w+)\((?P<array>\w*)\):")
_PARTS = re.compile(r" *return \w+,")
_LOSSES = ("loss", "cost", "error", "penalty", "energy")


@dataclass(frozen=True, slots=True)
class Method:
    """A search written out as a function, in a file of the folder `searches`.

    Attributes:
        name: Name of the function and of its file.
        approach: The library function it rests on.
        step: Step to begin with, as a share of the spread of the array.
        merit: How readily it is chosen, relative to the others.
        min_evaluations: The fewest evaluations with which it makes progress.
    """

    name: str
    approach: str
    step: float
    merit: float
    min_evaluations: int = FIRST_EVALUATIONS

    @property
    def text(self) -> str:
        """The function."""
        file = files("costada.plugins.offline").joinpath("searches", f"{self.name}.txt")
        return file.read_text(encoding="utf-8")


METHODS = {
    each.name: each
    for each in (
        Method("array_search", "numpy.random.Generator.normal", 0.03, 0.3),
        Method("row_search", "numpy.random.Generator.integers", 0.05, 4.0),
        Method("annealing", "numpy.exp", 0.07, 1.5),
        Method("compass_search", "numpy.ndindex", 0.05, 1.0),
        Method("restart_search", "numpy.random.Generator.uniform", 0.1, 0.7),
        Method("gradient_search", "scipy.optimize.minimize", 0.05, 0.3, 400),
    )
}


@dataclass(frozen=True, slots=True)
class Constructor:
    """A function that builds an array, and the function that scores it.

    Attributes:
        head: Number of the constructor's first line.
        array: Name of the array.
        end: Number of the line that returns, above which a search belongs.
        search: Number of the line that searches, None if it has none.
        scorer: Numbers of the lines of the function that scores the array.
        objective: Expression of the score.
        repaired: Expression of the array after the statements `array = f(array)` that end it.
    """

    head: int
    array: str
    end: int
    search: int | None
    scorer: range
    objective: str
    repaired: str


def find_constructor(context: EditContext) -> Constructor | None:
    """The first constructor whose array another function scores."""
    functions = [
        (number, head["name"], head["array"], range(number + 1, context.block_end(number)))
        for number, head in context.places(_HEAD)
    ]
    for head, _, parameter, body in functions:
        for _, name, array, scorer in functions:
            returned = context.lines[scorer.stop - 1]
            if parameter or not array or _PARTS.match(returned):
                continue
            found = _search_and_repairs(context, body, array)
            if found is not None:
                sign = "-" * any(word in name for word in _LOSSES)
                objective = f"{sign}np.sum({name}({array}))"
                return Constructor(
                    head, array, body.stop - 1, found[0], scorer, objective, found[1]
                )
    return None


def _search_and_repairs(
    context: EditContext, body: range, array: str
) -> tuple[int | None, str] | None:
    """Where a function that builds an array searches it, and the array after its repairs."""
    lines, end = context.lines, body.stop - 1
    assigned = re.compile(rf"{margin_of(lines[end])}{array} = (?P<value>.+)")
    values = {n: each["value"] for n in body if (each := assigned.fullmatch(lines[n]))}
    searches = [n for n, value in values.items() if EVALUATIONS.search(value)]
    if len(values) == len(searches) or not lines[end].strip().startswith("return"):
        return None
    own_name, repaired, line = re.compile(rf"\b{array}\b"), array, end - 1
    while line in values and own_name.search(values[line]):
        if line not in searches:
            repaired = own_name.sub(values[line].replace("\\", r"\\"), repaired)
        line -= 1
    return searches[0] if searches else None, repaired


def evaluation_limit(context: EditContext, constructor: Constructor) -> int:
    """How often the searches of a program may score an array, at least 10."""
    seconds, loops = OVERHEAD_SECONDS, list[int]()
    for line in (context.lines[n] for n in constructor.scorer if context.lines[n].strip()):
        code, margin = line.strip(), len(margin_of(line))
        while loops and margin <= loops[-1]:
            loops.pop()
        turns = LOOP_ITERATIONS ** min(len(loops) + code.count(" for "), MAX_DEPTH)
        seconds += turns * (LINE_SECONDS + LIBRARY_SECONDS * code.count("np."))
        if code.startswith(("for ", "while ")):
            loops.append(margin)
    return max(10, int(SEARCH_SECONDS / seconds) // 10 * 10)


def complete(code: str) -> str:
    """The program with the functions that its searches call, and no more evaluations than fit."""
    context = EditContext(code)
    constructor = find_constructor(context)
    if constructor is None:
        return code
    total, limit = sum(map(int, EVALUATIONS.findall(code))), evaluation_limit(context, constructor)
    if total > limit:
        code = EVALUATIONS.sub(lambda each: str(max(5, int(each[0]) * limit // total)), code)
    head = context.lines[constructor.head]
    for method in METHODS.values():
        definition, is_called = method.text.split("\n")[0], f" = {method.name}(" in code
        if is_called and definition not in code:
            code = code.replace(f"{head}\n", f"{method.text}\n\n{head}\n", 1)
        elif not is_called and definition in code:
            body = rf"^{re.escape(definition)}\n(?:(?: .*)?\n)*"
            code = re.sub(body, "", code, flags=re.MULTILINE)
    return code


def search_with(chosen: Method, context: EditContext, rng: Random) -> Edit | None:
    """Give the constructor a search, in the place of the one it may already have."""
    constructor = find_constructor(context)
    if constructor is None or chosen.min_evaluations > evaluation_limit(context, constructor):
        return None
    lines, array = list(context.lines), constructor.array
    place = constructor.end if constructor.search is None else constructor.search
    old = lines[place] if constructor.search is not None else ""
    counts = [int(each) * 3 // 2 for each in EVALUATIONS.findall(old)]
    evaluations = max([chosen.min_evaluations, *counts])
    lines[place : place + bool(old)] = [
        f"{margin_of(lines[place])}{array} = {chosen.name}({array}, lambda {array}:"
        f" {constructor.objective}, lambda {array}: {constructor.repaired},"
        f" evaluations={evaluations},"
        f" step={chosen.step * rng.uniform(0.6, 1.6):.2g}, seed={rng.randrange(1, 1000)})"
    ]
    return Edit("\n".join(lines), f"Improve {array} by {chosen.name}.")


def another_search(context: EditContext, rng: Random) -> Edit | None:
    """Replace the search there is by one of the others, or by itself with another step."""
    if not EVALUATIONS.search(context.text):
        return None
    methods = list(METHODS.values())
    (chosen,) = rng.choices(methods, [each.merit for each in methods])
    return search_with(chosen, context, rng)


def more_evaluations(context: EditContext, rng: Random) -> Edit | None:
    """Let one search run longer; None where no time is left for it."""
    places, constructor = context.places(EVALUATIONS), find_constructor(context)
    if not places or constructor is None:
        return None
    number, found = rng.choice(places)
    old = int(found[0])
    others = sum(int(each[0]) for _, each in places) - old
    room = evaluation_limit(context, constructor) - others
    count = min(round(old * rng.choice((1.5, 2, 3))), room)
    if count < MIN_RISE * old:
        return None
    code = context.replacing((number, found, str(count)))
    return Edit(code, f"Search longer: {count} evaluations instead of {old}.")
