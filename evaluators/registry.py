"""Problems by name, or by the path of a folder."""

import os
from collections.abc import Callable
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path

from costada.evaluators.folder import load_folder
from costada.evaluators.problem import Problem

_BENCHMARKS = "costada.evaluators.benchmarks"
_NAMES = (
    "circle_packing",
    "circle_packing_rect",
    "heilbronn_convex",
    "heilbronn_triangle",
    "min_max_dist_2d",
    "min_max_dist_3d",
    "signal_processing",
    "third_autocorrelation",
)
"""Each names a module of the benchmarks and the function in it that returns the problem."""

LANDSCAPE = "landscape"
"""The problem of the simulated landscape: no benchmark, and only for the simulated model."""


def is_built_in(name: str) -> bool:
    """Return whether a name stands for a problem of this package."""
    return name in (*_NAMES, LANDSCAPE)


def problem_names() -> tuple[str, ...]:
    """Return the names of the benchmarks, in alphabetical order."""
    return tuple(sorted(_NAMES))


def problem(name_or_path: str | Path) -> Problem:
    """Return a built-in problem by its name, or the problem in a folder by its path.

    Numerical libraries are imported only for the problem asked for.

    Raises:
        ValueError: If there is no such problem, or the folder is incomplete.
    """
    text = os.fspath(name_or_path)
    if text in _NAMES:
        factory: Callable[[], Problem] = getattr(import_module(f"{_BENCHMARKS}.{text}"), text)
        return factory()
    if text == LANDSCAPE:
        from costada.experiments.landscape.problem import landscape

        return landscape()
    if os.sep in text or Path(text).is_dir():
        return load_folder(text)
    close = get_close_matches(text, _NAMES, n=1)
    hint = f"did you mean {close[0]!r}? " if close else ""
    known = ", ".join(problem_names())
    raise ValueError(
        f"problem is {text!r}; {hint}expected the path of a problem folder, or one of: {known}"
    )
