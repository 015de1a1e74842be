"""Problems by name, or by the path of a folder."""

import os
from difflib import get_close_matches
from functools import lru_cache
from importlib.resources import files
from pathlib import Path

from costada.evaluators.folder_settings import SETTINGS_FILE, FolderSettings, read_settings
from costada.evaluators.folders import load_folder
from costada.evaluators.problem import Problem
from costada.values.plugins import call_plugin, plugins_of
from costada.values.redaction import without_passwords

BENCHMARKS = Path(str(files("costada.evaluators"))) / "benchmarks"
"""Holds one problem folder for each benchmark."""

ENTRY_POINTS = "costada.problems"
"""Group of entry points; each is a function without arguments that returns a `Problem`."""


@lru_cache(maxsize=1)
def problem_names() -> tuple[str, ...]:
    """The names of the benchmarks, in alphabetical order."""
    return tuple(sorted(path.parent.name for path in BENCHMARKS.glob(f"*/{SETTINGS_FILE}")))


def is_built_in(name: str) -> bool:
    """Whether a name is that of a benchmark or of a problem that an installed package registers."""
    return name in problem_names() or name in plugins_of(ENTRY_POINTS)


def benchmark_folder(name: str) -> Path:
    """The problem folder of a benchmark.

    Raises:
        ValueError: If there is no such benchmark.
    """
    if name not in problem_names():
        raise ValueError(f"benchmark is {name!r}; {_hint(name)}expected one of: {_known()}")
    return BENCHMARKS / name


def benchmark_settings(name: str) -> FolderSettings:
    """The settings of a benchmark, read without its evaluator."""
    return read_settings(benchmark_folder(name) / SETTINGS_FILE)


def problem(name_or_path: str | Path) -> Problem:
    """A built-in problem by its name, or the problem in a folder by its path.

    Numerical libraries are imported only for the problem asked for.

    Raises:
        ValueError: If there is no such problem, the folder is incomplete, or what a package
            registers returns something else.
    """
    text = os.fspath(name_or_path)
    if text in problem_names():
        return load_folder(BENCHMARKS / text)
    if plugin := plugins_of(ENTRY_POINTS).get(text):
        return call_plugin(plugin, Problem)
    shown = without_passwords(text)
    if shown == text and (os.sep in text or Path(text).is_dir()):
        return load_folder(text)
    raise ValueError(
        f"problem is {shown!r}; {_hint(text)}expected the path of a problem folder, or one of:"
        f" {_known()}"
    )


def _hint(name: str) -> str:
    close = get_close_matches(name, problem_names(), n=1)
    return f"did you mean {close[0]!r}? " if close else ""


def _known() -> str:
    return ", ".join(problem_names())
