"""Edits of a text in any language: other numbers, other lines, another order of lines."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import cached_property
from random import Random

MAX_NUMBERS = 2
"""Different numbers changed by one edit."""

MAX_LINES = 40
"""Lines taken from another text by one edit."""

SHOWN_CHARACTERS = 60
"""Characters of a line in the summary of an edit."""

_MARK = re.compile(r"EVOLVE-BLOCK-(?P<edge>START|END)")
_NUMBER = re.compile(r"(?<![\w.])\d{1,15}(?:\.\d{1,15})?(?=[fFlLuU]{0,3}(?![\w.]))")
_NAMED = re.compile(r"\w\"? ?[=:] ?$")
_SEED = re.compile(r"(?:\bseed ?= ?|\bseed\(|\bdefault_rng\(|\bRandomState\()$", re.IGNORECASE)
_ZEROS = re.compile(r"(?P<name>\w+) = np\.zeros\(\((?P<rows>\d+), (?P<columns>[1-9])\)\)")
_FIXED = ("#", "//", "--", "/*", "*", "<!--", "%", "import ", "use ", "using ", "package ", "from ")
"""What lines begin with that hold no number worth a change: comments and imports."""


@dataclass(frozen=True, slots=True)
class Edit:
    """A changed text and what was done to it, in one sentence."""

    code: str
    summary: str


@dataclass(frozen=True)
class EditContext:
    """A text to change, and what an edit may use.

    Attributes:
        text: The text to change.
        others: The texts in its place in the other programs shown.
        is_exploration: Whether the prompt asks for a different program, not for a refined one.
    """

    text: str
    others: Sequence[str] = ()
    is_exploration: bool = False

    @cached_property
    def lines(self) -> list[str]:
        """The lines of the text."""
        return self.text.split("\n")

    @cached_property
    def editable(self) -> range:
        """Numbers of the lines between the marks, or of all."""
        edges = {"START": -1, "END": len(self.lines)}
        for number, line in enumerate(self.lines):
            if found := _MARK.search(line):
                edges[found["edge"]] = number
        return range(edges["START"] + 1, edges["END"])

    def places(self, pattern: re.Pattern[str]) -> list[tuple[int, re.Match[str]]]:
        """Every match in the lines that may change, with the number of its line."""
        return [
            (number, found)
            for number in self.editable
            for found in pattern.finditer(self.lines[number])
        ]

    def replacing(self, *changes: tuple[int, re.Match[str], str]) -> str:
        """The text with matches in its lines replaced; they must not overlap."""
        lines = list(self.lines)
        for number, found, new in sorted(changes, key=lambda each: each[1].start(), reverse=True):
            lines[number] = lines[number][: found.start()] + new + lines[number][found.end() :]
        return "\n".join(lines)

    def block_end(self, head: int) -> int:
        """The number behind the last line that is indented further than a line above."""
        end, margin = head + 1, len(margin_of(self.lines[head]))
        for number in range(end, len(self.lines)):
            if self.lines[number].strip():
                if len(margin_of(self.lines[number])) <= margin:
                    break
                end = number + 1
        return end


EditKind = Callable[[EditContext, Random], Edit | None]
"""An edit of one kind; None where the text offers no place for it."""


def change_numbers(context: EditContext, rng: Random) -> Edit | None:
    """Change one or two numbers: fractions first, then seeds and named counts, then others."""
    places = dict[tuple[int, str], list[re.Match[str]]]()
    for number, found in context.places(_NUMBER):
        line = context.lines[number].strip()
        if not line.startswith(_FIXED) or "#define" in line:
            places.setdefault((number, found[0]), []).append(found)
    if not places:
        return None
    keys = {place: rng.expovariate(_readiness(found[0])) for place, found in places.items()}
    chosen = sorted(keys, key=keys.__getitem__)[: rng.randint(1, MAX_NUMBERS)]
    changes, words = [], []
    for number, old in sorted(chosen):  # equal numbers of a line change together
        new = _changed_number(places[number, old][0], rng, context.is_exploration)
        changes += [(number, found, new) for found in places[number, old]]
        words.append(f"{old} to {new}")
    return Edit(context.replacing(*changes), f"Change {', '.join(words)}.")


def _readiness(found: re.Match[str]) -> float:
    """How often a number is chosen, relative to the others."""
    before = found.string[: found.start()]
    if "." in found[0]:
        return 0.5 if float(found[0]) in (0.0, 1.0) else 5.0
    is_named = _NAMED.search(before) and found[0] not in ("0", "1")
    return 2.0 if is_named or _SEED.search(before) else 0.1


def _changed_number(found: re.Match[str], rng: Random, is_exploration: bool) -> str:
    number = found[0]
    if "." not in number:
        value = int(number)
        steps = {value + 1, max(value - 1, 0), value * 2, value // 2, value + (value + 3) // 4}
        is_seed = _SEED.search(found.string[: found.start()])
        return str(rng.choice(sorted((set(range(1, 1000)) if is_seed else steps) - {value})))
    factor = rng.choice((0.5, 0.67, 0.8, 1.25, 1.5, 2.0))
    if rng.random() < 0.3:
        factor = 1.0 + rng.gauss(0.0, 0.2 if is_exploration else 0.1)
    changed = f"{max(float(number) * factor, 0.0):.6f}".rstrip("0")
    changed = changed + "0" if changed.endswith(".") else changed
    return changed if float(changed) != float(number) else f"{float(number) + 0.1:.1f}"


def spread_zeros(context: EditContext, rng: Random) -> Edit | None:
    """Begin with random numbers in place of an array of zeros, each column in its own range."""
    places = [each for each in context.places(_ZEROS) if f"{each[1]['name']}[" not in context.text]
    if not places:
        return None
    number, found = rng.choice(places)
    lows = [rng.choice((0.0, 0.0, 0.0, 0.25)) for _ in range(int(found["columns"]))]
    highs = [round(low + rng.choice((1.0, 0.5, 0.02)), 2) for low in lows]
    generator = f"np.random.default_rng({rng.randrange(1, 1000)})"
    shape = f"({found['rows']}, {found['columns']})"
    drawn = f"{found['name']} = {generator}.uniform({lows}, {highs}, {shape})"
    code = context.replacing((number, found, drawn))
    return Edit(code, "Begin with random numbers in place of zeros.")


def take_lines(context: EditContext, rng: Random) -> Edit | None:
    """Take over one place in which another text differs."""
    lines, span = context.lines, context.editable
    places = [
        (first, last, theirs[start:end])
        for theirs in (other.split("\n") for other in context.others)
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


def swap_lines(context: EditContext, rng: Random) -> Edit | None:
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
    swapped = [*lines[:number], lines[number + 1], lines[number], *lines[number + 2 :]]
    shown = lines[number].strip()[:SHOWN_CHARACTERS]
    return Edit("\n".join(swapped), f"Move `{shown}` one line down.")


def _can_swap(first: str, second: str) -> bool:
    pair = first.strip(), second.strip()
    if not all(pair) or pair[0] == pair[1] or any(each.startswith(_FIXED) for each in pair):
        return False
    is_level = margin_of(first) == margin_of(second)
    return is_level and first.rstrip()[-1] == second.rstrip()[-1] not in "{}()[]:"


def drop_line(context: EditContext, rng: Random) -> Edit | None:
    """Leave out a line that ends a sentence or a statement."""
    lines = context.lines
    places = [n for n in context.editable if lines[n].rstrip().endswith((";", "."))]
    if len(places) < 2:
        return None
    number = rng.choice(places)
    shown = lines[number].strip()[:SHOWN_CHARACTERS]
    return Edit("\n".join([*lines[:number], *lines[number + 1 :]]), f"Leave out `{shown}`.")


def margin_of(line: str) -> str:
    """The indentation of a line."""
    return line[: len(line) - len(line.lstrip())]
