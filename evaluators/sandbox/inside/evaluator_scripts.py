"""The shell scripts and makefiles of an evaluator that a command carries out, and its sources."""

import os
import re
from collections.abc import Container, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import pairwise
from typing import NamedTuple

from costada.evaluators.sandbox.inside.shell_text import commands_in, unwrapped

SHELL = re.compile(r"(ba|da|z|k)?sh")
SHEBANG = re.compile(rb"#![^\n]*\b(ba|da|z|k)?sh\b")
MAKE = ("make", "gmake")
MAKEFILES = ("GNUmakefile", "makefile", "Makefile")
MAKE_FOLDER = re.compile("-[bBdehikmnpqrRsStvw]*C(.*)|--directory=(.*)")
MAKE_FILE = re.compile("-[bBdehikmnpqrRsStvw]*f(.*)|--(?:make)?file=(.*)")
CODE_OPTION = re.compile("-[a-z]*c[a-z]*")
PATH = re.compile(r"[\w./+-]+")
INCLUDED = re.compile(
    r"(?:^\s*[#%.]?\s*include\s*[\"'<]|\binclude!\s*[(\[{]\s*\"|#\[path\s*=\s*\")([^\"'>\n]+)",
    re.MULTILINE | re.IGNORECASE,
)
RUST_MODULE = re.compile(r"^\s*(?:pub\s*(?:\([^)\n]*\)\s*)?)?mod\s+(\w+)\s*;", re.MULTILINE)
OPTION_OF_PATH = re.compile(r"-(?:isystem|iquote|idirafter|include|imacros|[A-Za-z])(?=[\w./])")
"""An option whose path follows without a space, as in `-Ifolder`."""

MAX_DEPTH = 4
MAX_SCRIPT_BYTES = 2**20
MAX_PATH_CHARS = 4096


class Script(NamedTuple):
    """A script or makefile, and the folder in which its commands run."""

    path: str
    text: str
    folder: str


def carried_out(
    words: Sequence[str], folder: str, given: Container[str], depth: int = 0
) -> Iterator[tuple[list[str], str]]:
    """A command, and those that its shell carries out, each with the folder in which it runs.

    A shell is given a text, or a script of the `given` files.
    """
    words = unwrapped(words)
    if not words or depth > MAX_DEPTH:
        return
    yield words, folder
    if (code := shell_code(words)) is not None:
        texts = [code]
    elif os.path.basename(words[0]) in MAKE:
        texts = []
    else:
        texts = [script.text for script in scripts(words, folder, given)]
    for inner in (inner for text in texts for inner in commands_in(text) or ()):
        if inner[0] == "cd" and len(inner) > 1:
            folder = path_of(inner[1], folder)
        else:
            yield from carried_out(inner, folder, given, depth + 1)


def scripts(words: Sequence[str], folder: str, given: Container[str]) -> list[Script]:
    """The script or makefiles, of the `given` files, that a command itself carries out."""
    if os.path.basename(words[0]) in MAKE:
        return [each for each in makefiles(words, folder) if each.path in given]
    is_shell = SHELL.fullmatch(os.path.basename(words[0])) is not None
    paths = [path_of(word, folder) for word in words[: 1 + is_shell]]
    found = [path for path in paths if path in given and (is_shell or is_shell_script(path))]
    return [Script(path, text, folder) for path in found if (text := text_of(path))]


def shell_code(words: Sequence[str]) -> str | None:
    """The text that a shell is given to carry out; None if it is given a script, or none."""
    if SHELL.fullmatch(os.path.basename(words[0])):
        for option, following in pairwise(words[1:]):
            if CODE_OPTION.fullmatch(option):
                return following
    return None


def makefiles(words: Sequence[str], folder: str) -> list[Script]:
    """The makefiles that a command reads."""
    folder, named = make_options(words, folder)
    paths = (os.path.realpath(os.path.join(folder, name)) for name in named or MAKEFILES)
    return [Script(path, text, folder) for path in paths if (text := text_of(path))]


def with_included(
    paths: Iterable[str], texts: Iterable[str], folder: str, given: Container[str]
) -> list[str]:
    """Sources, and those of the `given` files that they include.

    These lie beside them, or in a folder that a text names.
    """
    names = (name for text in texts for name in PATH.findall(text))
    named = {path_of(each, folder) for name in names for each in with_value(name)}
    folders = [path for path in named if os.path.isdir(path)]
    found = [*paths]
    for path in found:
        text = text_of(path) or ""
        modules = RUST_MODULE.findall(text)
        included = [*INCLUDED.findall(text), *(f"{name}.rs" for name in modules)]
        included += [os.path.join(name, "mod.rs") for name in modules]
        # The modules of a Rust file lie beside it, or in a folder of its name.
        places = (os.path.dirname(path), os.path.splitext(path)[0], *folders)
        others = {path_of(name, place) for name in included for place in places} - {*found}
        found += [each for each in others if each in given and not os.path.isdir(each)]
    return found


def with_value(word: str) -> tuple[str, ...]:
    """A word of a command, and the path in it if it is an option such as `-Ifolder`."""
    option = OPTION_OF_PATH.match(word)
    return (word, word[option.end() :]) if option else (word,)


def make_options(words: Sequence[str], folder: str) -> tuple[str, list[str]]:
    """The folder in which a command of `make` works, and the makefiles that it names."""
    place = os.path.join(folder, *_values(words, MAKE_FOLDER))
    return os.path.realpath(place), [*_values(words, MAKE_FILE)]


def _values(words: Sequence[str], option: re.Pattern[str]) -> Iterator[str]:
    """What an option of `make` is given, in the same word or the next one."""
    for word, following in pairwise((*words, "")):
        if found := option.fullmatch(word):
            yield found[1] or found[2] or following


def path_of(word: str, folder: str) -> str:
    """Where a word of a command leads, without links; empty if it is not a path."""
    if not word or "\0" in word or len(word) > MAX_PATH_CHARS:
        return ""
    return os.path.realpath(os.path.join(folder, word))


def is_shell_script(path: str) -> bool:
    """Whether a file is one, by its name or its first line."""
    with suppress(OSError), open(path, "rb") as file:
        return path.endswith(".sh") or SHEBANG.match(file.readline(MAX_PATH_CHARS)) is not None
    return False


def interpreter_of(path: str) -> list[str]:
    """The words of a script's first line, by which the system runs it; none if it has no such."""
    words = list[str]()
    with suppress(OSError), open(path, "rb") as file:
        line = file.readline(MAX_PATH_CHARS)
        words = os.fsdecode(line[2:]).split() if line.startswith(b"#!") else []
    if words[1:2] == ["-S"] and os.path.basename(words[0]) == "env":
        del words[1]
    return words


def text_of(path: str) -> str | None:
    """The text of a script; None if it is not one, or too large."""
    with suppress(OSError, UnicodeDecodeError), open(path, "rb") as file:
        text = file.read(MAX_SCRIPT_BYTES + 1)
        return text.decode() if len(text) <= MAX_SCRIPT_BYTES else None
    return None
