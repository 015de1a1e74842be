"""What a person is shown: text that a terminal can only show, whoever wrote it.

Names, models, reasons and errors may come from a run folder of somebody else or from a candidate. A
terminal obeys some characters: they move the cursor, rename the window, turn text around, or hide.
"""

import re
import sys

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
