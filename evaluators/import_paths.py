"""The folders that a module may add to its import path, found by reading its code.

Expressions of `__file__` are followed through `os.path`, `pathlib` and names that are assigned
once at the top of the module. What cannot be read this way counts as no folder.
"""

import ast
import os
from functools import lru_cache
from pathlib import Path

from costada.values.python_syntax import parsed_module

IMPORT_PATH = "sys.path"
EXPRESSIONS = (ast.Attribute, ast.BinOp, ast.Call, ast.Subscript)
UNPARSABLE = (SyntaxError, ValueError, RecursionError)
SAME = ("abspath", "realpath", "normpath", "str", "fspath", "Path")
SAME_AS_OWNER = ("absolute", "resolve", "as_posix")
MAX_DEPTH = 20
MAX_SOURCES = 1024


def import_folders(source: str, path: Path) -> list[Path]:
    """The folders that the module at a path may add to `sys.path`, if they are there.

    In a module that names `sys.path`, these are all folders that its expressions lead to.
    """
    return [each for each in _paths_in(source, path) if each.is_dir()]


@lru_cache(maxsize=MAX_SOURCES)
def _paths_in(source: str, path: Path) -> tuple[Path, ...]:
    """The absolute paths that the expressions of a module lead to, if it names `sys.path`."""
    if IMPORT_PATH not in source:
        return ()
    try:
        tree = parsed_module(source)
    except UNPARSABLE:
        return ()
    reader = _PathReader(tree, path)
    found: dict[Path, None] = {}
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        text = reader.path_of(node) if isinstance(node, EXPRESSIONS) else None
        if text is None:
            waiting += ast.iter_child_nodes(node)
        elif os.path.isabs(text):
            found[Path(os.path.normpath(text))] = None
    return tuple(found)


@lru_cache(maxsize=MAX_SOURCES)
def imported_modules(source: str) -> tuple[str, ...]:
    """The modules that a program imports, with dots in front if relative to its own.

    What is imported from a module may be a module too, so it is named as one.
    """
    names: list[str] = []
    try:
        nodes = [*ast.walk(parsed_module(source))]
    except UNPARSABLE:
        return ()
    for node in nodes:
        if isinstance(node, ast.Import):
            names += [each.name for each in node.names]
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            names.append(module)
            joint = "" if module.endswith(".") else "."
            names += [f"{module}{joint}{each.name}" for each in node.names if each.name != "*"]
    return tuple(dict.fromkeys(names))


def module_files(name: str, folder: Path) -> list[Path]:
    """The files of a module found in a folder of the import path, with those of its packages."""
    found: list[Path] = []
    for part in name.split("."):
        file, package = folder / f"{part}.py", folder / part
        if not part or not package.is_dir():
            return found + ([file] if part and file.is_file() else [])
        folder = package
        found += [each for each in [package / "__init__.py"] if each.is_file()]
    return found


class _PathReader:
    """Reads expressions that are paths, as far as their text shows them."""

    def __init__(self, tree: ast.Module, path: Path) -> None:
        self._file = str(path)
        self._values: dict[str, ast.expr | None] = {}
        for node in ast.walk(tree):
            if isinstance(node, ast.Assign) and isinstance(target := node.targets[0], ast.Name):
                is_new = target.id not in self._values
                self._values[target.id] = node.value if is_new else None
            if isinstance(node, ast.For) and isinstance(node.target, ast.Name):
                self._values[node.target.id] = None

    def path_of(self, node: ast.AST | None, depth: int = 0) -> str | None:
        """The path that an expression is; None if its text does not show it."""
        if node is None or depth > MAX_DEPTH:
            return None
        inner = depth + 1
        match node:
            case ast.Constant(value=str(text)):
                return text
            case ast.Name(id="__file__"):
                return self._file
            case ast.Name(id=name):
                return self.path_of(self._values.get(name), inner)
            case ast.Attribute(attr="pardir"):
                return os.pardir
            case ast.Attribute(value=owner, attr="parent"):
                return self._above(owner, 1, inner)
            case ast.Subscript(
                value=ast.Attribute(value=owner, attr="parents"),
                slice=ast.Constant(value=int(level)),
            ):
                return self._above(owner, level + 1, inner)
            case ast.BinOp(left=left, op=ast.Div(), right=right):
                return self._joined([left, right], inner)
            case ast.Call(func=ast.Attribute(value=owner, attr=name), args=[]):
                return self.path_of(owner, inner) if name in SAME_AS_OWNER else None
            case ast.Call(func=ast.Attribute(attr=name) | ast.Name(id=name), args=arguments):
                return self._of_call(name, arguments, inner)
        return None

    def _of_call(self, name: str, arguments: list[ast.expr], depth: int) -> str | None:
        if name == "join":
            return self._joined(arguments, depth)
        if len(arguments) != 1:
            return None
        if name == "dirname":
            return self._above(arguments[0], 1, depth)
        return self.path_of(arguments[0], depth) if name in SAME else None

    def _joined(self, parts: list[ast.expr], depth: int) -> str | None:
        found = [self.path_of(part, depth) for part in parts]
        return None if None in found else os.path.join(*filter(None, found))

    def _above(self, node: ast.expr, levels: int, depth: int) -> str | None:
        found = self.path_of(node, depth)
        if found is None:
            return None
        for _ in range(levels):
            found = os.path.dirname(found)
        return found
