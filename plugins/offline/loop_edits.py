"""Edits of nested loops in Python: a table of distances above them, and room that they leave.

Each finds its place by what a line says and how far it is indented, so it fits loops that are
written in the usual way.
"""

import re
from random import Random

from costada.plugins.offline.edits import Edit, EditContext, margin_of
from costada.plugins.offline.searches import EVALUATIONS

_DISTANCE = re.compile(
    r"(?:(?P<root>np\.sqrt\(np\.sum\(\()|np\.linalg\.norm\()"
    r"(?P<array>\w+)\[(?P<i>\w+)\] - (?P=array)\[(?P<j>\w+)\]"
    r"(?(root)\) \*\* 2\)\)|\))"
)
_PAIR = re.compile(
    r"(?P<margin> *)(?P<array>\w+)\[\[(?P<i>\w+), (?P<j>\w+)\]\] (?P<sign>[-+*/]=) (?P<change>.+)"
)
_LIMIT = re.compile(
    r"if (?P<values>\w+)\[(?P<i>\w+)\] \+ (?P=values)\[(?P<j>\w+)\] >=? (?P<limit>.+):$"
)


def tabulate_distances(context: EditContext, rng: Random) -> Edit | None:
    """Compute distances of rows in one statement above nested loops; search longer in that time."""
    for number, found in context.places(_DISTANCE):
        around, lines, array = _loop_around(context, number), list(context.lines), found["array"]
        if around is None:
            continue
        loop, end = around  # a table above the loop also serves what follows
        margin = margin_of(lines[loop.start])
        rest = "\n".join(lines[loop.start : end])
        changes = rf"\b{array}(?:\[.*?\])? *(?:[-+*/@]|//|\*\*)?=(?!=)"
        counted = (f"for {found[name]} in range(" in rest for name in ("i", "j"))
        if re.search(changes, rest) or not all(counted):
            continue
        distance = re.compile(_DISTANCE.pattern.replace(r"(?P<array>\w+)", rf"(?P<array>{array})"))
        cell = rf"{array}_distances[\g<i>][\g<j>]"
        body, after = (
            distance.sub(cell, "\n".join(lines[part.start : part.stop]))
            for part in (loop, range(loop.stop, end))
        )
        table = f"{array}_distances = np.linalg.norm({array}[:, None] - {array}, axis=-1).tolist()"
        lines[loop.start : end] = [margin + table, _with_list(body, margin), after]
        factor = rng.choice((3, 5))
        code = _with_longer_searches("\n".join(lines), factor)
        words = "Compute a table of distances above the nested loops"
        if EVALUATIONS.search(code):
            words += f" and search {factor} times as long in the time this saves"
        return Edit(code, f"{words}.")
    return None


def _with_longer_searches(code: str, factor: int) -> str:
    return EVALUATIONS.sub(lambda each: str(int(each[0]) * factor), code)


def _with_list(loop: str, margin: str) -> str:
    """The loop with entries that it changes in pairs in a list, which Python reads faster."""
    found = _PAIR.search(loop)
    if found is None:
        return loop
    array = found["array"]
    inside = found["margin"]
    single = (f"{inside}{array}[{found[name]}] {found['sign']} change" for name in ("i", "j"))
    changed = "\n".join([f"{inside}change = {found['change']}", *single])
    loop = loop[: found.start()] + changed + loop[found.end() :]
    if re.search(rf"\b{array}\b(?!\[\w+\])", loop):
        return loop
    return f"{margin}{array} = {array}.tolist()\n{loop}\n{margin}{array} = np.array({array})"


def use_slack(context: EditContext, rng: Random) -> Edit | None:
    """Let each entry rise to what its limits leave, after the loop that lowered them.

    Whatever the entries mean, the test `v[i] + v[j] > limit` says that each pair of them shares a
    limit. Once all pairs hold, an entry may rise to the least that its limits leave; each such step
    keeps every limit.
    """
    for number, found in context.places(_LIMIT):
        around, lines = _loop_around(context, number), list(context.lines)
        values, i, j, limit = (found[name] for name in ("values", "i", "j", "limit"))
        if around is None or f"{values}_caps" in context.text:
            continue
        loop, _ = around
        body = "\n".join(lines[loop.start : loop.stop])
        size = re.search(rf"for {i} in range\(([^,]+)\):", body)
        if size is None:
            continue
        if named := re.search(rf"^ *{re.escape(limit)} = (.+)$", body, re.MULTILINE):
            limit = f"({named[1]})"  # a name from the loop stands for its value
        margin, others = margin_of(lines[loop.start]), f"for {j} in range({size[1]}) if {j} != {i}"
        lines[loop.start : loop.stop] = [
            f"{margin}{values}_caps = list({values})",
            body,
            f"{margin}for {i} in range({size[1]}):",
            f"{margin}    room = [{limit} - {values}[{j}] {others}]",
            f"{margin}    {values}[{i}] = min({values}_caps[{i}], *room)",
        ]
        return Edit("\n".join(lines), f"Let each entry of {values} rise to what its limits leave.")
    return None


def _loop_around(context: EditContext, number: int) -> tuple[range, int] | None:
    """The lines of the outermost loop around a line, and the end of its function."""
    lines, first, margin = context.lines, None, len(margin_of(context.lines[number]))
    for above in range(number - 1, context.editable.start - 1, -1):
        inside, code = len(margin_of(lines[above])), lines[above].strip()
        if code and inside < margin:
            margin = inside
            if code.startswith(("for ", "while ")):
                first = above
            elif code.startswith("def "):
                end = context.block_end(above)
                if first is None or end > context.editable.stop:
                    return None
                return range(first, context.block_end(first)), end
    return None
