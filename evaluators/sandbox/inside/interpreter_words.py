"""Tells from the words of a command which file an interpreter runs."""

import os
import re
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress

from costada.evaluators.sandbox.inside.evaluator_scripts import MAX_PATH_CHARS, SHELL

INTERPRETER = re.compile(
    r"(python|pypy|ruby|perl|lua|php)[\d.]*|node(js)?|deno|bun|julia|Rscript|(ba|da|z|k)?sh"
)
MODULE_OPTION = "-m"
FLAG = re.compile(
    r"-([bBdEiIOPqsSuvx]+|[WX].+)|--(?!.*(eval|exec|require|import|load|print|command))[\w-]+(=.*)?"
)
"""Options that run no code, of Python above all; others may."""

SHELL_FLAG = re.compile("-[efuvx]+")
WITH_ARGUMENT = ("-W", "-X")
PYTHON_PROGRAM = re.compile(rb"#!.*\b(python|pypy)")


def is_python_program(name: str, environment: Mapping[str, str]) -> bool:
    """Whether a command is a program in Python, such as pytest, which may import what it finds."""
    found = shutil.which(name, path=environment.get("PATH")) or name
    with suppress(OSError), open(found, "rb") as file:
        return PYTHON_PROGRAM.match(file.readline(MAX_PATH_CHARS)) is not None
    return False


def files_run(words: Sequence[str]) -> list[str]:
    """The files that an interpreter may run by its words; none if it is given code, or a pipe."""
    is_shell = SHELL.fullmatch(os.path.basename(words[0]))
    flag = SHELL_FLAG if is_shell else FLAG
    rest = iter(words[1:])
    for word in rest:
        if word == MODULE_OPTION:
            place = os.path.join(*next(rest, "").split("."))
            return [f"{place}.py", os.path.join(place, "__main__.py")]
        if word in WITH_ARGUMENT:
            next(rest, "")
        elif word[:1] != "-":
            return [word]
        elif not flag.fullmatch(word):
            return []
    return []
