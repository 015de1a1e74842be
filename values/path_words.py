"""A path as a word of a command that a message proposes."""

import os
import shlex
from pathlib import Path


def path_word(path: str | Path) -> str:
    """The path, quoted for a shell; one that begins with a dash is no option."""
    text = os.fspath(path)
    return shlex.quote(f"./{text}" if text.startswith("-") else text)
