"""Docstrings that users and clients read."""

import ast
import inspect
from collections.abc import Callable
from textwrap import dedent

from costada.values.python_syntax import parsed_module


def docstring(documented: Callable[..., object]) -> str:
    """The docstring of a function or class; from its source where `python -OO` has dropped it."""
    if documented.__doc__:
        return inspect.cleandoc(documented.__doc__)
    [definition] = parsed_module(dedent(inspect.getsource(documented))).body
    if not isinstance(definition, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return ""
    return ast.get_docstring(definition) or ""
