"""The files that a build, or a program, makes beside the evaluator, as far as texts name them."""

import os
import re
from collections.abc import Iterable, Sequence

OUTPUT_OPTION, OBJECT_OPTION, MODULES_OPTION = "-o", "-c", "-J"
COMPILER = re.compile(r"(.*-)?(cc|c\+\+|gcc|g\+\+|clang|clang\+\+|gfortran)(-[\d.]+)?")
FORTRAN = re.compile(r"(.*-)?gfortran(-[\d.]+)?")
OUTPUT = re.compile(r"(?<!\S)-o\s*([\w./+-]+)")
RULE = re.compile(r"^([\w./+-]+)[ \t]*:(?!=)[^\n]*\n((?:\t[^\n]*\n?)+)", re.MULTILINE)
TARGET = "$@"
FILE_NAME = re.compile(r"[\w./+-]*[\w+-]\.[A-Za-z]\w*")
QUOTED_NAME = re.compile(rf"[\"']({FILE_NAME.pattern})[\"']")
IMPORTED = (".py", ".pyc", ".so", ".pth")


def outputs_of(words: Sequence[str]) -> list[str]:
    """The files that a build makes, as far as its command says."""
    if OUTPUT_OPTION in words[:-1]:
        return [words[words.index(OUTPUT_OPTION) + 1]]
    if not COMPILER.fullmatch(os.path.basename(words[0])):
        return []
    if OBJECT_OPTION not in words:
        return ["a.out"]
    sources = [word for word in words[1:] if word[:1] != "-" and "." in os.path.basename(word)]
    return [f"{os.path.splitext(os.path.basename(each))[0]}.o" for each in sources]


def outputs_in(text: str) -> list[str]:
    """What a script or a makefile builds, as far as it names that: after `-o`, or as a target."""
    targets = [match[1] for match in RULE.finditer(text) if TARGET in match[2]]
    return [*targets, *(name for name in OUTPUT.findall(text))]


def named_outputs(names: Iterable[str]) -> list[str]:
    """Those of some words that are names of files with an ending, but for code of Python."""
    return [name for name in names if FILE_NAME.fullmatch(name) and not name.endswith(IMPORTED)]


def quoted_names(text: str) -> set[str]:
    """The names of such files in the quotes of a program."""
    return {*named_outputs(QUOTED_NAME.findall(text))}


def with_modules_in(folder: str, words: Sequence[str]) -> list[str]:
    """The command of a compiler of Fortran that puts module files into a folder."""
    if any(word.startswith(MODULES_OPTION) for word in words):
        return [*words]
    return [words[0], f"{MODULES_OPTION}{folder}", *words[1:]]
