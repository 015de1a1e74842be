"""Python code as a tree, read in any thread, and the docstrings in it."""

import ast
import inspect
import os
from collections.abc import Callable
from textwrap import dedent
from threading import Lock

ATTEMPTS = 5

_PARSING = Lock()
os.register_at_fork(
    before=_PARSING.acquire, after_in_parent=_PARSING.release, after_in_child=_PARSING.release
)


def parsed_module(source: str) -> ast.Module:
    """The tree of a module, as `ast.parse` returns it.

    Python 3.11 counts the depth of a tree for all threads in one place, so one that is interrupted
    while it parses raises `SystemError` (python/cpython#106905). One thread at a
    time parses here. Libraries may parse as well, so a failure is tried again.

    Raises:
        SyntaxError: The code is not Python.
        ValueError: It contains a NUL character.
        RecursionError: It is nested too deeply.
    """
    with _PARSING:
        for _ in range(ATTEMPTS - 1):
            try:
                return ast.parse(source)
            except SystemError:
                continue
        return ast.parse(source)


def parsed_expression(source: str) -> ast.expr:
    """The tree of an expression; raises as `parsed_module` does, and for a statement."""
    (statement,) = parsed_module(source).body
    if not isinstance(statement, ast.Expr):
        raise SyntaxError(f"got {source!r}, expected an expression")
    return statement.value


def docstring(documented: Callable[..., object]) -> str:
    """The docstring of a function or class; from its source where `python -OO` has dropped it."""
    if documented.__doc__:
        return inspect.cleandoc(documented.__doc__)
    [definition] = parsed_module(dedent(inspect.getsource(documented))).body
    if not isinstance(definition, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return ""
    return ast.get_docstring(definition) or ""
