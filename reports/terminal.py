"""Terminal output: untrusted text made harmless, and tables that never cut a number."""

from __future__ import annotations

import re
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment, Segments
from rich.text import Text

from costada.reports.status import erase_status

CONTROL_CHARACTERS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f"  # control characters but for tab and newline
    "\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\U000e0000-\U000e0fff]"  # direction, separators, invisible marks, surrogates
)
WIDTH_WITHOUT_TERMINAL = 160
GAP, EDGES = "   ", 2
"""What stands between two columns, and the characters at both ends of a line."""

FOLDED_WORD = 6
"""Characters that a column of words keeps where its words must be broken."""


def printable(text: str) -> str:
    """A string whose control and invisible characters are escaped; JSON stays the same JSON."""

    def escaped(found: re.Match[str]) -> str:
        # As JSON writes them: a character beyond the first 65,536 as two units.
        units = found[0].encode("utf-16-be", "surrogatepass").hex()
        return re.sub("....", r"\\u\g<0>", units)

    return CONTROL_CHARACTERS.sub(escaped, text)


def printable_line(text: str) -> str:
    """The same of a name, which stays one line: line ends and tabs are escaped too."""
    return printable(text).replace("\n", "\\n").replace("\t", "\\t")


def show(text: object = "", *, is_error: bool = False) -> None:
    """Print to standard output or standard error, with control characters escaped."""
    erase_status()
    print(printable(str(text)), file=sys.stderr if is_error else sys.stdout, flush=True)


class SafeConsole(Console):
    """A console that escapes control characters in everything but rich's own commands."""

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """Yield what is written."""
        for segment in super().render(renderable, options):
            text, style, control = segment
            yield segment if control else Segment(printable(text), style)


def table_console() -> Console:
    """A console on standard output that is wide enough for a table when piped."""
    console = SafeConsole(highlight=False)
    return console if console.is_terminal else SafeConsole(width=WIDTH_WITHOUT_TERMINAL)


@dataclass(frozen=True, slots=True)
class TerminalTable:
    """A table to print."""

    header: Sequence[str]
    rows: Sequence[Sequence[str]]  # cells, as many as headings in each row
    words: Sequence[str]  # headings of columns of words, which may wrap
    optional: Sequence[str] = ()  # headings of columns that may be left out, in this order
    # what the columns stand for, by heading; printed below the table
    meanings: Mapping[str, str] = field(default_factory=dict)
    bold: frozenset[int] = frozenset()  # numbers of the rows printed bold, from 0
    alternatives: str = "a wider terminal"  # how to see the columns that were left out

    def print(self, console: Console) -> None:
        """Print the columns that fit, and name the others below the table.

        Optional columns that hold the same value in every row go first. If that is not enough,
        words are broken; numbers keep their width, even beyond that of the terminal.
        """
        values = {
            heading: {printable(cells[column]) for cells in self.rows}
            for column, heading in enumerate(self.header)
        }
        left_out: list[str] = []
        for heading in sorted(self.optional, key=lambda heading: len(values[heading]) > 1):
            if _total(self._longest_words(values, left_out).values()) <= console.width:
                break
            left_out.append(heading)
        widths = self._fitting(values, left_out, console.width)
        total = _total(widths.values())
        wide = console if total <= console.width else SafeConsole(file=console.file, width=total)
        wide.print(Segments(self._drawn(widths, wide)), crop=False, end="")
        legend = "; ".join(
            f"{name}: {meaning}" for name, meaning in self.meanings.items() if name in widths
        )
        if legend:
            wide.print(Text(legend, wide.get_style("table.caption")), width=total)
        if left_out:
            names = ", ".join(
                f"{heading} ({min(values[heading])})" if len(values[heading]) == 1 else heading
                for heading in self.header
                if heading in left_out
            )
            console.print(f"Left out: {names}; {self.alternatives} shows all.", markup=False)

    def _longest_words(
        self, values: Mapping[str, set[str]], left_out: Sequence[str]
    ) -> dict[str, int]:
        """Width of each column in which no number and no word is broken, by heading."""
        widths = {}
        for heading in self.header:
            if heading not in left_out:
                texts = [heading, *values[heading]]
                parts = " ".join(texts).split() if heading in self.words else texts
                widths[heading] = max(map(cell_len, parts))
        return widths

    def _fitting(
        self, values: Mapping[str, set[str]], left_out: Sequence[str], width: int
    ) -> dict[str, int]:
        """Width of each column by heading, so that the table has the given width if it can.

        Columns of words wrap, the widest first; where that is not enough, words are broken.
        """
        unbroken = self._longest_words(values, left_out)
        widths = {name: max(map(cell_len, [name, *values[name]])) for name in unbroken}
        for least in (unbroken, dict.fromkeys(unbroken, FOLDED_WORD)):
            while _total(widths.values()) > width:
                wraps = [
                    name for name in widths if name in self.words and widths[name] > least[name]
                ]
                if not wraps:
                    break
                widths[max(wraps, key=widths.__getitem__)] -= 1
        return widths

    def _drawn(self, widths: Mapping[str, int], console: Console) -> Iterator[Segment]:
        """The lines of the table; rich's own would take a second for each thousand rows."""
        columns = [
            (self.header.index(name), width, name in self.words) for name, width in widths.items()
        ]

        def lines(cells: Sequence[str]) -> Iterator[str]:
            parts = []
            for number, width, is_words in columns:
                text = printable(cells[number])
                part = [text]
                if cell_len(text) > width or "\n" in text or "\t" in text:
                    wrapped = Text(text).wrap(console, width, overflow="fold")
                    part = [line.plain for line in wrapped]
                parts.append([_padded(line.rstrip(), width, is_left=is_words) for line in part])
            height = max(map(len, parts))
            for part, (_, width, _) in zip(parts, columns, strict=True):
                part += [" " * width] * (height - len(part))
            for line in zip(*parts, strict=True):
                yield f" {GAP.join(line)} "

        blank, bold = " " * _total(widths.values()), console.get_style("bold")
        head = [(line, console.get_style("table.header")) for line in lines(self.header)]
        body = (
            (line, bold if place in self.bold else None)
            for place, cells in enumerate(self.rows)
            for line in lines(cells)
        )
        rule = f" {'─' * (len(blank) - EDGES)} "
        for text, style in chain([(blank, None)], head, [(rule, None)], body, [(blank, None)]):
            yield Segment(text, style)
            yield Segment.line()


def _padded(text: str, width: int, *, is_left: bool) -> str:
    blank = " " * (width - cell_len(text))
    return text + blank if is_left else blank + text


def _total(widths: Collection[int]) -> int:
    """Characters of a table with columns of these widths."""
    return sum(widths) + len(GAP) * (len(widths) - 1) + EDGES
