"""Reads, searches and outlines files of its working folder, as tools of a model print them.

Runs in the sandbox as a program of its own, with the name of a tool and its arguments; it may
import nothing of the package. What is wrong with the arguments is printed as well.
"""

import ast
import os
import re
import sys
from collections.abc import Callable, Iterator
from fnmatch import fnmatch

MAX_LINES, MAX_FOUND, MAX_LINE_CHARS = 400, 100, 300
RANGE = re.compile(r"(\d+)(?:-(\d+))?")


class WrongArgument(ValueError):
    """An argument that cannot be used, in words for the model."""


def read(path: str, lines: str = "") -> Iterator[str]:
    """Lines of a file with their numbers; `lines` is a range such as `10-25`."""
    texts = _lines(path)
    begin, end = 1, len(texts)
    if lines:
        given = RANGE.fullmatch(lines.strip())
        if not given or not int(given[1]):
            raise WrongArgument(f"lines is {lines!r}; expected a range such as 10-25")
        begin, end = int(given[1]), int(given[2] or given[1])
        if begin > len(texts) or end < begin:
            raise WrongArgument(f"{path} has the lines 1-{len(texts)}, none of {lines}")
    last = min(end, len(texts), begin + MAX_LINES - 1)
    yield f"{path}, lines {begin}-{last} of {len(texts)}:"
    for number in range(begin, last + 1):
        yield f"{number}: {texts[number - 1]}"


def grep(pattern: str, glob: str = "*") -> Iterator[str]:
    """Lines that hold a regular expression, in files whose path or name matches a pattern."""
    try:
        expression = re.compile(pattern)
    except re.error as error:
        fault = f"pattern is {pattern!r}; expected a regular expression ({error})"
        raise WrongArgument(fault) from None
    num_found = 0
    for place, folders, names in os.walk("."):
        folders.sort()
        for name in sorted(names):
            path = os.path.relpath(os.path.join(place, name), ".")
            is_meant = fnmatch(path, glob) or fnmatch(name, glob)
            if not is_meant or os.path.islink(path) or not os.path.isfile(path):
                continue
            for number, line in enumerate(_lines(path), 1):
                if expression.search(line):
                    num_found += 1
                    if num_found <= MAX_FOUND:
                        yield f"{path}:{number}: {line[:MAX_LINE_CHARS]}"
    if num_found > MAX_FOUND:
        yield f"... and {num_found - MAX_FOUND} more lines"
    if not num_found:
        yield f"No line of files that match {glob!r} holds {pattern!r}."


def outline(path: str) -> Iterator[str]:
    """Names and lines of the functions and classes of a Python file."""
    try:
        tree = ast.parse("\n".join(_lines(path)))
    except SyntaxError as error:
        raise WrongArgument(f"{path} is not Python ({error}); use read") from None
    found = list(_definitions(tree, ""))
    yield from found or [f"{path} defines no function or class."]


def _definitions(node: ast.AST, outer: str) -> Iterator[str]:
    for each in ast.iter_child_nodes(node):
        if isinstance(each, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            kind = "class" if isinstance(each, ast.ClassDef) else "def"
            begin = min([each.lineno, *(mark.lineno for mark in each.decorator_list)])
            yield f"{begin}-{each.end_lineno}: {kind} {outer}{each.name}"
            yield from _definitions(each, f"{outer}{each.name}.")
        else:
            yield from _definitions(each, outer)


def _lines(path: str) -> list[str]:
    """The lines of a file of the working folder; links lead to no other."""
    inside = os.path.join(os.path.realpath("."), "")
    if not os.path.realpath(path).startswith(inside) or not os.path.isfile(path):
        raise WrongArgument(f"There is no file {path!r} in the repository.")
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read().splitlines()


TOOLS: dict[str, Callable[..., Iterator[str]]] = {"read": read, "grep": grep, "outline": outline}

if __name__ == "__main__":
    try:
        for text in TOOLS[sys.argv[1]](*sys.argv[2:]):
            sys.stdout.write(f"{text}\n")
    except WrongArgument as error:
        sys.stdout.write(f"{error}\n")
