"""Terminal output: untrusted text made harmless, and tables that never cut a number."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

CONTROL_CHARACTERS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f"  # control characters but for tab and newline
    "\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\U000e0000-\U000e0fff]"  # direction, separators, invisible marks, surrogates
)
WIDTH_WITHOUT_TERMINAL = 160
GAP, EDGES = 3, 2
FOLDED_WORD = 6
"""Characters that a column of words keeps where its words must be broken."""


def printable(text: str) -> str:
    """A text whose control and invisible characters are escaped; JSON stays the same JSON."""

    def escaped(found: re.Match[str]) -> str:
        units = found[0].encode("utf-16-be", "surrogatepass").hex()
        return re.sub("....", r"\\u\g<0>", units)

    return CONTROL_CHARACTERS.sub(escaped, text)


def show(text: object = "", *, is_error: bool = False) -> None:
    """Print to standard output or standard error, with control characters escaped."""
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
            if self._width(values, left_out) <= console.width:
                break
            left_out.append(heading)
        least = self._width(values, left_out, longest_word=FOLDED_WORD)
        wide = console if least <= console.width else SafeConsole(file=console.file, width=least)
        wide.print(self._drawn(left_out))
        if left_out:
            names = ", ".join(
                f"{heading} ({min(values[heading])})" if len(values[heading]) == 1 else heading
                for heading in self.header
                if heading in left_out
            )
            console.print(f"Left out: {names}; {self.alternatives} shows all.", markup=False)

    def _width(
        self,
        values: Mapping[str, set[str]],
        left_out: Sequence[str],
        longest_word: int = sys.maxsize,
    ) -> int:
        widths = []
        for heading in self.header:
            if heading in left_out:
                continue
            texts = [heading, *values[heading]]
            if heading in self.words:
                longest = max(map(cell_len, " ".join(texts).split()))
                widths.append(min(longest_word, longest))
            else:
                widths.append(max(map(cell_len, texts)))
        return sum(widths) + GAP * (len(widths) - 1) + EDGES

    def _drawn(self, left_out: Sequence[str]) -> Table:
        shown = [number for number, name in enumerate(self.header) if name not in left_out]
        legend = "; ".join(
            f"{name}: {meaning}" for name, meaning in self.meanings.items() if name not in left_out
        )
        table = Table(
            box=box.SIMPLE_HEAD, caption=legend or None, caption_justify="left", pad_edge=False
        )
        for number in shown:
            heading = self.header[number]
            if heading in self.words:
                table.add_column(heading, overflow="fold")
            else:
                table.add_column(heading, justify="right", no_wrap=True)
        for place, cells in enumerate(self.rows):
            style = "bold" if place in self.bold else None
            table.add_row(*(Text(printable(cells[number])) for number in shown), style=style)
        return table
