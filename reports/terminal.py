"""Tables in a terminal: columns that find no room are left out and named; no number is cut."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

OBEYED = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f"  # control characters but for tab and newline
    "\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\U000e0000-\U000e0fff]"  # direction, separators, invisible marks, halves of pairs
)


def printable(text: str) -> str:
    """Return a text in which characters that a terminal obeys or hides are shown by number.

    JSON stays the same JSON.
    """
    return OBEYED.sub(_by_number, text)


def _by_number(found: re.Match[str]) -> str:
    units = found[0].encode("utf-16-be", "surrogatepass").hex()
    return re.sub("....", r"\\u\g<0>", units)


def show(text: object = "", *, is_error: bool = False) -> None:
    """Print what a command has to say, on standard output or standard error."""
    print(printable(str(text)), file=sys.stderr if is_error else sys.stdout, flush=True)


WIDTH_WITHOUT_TERMINAL = 160
GAP, EDGES = 3, 2
FOLDED_WORD = 6
"""Characters that a column of words keeps where its words must be broken."""


@dataclass(frozen=True, slots=True)
class Sheet:
    """A table to print.

    Attributes:
        header: Column headings.
        rows: Cells, as many as headings in each row.
        words: Headings of columns that hold words, which may take several lines.
        spare: Headings of columns that may be left out, the first of them first.
        meanings: What the columns stand for, by heading; said below the table.
        bold: Numbers of the rows that stand out, from 0.
        ways: How to see the columns that were left out.
    """

    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    words: Sequence[str]
    spare: Sequence[str] = ()
    meanings: dict[str, str] = field(default_factory=dict)
    bold: frozenset[int] = frozenset()
    ways: str = "a wider terminal"


class SafeConsole(Console):
    """A console whose terminal obeys rich only, and nothing in the texts that are shown."""

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """Yield what is written; rich's own commands to the terminal are marked as such."""
        for segment in super().render(renderable, options):
            text, style, control = segment
            yield segment if control else Segment(printable(text), style)


def table_console() -> Console:
    """Return a console on standard output that does not cut a table when piped."""
    console = SafeConsole(highlight=False)
    return console if console.is_terminal else SafeConsole(width=WIDTH_WITHOUT_TERMINAL)


def print_sheet(sheet: Sheet, console: Console) -> None:
    """Print a table with the columns there is room for, and name the others below it.

    Of the spare columns, those that hold the same value in every row go first. If that is not
    enough, words are broken; numbers keep their width, even beyond that of the terminal.
    """
    sheet = replace(sheet, rows=[list(map(printable, cells)) for cells in sheet.rows])
    left_out: list[str] = []
    for heading in _in_order(sheet):
        if _least_width(sheet, left_out) <= console.width:
            break
        left_out.append(heading)
    least = _least_width(sheet, left_out, longest_word=FOLDED_WORD)
    wide = console if least <= console.width else SafeConsole(file=console.file, width=least)
    wide.print(_table(sheet, left_out))
    if left_out:
        names = ", ".join(_named(sheet, heading) for heading in sheet.header if heading in left_out)
        console.print(f"Left out: {names}; {sheet.ways} shows all.", markup=False)


def _in_order(sheet: Sheet) -> list[str]:
    return sorted(sheet.spare, key=lambda heading: len(_values(sheet, heading)) > 1)


def _values(sheet: Sheet, heading: str) -> set[str]:
    column = list(sheet.header).index(heading)
    return {cells[column] for cells in sheet.rows}


def _named(sheet: Sheet, heading: str) -> str:
    values = _values(sheet, heading)
    return f"{heading} ({values.pop()})" if len(values) == 1 else heading


def _table(sheet: Sheet, left_out: Sequence[str]) -> Table:
    shown = [number for number, name in enumerate(sheet.header) if name not in left_out]
    legend = "; ".join(
        f"{name}: {meaning}" for name, meaning in sheet.meanings.items() if name not in left_out
    )
    table = Table(
        box=box.SIMPLE_HEAD, caption=legend or None, caption_justify="left", pad_edge=False
    )
    for number in shown:
        _add_column(table, sheet, sheet.header[number])
    for place, cells in enumerate(sheet.rows):
        style = "bold" if place in sheet.bold else None
        table.add_row(*(Text(cells[number]) for number in shown), style=style)
    return table


def _add_column(table: Table, sheet: Sheet, heading: str) -> None:
    if heading in sheet.words:
        table.add_column(heading, overflow="fold")
    else:
        table.add_column(heading, justify="right", no_wrap=True)


def _least_width(sheet: Sheet, left_out: Sequence[str], longest_word: int = sys.maxsize) -> int:
    shown = [heading for heading in sheet.header if heading not in left_out]
    widths = [_column_width(sheet, heading, longest_word) for heading in shown]
    return sum(widths) + GAP * (len(shown) - 1) + EDGES


def _column_width(sheet: Sheet, heading: str, longest_word: int) -> int:
    texts = [heading, *_values(sheet, heading)]
    if heading not in sheet.words:
        return max(map(cell_len, texts))
    return min(longest_word, max(map(cell_len, " ".join(texts).split())))
