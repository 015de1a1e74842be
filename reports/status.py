"""A status line on the terminal, which is cleared before anything else is printed."""

import os
import sys

ERASE_LINE = "\x1b[K"
_shown = [False]
"""Whether the line is on the terminal."""


def show_status(text: str) -> None:
    """Show a line in place of the one before; only where standard error is a terminal.

    The cursor stays at the beginning of the line, so that whatever is printed next replaces it.
    """
    if sys.stderr.isatty() and os.environ.get("TERM") != "dumb":
        sys.stderr.write(f"{text}{ERASE_LINE}\r")
        sys.stderr.flush()
        _shown[0] = True


def update_status(text: str) -> None:
    """Show another text, if one is shown."""
    if _shown[0]:
        show_status(text)


def erase_status() -> None:
    """Erase the line, if there is one."""
    if _shown[0]:
        _shown[0] = False
        sys.stderr.write(ERASE_LINE)
        sys.stderr.flush()
