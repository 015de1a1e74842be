"""Tells which commands run no foreign code, and which file an interpreter runs."""

import os
import re
from collections.abc import Sequence

from costada.evaluators.sandbox.inside.evaluator_scripts import SHELL

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

TOOL = re.compile(
    r"([\w.]+-)*(gcc|g\+\+|cc|c\+\+|cpp|clang(\+\+)?|[gf]?fortran|flang|ifort|ifx|icp?x)(-[\d.]+)?"
    r"|(nv|hip|rust|java|kotlin|scala|swift|mpi|mpic|gh|t)c|mpi(cxx|c\+\+|f90|fort)|ocamlopt|fpc|nasm"
    r"|ld|ar|as|nm|ranlib|strip|objdump|ldd|cargo|go|cmake|ninja|meson|f2py|cython"
    r"|cat|cp|mv|rm|ln|ls|mkdir|rmdir|touch|chmod|head|tail|sort|uniq|wc|tr|cut|tee|grep|diff|cmp"
    r"|echo|printf|true|false|test|sleep|date|pwd|which|uname|nproc|free|lscpu|file|basename|dirname"
    r"|(md5|sha\d+)sum|gzip|gunzip|unzip|zip|curl|wget|docker|podman|psql|nvidia-smi|rocm-smi"
    r"|\[|:|case|esac|cd|done|exit|export|fi|for|local|read|return|set|shift|trap|ulimit|umask|unset"
    r"|wait|\}"
)
"""Names of programs, and words of a shell, that run no code by what they are given or find."""


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
