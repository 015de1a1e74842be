"""Checks of the syntax of a candidate's files, inside its confinement.

A parser runs on untrusted text: here it has the time and the memory of the sandbox, and can harm
nothing. Python, JSON, TOML and YAML are read by their libraries, other languages by tree-sitter
where a grammar is installed. The libraries are loaded by the checks that need them: every
candidate's process begins with this module.
"""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

MAX_SHOWN = 120
"""Characters of a line that a fault shows."""

TOO_DEEP = "nested too deeply"


def load_check(request: Mapping[str, Any]) -> Callable[[], dict[str, str]]:
    """What finds the faults of the request's files; see `find_faults`."""
    languages: Mapping[str, str] = request["languages"]
    return lambda: find_faults(languages)


def find_faults(languages: Mapping[str, str]) -> dict[str, str]:
    """Line and message of the first fault of each faulty file, by path.

    Args:
        languages: A language of `LIBRARIES`, or a tree-sitter module and function such as
            `tree_sitter_cpp.language`, by the path of each file to check.
    """
    faults = {}
    for path, language in languages.items():
        with open(path, encoding="utf-8", newline="") as file:
            text = file.read()
        check = LIBRARIES.get(language)
        found = check(text) if check else _grammar_fault(text, language)
        if found is not None:
            number, message = found
            faults[path] = described(path, text, number, message)
    return faults


Fault = tuple[int, str] | None
"""The line, counted from 1, and what is wrong there; None where nothing is."""


def described(path: str, text: str, number: int, message: str) -> str:
    """A fault with its place, and the line that has it."""
    lines = text.splitlines()
    shown = lines[number - 1].strip()[:MAX_SHOWN] if 0 < number <= len(lines) else ""
    head = f"{path}, line {number}: {message}"
    return f"{head}\n    {shown}" if shown else head


def python_fault(text: str) -> Fault:
    """The first fault of a Python text."""
    from ast import PyCF_ONLY_AST

    try:
        compile(text, "candidate", "exec", PyCF_ONLY_AST, dont_inherit=True)
    except SyntaxError as error:
        return error.lineno or 1, f"SyntaxError: {error.msg}"
    except (MemoryError, RecursionError):
        return 1, TOO_DEEP
    except ValueError as error:
        return 1, str(error)
    return None


def json_fault(text: str) -> Fault:
    """The first fault of a JSON text."""
    import json

    try:
        json.loads(text)
    except json.JSONDecodeError as error:
        return error.lineno, error.msg
    except RecursionError:
        return 1, TOO_DEEP
    except ValueError as error:  # a number of too many digits
        return 1, str(error)
    return None


def toml_fault(text: str) -> Fault:
    """The first fault of a TOML text."""
    import tomllib

    try:
        tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        message, _, place = str(error).rpartition(" (at line ")
        number = place.partition(",")[0]
        if number.isdecimal():
            return int(number), message
        return max(1, len(text.splitlines())), message or str(error)
    except RecursionError:
        return 1, TOO_DEEP
    except ValueError as error:
        return 1, str(error)
    return None


def yaml_fault(text: str) -> Fault:
    """The first fault of a YAML text; its values are not made."""
    import yaml

    try:
        for _ in yaml.parse(text, Loader=yaml.SafeLoader):
            pass
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        return mark.line + 1 if mark else 1, error.problem or str(error)
    except yaml.YAMLError as error:
        return 1, str(error)
    except RecursionError:
        return 1, TOO_DEEP
    return None


LIBRARIES: Mapping[str, Callable[[str], Fault]] = {
    "Python": python_fault,
    "JSON": json_fault,
    "TOML": toml_fault,
    "YAML": yaml_fault,
}


def _grammar_fault(text: str, grammar: str) -> Fault:
    """The first place that a tree-sitter grammar finds no rule for."""
    tree_sitter: Any = import_module("tree_sitter")
    module, _, function = grammar.rpartition(".")
    language = tree_sitter.Language(getattr(import_module(module), function)())
    node = tree_sitter.Parser(language).parse(text.encode()).root_node
    if not node.has_error:
        return None
    while not (node.is_error or node.is_missing):
        node = next(each for each in node.children if each.has_error or each.is_missing)
    number = node.start_point[0] + 1
    if node.is_missing:
        return number, f"`{node.type}` is missing"
    near = text.encode()[node.start_byte :].decode("utf-8", "replace").strip()
    if not near:
        return number, "no valid syntax"
    return number, f"no valid syntax near `{near.splitlines()[0][:MAX_SHOWN]}`"
