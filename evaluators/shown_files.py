"""Which files of its folder an evaluator may read that runs beside the candidate.

They are what its code imports or names, from `evaluator.py` on, and what `problem.toml` declares;
never hidden files, and never what runs and Python leave behind, nor links to such.
"""

import ast
import os
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path, PurePosixPath

from costada.evaluators.folder_files import content_files, is_output
from costada.evaluators.object_hash import OUTSIDE, READING

EVALUATOR_FILE = "evaluator.py"
WILDCARDS = "*?["
MAX_NAME_CHARS = 255
MAX_PATH_CHARS = 4096
MAX_SOURCES = 128


def shown_files(folder: Path, declared: Sequence[str] = ()) -> list[Path]:
    """Return the files that the evaluator of a folder may read, and folders that are all shown.

    Args:
        folder: The problem's folder.
        declared: Further files or folders, as paths or patterns below the folder.

    Raises:
        ValueError: If something declared is hidden, outside of the folder, or not there.
    """
    shown: dict[Path, None] = {}
    waiting = [folder / EVALUATOR_FILE]
    for pattern in declared:
        if not (found := [*_matches(folder, pattern)]):
            raise ValueError(
                f"files has {pattern!r}; expected files below the folder that are there, none of"
                " them hidden and none left behind by runs"
            )
        waiting += found
    while waiting:
        path = waiting.pop()
        if path in shown or not path.is_file():
            continue
        shown[path] = None
        if path.suffix == ".py":
            names, patterns = _names_in(path.read_text(encoding="utf-8", errors="replace"))
            for base in dict.fromkeys((folder, path.parent)):
                there = [name for name in names if os.path.lexists(f"{base}/{name}")]
                for name in (*there, *patterns):
                    waiting += _matches(folder, name, base)
    return list(shown)


def reads_elsewhere(folder: Path) -> bool:
    """Return whether the evaluator of a folder may read what lies outside of the folder.

    It does not if it reads nothing, or only files beside `__file__`. Imports do not count.
    """
    sources = [path for path in shown_files(folder) if path.suffix == ".py"]
    return any(_reads_elsewhere(path.read_text("utf-8", "replace")) for path in sources)


def _reads_elsewhere(source: str) -> bool:
    try:
        nodes = [*ast.walk(ast.parse(source))]
    except (SyntaxError, ValueError, RecursionError):
        return True
    names = {node.id for node in nodes if isinstance(node, ast.Name)}
    names |= {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    if not names & READING:
        return False
    is_beside = "__file__" in names and not names & OUTSIDE
    return not is_beside or any(map(_leads_outside, nodes))


def _leads_outside(node: ast.AST) -> bool:
    """Return whether an expression is a path outside of the folder, or a way upwards."""
    match node:
        case ast.Constant(value=str(text)):
            is_there = text.startswith("/") and len(text) <= MAX_PATH_CHARS and "\0" not in text
            return ".." in text.split("/") or (is_there and os.path.lexists(text))
        case ast.Attribute(attr="parents"):
            return True
        case (
            ast.Attribute(attr="parent", value=inner)
            | ast.Call(func=ast.Attribute(attr="dirname") | ast.Name(id="dirname"), args=[inner])
        ):
            return any(map(_climbs, ast.walk(inner)))
    return False


def _climbs(node: ast.AST) -> bool:
    match node:
        case ast.Attribute(attr="parent" | "dirname") | ast.Name(id="dirname"):
            return True
    return False


def _matches(folder: Path, name: str, base: Path | None = None) -> Iterator[Path]:
    """Yield the files below a folder that a path or pattern leads to from there or from `base`."""
    here = base or folder
    if not _is_path(name):
        return
    is_pattern = any(letter in WILDCARDS for letter in name)
    for found in sorted(here.glob(name)) if is_pattern else [here / name]:
        if found.exists() and not _is_hidden(found, folder):
            for _, file in content_files(found):
                if not _is_hidden(file.resolve(), folder.resolve()):
                    yield file


def _is_hidden(path: Path, folder: Path) -> bool:
    """Return whether a file is hidden or left behind, or a folder is that it lies in.

    Of a path outside of the problem's folder, where a link led, only the name counts.
    """
    if not path.is_relative_to(folder):
        return is_output(path)
    within = path.relative_to(folder)
    return any(is_output(folder / each) for each in (within, *within.parents[:-1]))


def _is_path(name: str) -> bool:
    """Return whether a text may be the path of a file below a folder, or a pattern of such."""
    is_short = len(name) <= MAX_NAME_CHARS and any(map(str.isalnum, name))
    is_plain = is_short and name.isprintable() and not name.startswith("/")
    parts = PurePosixPath(name).parts
    return is_plain and not any(part == ".." or ("**" in part and part != "**") for part in parts)


@lru_cache(maxsize=MAX_SOURCES)
def _names_in(source: str) -> tuple[list[str], list[str]]:
    """Return what a program may name files by, its texts and imports: paths, and patterns."""
    try:
        nodes = [*ast.walk(ast.parse(source))]
    except (SyntaxError, ValueError, RecursionError):
        return [], []
    names = filter(_is_path, dict.fromkeys(name for node in nodes for name in _names_of(node)))
    kinds: tuple[list[str], list[str]] = ([], [])
    for name in names:
        is_pattern = any(letter in WILDCARDS for letter in name)
        if not is_pattern or " " not in name:
            kinds[is_pattern].append(name)
    return kinds


def _names_of(node: ast.AST) -> list[str]:
    match node:
        case ast.Constant(value=str(text)):
            return [text.lstrip("/"), *_module_paths(text)]
        case ast.JoinedStr(values=parts):
            return ["".join(map(_text_of, parts)).lstrip("/")]
        case ast.Import(names=imported):
            return [path for each in imported for path in _module_paths(each.name)]
        case ast.ImportFrom(module=module, names=imported):
            whole = [".".join(filter(None, (module, each.name))) for each in imported]
            return [path for name in whole for path in _module_paths(name)]
    return []


def _text_of(part: ast.expr) -> str:
    """Return a part of a formatted text; what is filled in may be anything."""
    match part:
        case ast.Constant(value=str(text)):
            return text
    return "*"


def _module_paths(name: str) -> list[str]:
    """Return where a module may lie, with all of its package; nothing if it is no module's name."""
    parts = name.split(".")
    if not all(part.isidentifier() for part in parts):
        return []
    return [f"{parts[0]}.py", parts[0]]
