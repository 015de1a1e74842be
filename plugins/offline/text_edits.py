"""Edits of a text in any language: other numbers, another order of lines, lines of another text."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from random import Random

from costada.plugins.offline.program import Edit

MAX_NUMBERS = 2
"""Numbers changed by one edit."""

MAX_LINES = 40
"""Lines taken from another text by one edit."""

SHOWN_CHARACTERS = 60
"""Characters of a line in the summary of an edit."""

_MARK = re.compile(r"EVOLVE-BLOCK-(?P<edge>START|END)")
_NUMBER = re.compile(r"(?<![\w.])(?P<number>\d{1,15}(?:\.\d{1,15})?)(?=[fFlLuU]{0,3}(?![\w.]))")
_INDICES = re.compile(r"list\(range\(len\((?P<name>[A-Za-z_]\w*)\)\)\)")
_FIXED = ("#", "//", "--", "/*", "*", "<!--", "%", "import ", "use ", "using ", "package ", "from ")
"""What lines begin with that hold no number worth a change: comments and imports."""


@dataclass(frozen=True, slots=True)
class TextContext:
    """A text to change, the same text of the other programs shown, and how far to go.

    Attributes:
        text: The text to change.
        others: The texts in its place in other programs.
        is_exploration: Whether the prompt asks for a different program, not for a refined one.
    """

    text: str
    others: Sequence[str] = ()
    is_exploration: bool = False

    @property
    def lines(self) -> list[str]:
        """The lines of the text."""
        return self.text.split("\n")

    @property
    def editable(self) -> range:
        """Numbers of the lines between the marks, or of all."""
        lines = self.lines
        edges = {"START": -1, "END": len(lines)}
        for number, line in enumerate(lines):
            if found := _MARK.search(line):
                edges[found["edge"]] = number
        return range(edges["START"] + 1, edges["END"])


TextEdit = Callable[[TextContext, Random], Edit | None]
"""An edit of one kind; None where the text offers no place for it."""


def change_numbers(context: TextContext, rng: Random) -> Edit | None:
    """Change one or two numbers, fractions before counts and counts before 0 and 1."""
    lines = context.lines
    places = {
        (number, found.start(), found["number"]): _readiness(found["number"])
        for number in context.editable
        if not lines[number].strip().startswith(_FIXED) or "#define" in lines[number]
        for found in _NUMBER.finditer(lines[number])
    }
    if not places:
        return None
    keys = {place: rng.expovariate(1.0) / odds for place, odds in places.items()}
    count = min(rng.randint(1, MAX_NUMBERS), len(places))
    words = []
    chosen = sorted(keys, key=keys.__getitem__)[:count]
    for number, start, old in sorted(chosen, reverse=True):
        new = _changed_number(old, rng, context.is_exploration)
        line = lines[number]
        lines[number] = line[:start] + new + line[start + len(old) :]
        words.append(f"{old} to {new}")
    return Edit("\n".join(lines), f"Change {', '.join(reversed(words))}.")


def _readiness(number: str) -> float:
    return 5.0 if "." in number else 0.2 if number in ("0", "1") else 2.0


def _changed_number(number: str, rng: Random, is_exploration: bool) -> str:
    if "." not in number:
        value = int(number)
        steps = {value + 1, max(value - 1, 0), value * 2, value // 2, value + (value + 3) // 4}
        return str(rng.choice(sorted(steps - {value})))
    factor = rng.choice((0.5, 0.67, 0.8, 1.25, 1.5, 2.0))
    if rng.random() < 0.5:
        factor = 1.0 + rng.gauss(0.0, 0.2 if is_exploration else 0.1)
    changed = f"{max(float(number) * factor, 0.0):.6f}".rstrip("0")
    changed = changed + "0" if changed.endswith(".") else changed
    return changed if float(changed) != float(number) else f"{float(number) + 0.1:.1f}"


def take_lines(context: TextContext, rng: Random) -> Edit | None:
    """Take over one place in which another text differs."""
    lines, span = context.lines, context.editable
    places = [
        (first, last, theirs[start:end])
        for other in context.others
        for theirs in [other.split("\n")]
        for tag, first, last, start, end in SequenceMatcher(
            None, lines, theirs, autojunk=False
        ).get_opcodes()
        if tag != "equal" and span.start <= first and last <= span.stop
        if max(last - first, end - start) <= MAX_LINES
        if not any(map(_MARK.search, theirs[start:end]))
    ]
    if not places:
        return None
    first, last, new = rng.choice(places)
    summary = f"Take {len(new)} lines from another program in the place of {last - first}."
    return Edit("\n".join([*lines[:first], *new, *lines[last:]]), summary)


def swap_lines(context: TextContext, rng: Random) -> Edit | None:
    """Swap two neighbouring lines of the same indentation and the same last character."""
    lines, span = context.lines, context.editable
    places = [
        number
        for number in span
        if number + 1 in span and _can_swap(lines[number], lines[number + 1])
    ]
    if not places:
        return None
    number = rng.choice(places)
    shown = _shown(lines[number])
    lines[number : number + 2] = lines[number + 1], lines[number]
    return Edit("\n".join(lines), f"Move `{shown}` one line down.")


def _can_swap(first: str, second: str) -> bool:
    pair = first.strip(), second.strip()
    if not all(pair) or pair[0] == pair[1] or any(each.startswith(_FIXED) for each in pair):
        return False
    margins = (len(line) - len(line.lstrip()) for line in (first, second))
    is_level = len(set(margins)) == 1
    return is_level and first.rstrip()[-1] == second.rstrip()[-1] not in "{}()[]:"


def drop_line(context: TextContext, rng: Random) -> Edit | None:
    """Leave out a line that ends a sentence or a statement."""
    lines = context.lines
    places = [number for number in context.editable if lines[number].rstrip().endswith((";", "."))]
    if len(places) < 2:
        return None
    number = rng.choice(places)
    shown = _shown(lines[number])
    return Edit("\n".join([*lines[:number], *lines[number + 1 :]]), f"Leave out `{shown}`.")


def order_by_value(context: TextContext, rng: Random) -> Edit | None:
    """Take the indices of a Python list in the order of its values."""
    lines = context.lines
    places = [
        (number, found) for number in context.editable for found in _INDICES.finditer(lines[number])
    ]
    if not places:
        return None
    number, found = rng.choice(places)
    name = found["name"]
    is_reversed = rng.random() < 0.5
    ordered = f"sorted(range(len({name})), key={name}.__getitem__, reverse={is_reversed})"
    line = lines[number]
    lines[number] = line[: found.start()] + ordered + line[found.end() :]
    first = "largest" if is_reversed else "smallest"
    return Edit("\n".join(lines), f"Take the entries of {name} in order, the {first} first.")


def _shown(line: str) -> str:
    return line.strip()[:SHOWN_CHARACTERS]


USUAL_TEXT_EDITS: tuple[tuple[TextEdit, float], ...] = (
    (change_numbers, 10.0),
    (take_lines, 3.0),
    (order_by_value, 2.0),
    (swap_lines, 1.0),
    (drop_line, 0.5),
)
"""How often each kind of edit is tried first, relative to the others."""

TEXT_IDEAS: dict[str, tuple[TextEdit, str, str]] = {
    "numbers.tune": (
        change_numbers,
        "Change the numbers that the result depends on most.",
        "Find the constants, sizes and limits in the part that may change. Move one or two of them"
        " by a tenth to a half and keep the rest.",
    ),
    "lines.combine": (
        take_lines,
        "Combine the program with the others that score well.",
        "Compare the program with another one line by line. Take over one of the places in which"
        " they differ.",
    ),
    "lines.reorder": (
        swap_lines,
        "Change the order of neighbouring steps.",
        "Find two neighbouring lines that do not depend on each other. Swap them.",
    ),
    "lines.shorten": (
        drop_line,
        "Leave out what is not needed.",
        "Find a line without which the program still does its work. Delete it.",
    ),
}
"""Ideas for programs in any language by approach: the edit, the idea, and how to carry it out."""


def text_edit(context: TextContext, approach: str, rng: Random) -> Edit | None:
    """The edit of the approach, else one of the usual ones that fits and changes the text."""
    wanted = [TEXT_IDEAS[approach][0]] if approach in TEXT_IDEAS else []
    keys = {kind: rng.expovariate(1.0) / odds for kind, odds in USUAL_TEXT_EDITS}
    kinds: Iterator[TextEdit] = iter([*wanted, *sorted(keys, key=keys.__getitem__)])
    edits = (kind(context, rng) for kind in kinds)
    unchanged = context.text.strip()
    return next((each for each in edits if each and each.code.strip() != unchanged), None)
