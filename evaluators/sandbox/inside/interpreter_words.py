"""What the words of an interpreter's command have it run: code in them, a module, or a file."""

import os
import re
from collections.abc import Sequence
from enum import Enum, auto
from typing import NamedTuple

PYTHON = re.compile(r"python[\d.]*")
SHELL = re.compile(r"(ba|da|z|k)?sh")
OTHERS = re.compile(r"(ruby|perl|lua|php)[\d.]*|node(js)?|deno|bun|julia|Rscript")

PYTHON_FLAGS = "-[bBdEhiIOPqRsSuvVx?]*"
CODE = {
    PYTHON: re.compile(rf"{PYTHON_FLAGS}c(.*)", re.DOTALL),
    SHELL: re.compile(r"-[a-zA-Z]*c[a-zA-Z]*()"),
    OTHERS: re.compile(r"(?:-[a-zA-Z0-9]*[eE]|-[prBR]|-pe|--eval|--print|eval)=?(.*)", re.DOTALL),
}
"""The options that code follows, in the same word or in the next one."""

MODULE = re.compile(rf"{PYTHON_FLAGS}m(.*)")
WITH_VALUE = {
    PYTHON: re.compile(rf"{PYTHON_FLAGS}[WX]|--check-hash-based-pycs"),
    SHELL: re.compile(r"[-+][oO]|--rcfile|--init-file"),
    OTHERS: re.compile(r"-I|-L|--project"),
}
"""The options that a value follows in the next word."""

STANDARD_INPUT = ("-", "/dev/stdin", "/proc/self/fd/0")


class Source(Enum):
    """Where an interpreter takes its code from."""

    WORD = auto()
    MODULE = auto()
    FILE = auto()
    INPUT = auto()


class Told(NamedTuple):
    """What an interpreter is told to run: the code, module or file, and the words behind that."""

    source: Source
    text: str = ""
    arguments: Sequence[str] = ()


def told(words: Sequence[str]) -> Told | None:
    """What a command has its interpreter run; None if it is none that is known."""
    name = os.path.basename(words[0])
    kind = next((each for each in CODE if each.fullmatch(name)), None)
    if kind is None:
        return None
    has_code = False
    rest = [*words[1:]]
    while rest:
        word = rest.pop(0)
        if word in STANDARD_INPUT:
            break
        if (code := CODE[kind].fullmatch(word)) and kind is SHELL:
            has_code = True  # it follows the other options
        elif code:
            return Told(Source.WORD, code[1] or (rest.pop(0) if rest else ""), rest)
        elif kind is PYTHON and (module := MODULE.fullmatch(word)):
            return Told(Source.MODULE, module[1] or (rest.pop(0) if rest else ""), rest)
        elif WITH_VALUE[kind].fullmatch(word):
            del rest[:1]
        elif word[:1] not in "-+":
            return Told(Source.WORD if has_code else Source.FILE, word, rest)
    return Told(Source.INPUT)


def is_shell(program: str) -> bool:
    """Whether a program is a shell."""
    return SHELL.fullmatch(os.path.basename(program)) is not None
