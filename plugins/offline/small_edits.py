"""Edits of numbers and expressions, and edits that take a part of another program."""

import ast
from random import Random

from costada.plugins.offline.constructor import find_constructor
from costada.plugins.offline.program import (
    Edit,
    EditContext,
    Program,
    Splice,
    called_name,
    calls,
    names,
    range_call,
    read_program,
)
from costada.plugins.offline.running_time import within_limit

MAX_LITERALS = 3
"""Different numbers changed by one edit."""

_SIMPLE = (ast.Assign, ast.AugAssign, ast.Expr, ast.Return, ast.AnnAssign)

_SWAPS: dict[type[ast.operator], tuple[str, str]] = {
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "/"),
    ast.Div: ("/", "*"),
}


def change_literals(context: EditContext, rng: Random) -> Edit | None:
    """Change one to three numbers with a fractional part, each in its own way."""
    program = context.program
    places: dict[tuple[str, float], list[ast.Constant]] = {}
    for statement in program.nodes():
        inside = ast.walk(statement) if isinstance(statement, _SIMPLE) else ()
        for node in (each for each in inside if isinstance(each, ast.Constant)):
            value = node.value
            if isinstance(value, float) and 1e-6 < abs(value) < 1e6 and value != 1.0:
                places.setdefault((ast.unparse(statement), value), []).append(node)
    if not places:
        return None
    count = min(rng.randint(1, MAX_LITERALS), len(places))
    splices, words = [], []
    # equal numbers in equal statements change together
    for place in rng.sample(sorted(places), count):
        new, verb = _changed_number(place[1], rng, context.is_exploration)
        splices += [program.replacing(node, _written(new)) for node in places[place]]
        words.append(f"{verb} {_written(place[1])} to {_written(new)}")
    return Edit(program.changed(splices), ", ".join(words).capitalize() + ".")


def _changed_number(value: float, rng: Random, is_exploration: bool) -> tuple[float, str]:
    way = rng.choice(("perturb", "perturb", "scale", "round"))
    if way == "scale":
        return value * rng.choice((0.67, 0.8, 1.25, 1.5)), "scale"
    if way == "round" and (rounded := float(f"{value:.1g}")) != value:
        return rounded, "round"
    return value * (1.0 + rng.gauss(0.0, 0.2 if is_exploration else 0.1)), "move"


def _written(value: float) -> str:
    return repr(float(f"{value:.4g}"))


def new_seed(context: EditContext, rng: Random) -> Edit | None:
    """Give a random generator another seed: an integer passed as `seed` or to a generator."""
    seeds = []
    for call in context.program.nodes():
        if isinstance(call, ast.Call):
            is_generator = ast.unparse(call.func).endswith(("default_rng", "random.seed"))
            seeds += [keyword.value for keyword in call.keywords if keyword.arg == "seed"]
            seeds += call.args if is_generator else []
    numbers = [
        each for each in seeds if isinstance(each, ast.Constant) and isinstance(each.value, int)
    ]
    if not numbers:
        return None
    node = rng.choice(numbers)
    number = rng.choice([each for each in range(1, 1000) if each != node.value])
    code = context.program.changed([context.program.replacing(node, str(number))])
    return Edit(code, f"Draw other random numbers: seed {node.value!r} becomes {number}.")


def swap_operator(context: EditContext, rng: Random) -> Edit | None:
    """Turn plus into minus or times into over, or the other way round."""
    program = context.program
    places = []
    for node in _arithmetic(program):
        constants = (each.value for each in ast.walk(node) if isinstance(each, ast.Constant))
        if type(node.op) in _SWAPS and not any(isinstance(each, str) for each in constants):
            places.append(node)
    if not places:
        return None
    node = rng.choice(places)
    old, new = _SWAPS[type(node.op)]
    start, end = program.replacing(node.left, "").end, program.replacing(node.right, "").start
    gap = program.text[start:end].replace(old, new, 1)
    summary = f"Write `{new}` for `{old}` in `{ast.unparse(node)}`."
    return Edit(program.changed([Splice(start, end, gap)]), summary)


def shift_index(context: EditContext, rng: Random) -> Edit | None:
    """Shift a count, in a product, by a share of one: a loop's variable or a written-out range."""
    program = context.program
    loops = (node for node in program.nodes() if isinstance(node, ast.For))
    counts = {
        name for each in loops if "range(" in ast.unparse(each.iter) for name in names(each.target)
    }
    places = [
        side
        for node in _arithmetic(program)
        if isinstance(node.op, ast.Mult | ast.Div)
        for side in (node.left, node.right)
        if ast.unparse(side) in counts or ast.unparse(side).startswith("np.arange(")
    ]
    if not places:
        return None
    node = rng.choice(places)
    text, share = program.source(node), rng.choice((0.25, 0.5, 0.75))
    code = program.changed([program.replacing(node, f"({text} + {share})")])
    return Edit(code, f"Shift `{text}` by {share}.")


def _arithmetic(program: Program) -> list[ast.BinOp]:
    """The arithmetic in the functions, without that of indexes and lengths of loops."""
    arithmetic = []
    for function in program.functions():
        found = [node for statement in function.body for node in ast.walk(statement)]
        counting = [node.slice for node in found if isinstance(node, ast.Subscript)]
        counting += [node.iter for node in found if isinstance(node, ast.For)]
        left_out = {id(part) for each in counting for part in ast.walk(each)}
        arithmetic += [
            node for node in found if isinstance(node, ast.BinOp) and id(node) not in left_out
        ]
    return arithmetic


def disturb_array(context: EditContext, rng: Random) -> Edit | None:
    """Add a little noise to the array a constructor has built, so that no entries coincide."""
    constructor = find_constructor(context.program)
    if constructor is None or "noise = " in context.program.text:
        return None
    size, seed = rng.choice((0.01, 0.02, 0.05)), rng.randrange(1, 1000)
    array, margin = constructor.array, constructor.margin
    lines = (
        f"{margin}noise = np.random.default_rng({seed}).normal(0.0, {size}, {array}.shape)\n"
        f"{margin}{array} += noise\n"
    )
    if constructor.repairs:
        splice = context.program.before(constructor.repairs[0], lines)
    else:
        splice = context.program.after(constructor.built, lines)
    code = context.program.changed([splice])
    return Edit(code, f"Disturb {array} by noise of size {size} before it is scored.")


def reverse_order(context: EditContext, rng: Random) -> Edit | None:
    """Walk through a loop over a range in the opposite order, or back again."""
    loops = [
        node
        for node in context.program.nodes()
        if isinstance(node, ast.For) and range_call(node.iter) and names(node.target) != {"_"}
    ]
    if not loops:
        return None
    loop = rng.choice(loops)
    text = context.program.source(loop.iter)
    is_reversed = text.startswith("reversed(")
    new = text.removeprefix("reversed(")[:-1] if is_reversed else f"reversed({text})"
    code = context.program.changed([context.program.replacing(loop.iter, new)])
    return Edit(code, f"Walk through the loop over {ast.unparse(loop.target)} the other way round.")


def take_function(context: EditContext, rng: Random) -> Edit | None:
    """Replace a function by another program's function of that name, with all it calls."""
    program = context.program
    places = [
        (mine, theirs, other)
        for other in context.others
        for mine in program.functions()
        if (theirs := other.function(mine.name)) is not None
        if ast.unparse(mine.args) == ast.unparse(theirs.args)
        if program.source(mine) != other.source(theirs)
    ]
    if not places:
        return None
    mine, theirs, other = rng.choice(places)
    splices = [program.replacing(mine, other.source(theirs))]
    known = {node.name for node in program.functions()}
    wanted = [theirs]
    while wanted:
        for call in calls(wanted.pop()):
            needed = other.function(called_name(call))
            if needed is not None and needed.name not in known:
                known.add(needed.name)
                wanted.append(needed)
                splices.append(program.before(mine, other.source(needed) + "\n\n\n"))
    imports = [
        other.source(node)
        for node in other.tree.body
        if isinstance(node, ast.Import | ast.ImportFrom) and other.is_editable(node)
    ]
    missing = [line for line in imports if line not in program.text]
    splices += [program.importing(missing)] if missing else []
    code = within_limit(program.changed(splices))
    return Edit(code, f"Take {mine.name} from another program.")


def take_numbers(context: EditContext, rng: Random) -> Edit | None:
    """Replace the numbers of a function by those at the same places of another program."""
    places = []
    for other in context.others:
        for mine in context.program.functions():
            theirs = other.function(mine.name)
            if theirs is None or _shape(mine) != _shape(theirs):
                continue
            both = zip(_numbers(mine), _numbers(theirs), strict=False)
            pairs = [(a, b) for a, b in both if a.value != b.value]
            if pairs:
                places.append((mine.name, pairs))
    if not places:
        return None
    name, pairs = rng.choice(places)
    chosen = [pair for pair in pairs if rng.random() < 0.5] or pairs[:1]
    code = context.program.changed(
        context.program.replacing(mine, repr(theirs.value)) for mine, theirs in chosen
    )
    return Edit(within_limit(code), f"Take numbers of {name} from another program.")


def _numbers(function: ast.FunctionDef) -> list[ast.Constant]:
    found = (node for node in ast.walk(function) if isinstance(node, ast.Constant))
    return [node for node in found if isinstance(node.value, int | float)]


def _shape(function: ast.FunctionDef) -> str:
    """The function without its numbers."""
    copy = read_program(ast.unparse(function))
    if copy is None:
        return ""
    for node in _numbers(copy.functions()[0]):
        node.value = 0
    return ast.dump(copy.tree)
