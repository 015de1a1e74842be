"""Where in a program the lines of a SEARCH text stand."""

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Place:
    """Lines `start` to `end` (excluded) of a program, and the lines that replace them."""

    start: int
    end: int
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Shift:
    """A change of indentation; only one of the two texts is not empty."""

    added: str = ""
    removed: str = ""

    def fits(self, line: str) -> bool:
        """Tell whether the line has the indentation to lose; a blank line needs none."""
        return not line.strip() or line.startswith(self.removed)

    def moved(self, line: str) -> str:
        """Return the line at its new indentation."""
        return self.added + line.removeprefix(self.removed) if line.strip() else line

    def leads(self, line: str, other: str) -> bool:
        """Tell whether the moved line equals the other but for trailing blanks."""
        return self.fits(line) and self.moved(line).rstrip() == other.rstrip()


def find_place(program: list[str], search: str, replacement: str) -> Place | None:
    """Return where the edit belongs, or None.

    The first place where all lines are equal is taken. Without one, a place counts if it differs
    only in blank lines and trailing blanks; or, failing that, also in indentation that is shifted
    by the same amount on every line, in which case the replacement is shifted too. Such a place
    is taken only if it is the only one.

    Args:
        program: Lines of the program.
        search: Text to look for; nothing is found if it is blank.
        replacement: Text to put there; a blank one deletes the lines.
    """
    if not search.strip():
        return None
    new = replacement.split("\n") if replacement.strip() else []
    exact = _exact_place(program, search.split("\n"), new)
    if exact is not None:
        return exact
    close = list(_close_places(program, search, new))
    unshifted = [place for shift, place in close if shift == _Shift()]
    for places in (unshifted, [place for _, place in close]):
        if places:
            return places[0] if len(places) == 1 else None
    return None


def missing_line(program: str, search: str) -> str | None:
    """Return the first line of the SEARCH text that the program does not contain, if any."""
    present = {line.rstrip() for line in program.split("\n")}
    return next((line for line in search.split("\n") if line.rstrip() not in present), None)


def _exact_place(program: list[str], search: list[str], new: list[str]) -> Place | None:
    size = len(search)
    for start in range(len(program) - size + 1):
        if program[start : start + size] == search:
            return Place(start, start + size, tuple(new))
    return None


def _close_places(
    program: list[str], search: str, new: list[str]
) -> Iterator[tuple[_Shift, Place]]:
    wanted = [line.rstrip() for line in search.split("\n") if line.strip()]
    filled = [number for number, line in enumerate(program) if line.strip()]
    for first in range(len(filled) - len(wanted) + 1):
        numbers = filled[first : first + len(wanted)]
        shift = _shift_between(wanted[0], program[numbers[0]])
        pairs = ((line, program[number]) for line, number in zip(wanted, numbers, strict=True))
        if all(shift.leads(*pair) for pair in pairs) and all(map(shift.fits, new)):
            yield shift, Place(numbers[0], numbers[-1] + 1, tuple(map(shift.moved, new)))


def _shift_between(wanted: str, found: str) -> _Shift:
    have, need = _indentation(wanted), _indentation(found)
    if need.endswith(have):
        return _Shift(added=need.removesuffix(have))
    return _Shift(removed=have.removesuffix(need))


def _indentation(line: str) -> str:
    return line[: len(line) - len(line.lstrip())]
