"""The functions of a program that prompts show in full: those that a user names, or the slow ones.

Tests that name them, and the files near the command that scores, are shown beside them.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import PurePosixPath

from costada.evaluators.problem import Problem
from costada.evaluators.repository import MAX_SOURCE_BYTES, RepositoryEvaluator
from costada.evaluators.shown_paths import read_shown
from costada.evaluators.slow_functions import slow_functions
from costada.values.program_form import PYTHON, Focus
from costada.values.python_source import FUNCTION_SIGN, read_python

MAX_TESTS, MAX_TEST_BYTES = 4, 500_000
"""Tests of each function that are shown at most, and the largest file of tests that is read."""

MAX_TEXTS = 32_000
_WORD = re.compile(r"[^\W\d]\w*")
_TEST_FILE = re.compile(r"(^|/)(tests?|testing)/|(^|/)(test_[^/]*|[^/]*_test|bench[^/]*)\.py$")


def with_focus(problem: Problem) -> Problem:
    """The problem of a repository with what prompts show first, measured if no user names it.

    Any other problem is returned as it is. A note says what was found.

    Raises:
        InterruptedError: If the evaluation was cancelled.
        OSError: If the copy of the repository cannot be made.
        RuntimeError: If the sandbox itself does not work.
        ValueError: If the repository has changed since the problem was loaded, or what its command
            needs is not confirmed.
    """
    evaluator = problem.evaluate
    if not isinstance(evaluator, RepositoryEvaluator) or problem.shown.near:
        return problem
    commands = [*evaluator.commands.values()]
    near = _near(problem, evaluator, commands[-1])
    functions, shares, note = tuple(problem.focus), tuple[float, ...](), ""
    if not functions and problem.language == PYTHON.name:
        found, fault = slow_functions(problem, evaluator)
        functions, shares = tuple(found), tuple(found.values())
        if not functions:
            note = f"no function is in focus ({fault}), so prompts show whole files; see focus"
    if functions:
        why = "named" if problem.focus else "measured"
        note = f"prompts show {', '.join(functions)} in full ({why})"
        near = tuple(
            dict.fromkeys([*(each.partition(FUNCTION_SIGN)[0] for each in functions), *near])
        )
    shown = Focus(functions, shares, _tests(functions, evaluator, commands), near)
    return replace(problem, shown=shown, notes=(*problem.notes, *filter(None, [note])))


def _near(
    problem: Problem, evaluator: RepositoryEvaluator, words: Iterable[str]
) -> tuple[str, ...]:
    """The files that a command or a file that it names mentions, those mentioned most first."""
    texts = [*words, *_named(evaluator, words).values()]
    counts = Counter(_WORD.findall("\n".join(texts)))
    mentions = {path: counts[_stem(path)] for path in problem.start}
    found = [path for path, count in mentions.items() if count]
    return tuple(sorted(found, key=lambda path: (-mentions[path], path)))


def _stem(path: str) -> str:
    pure = PurePosixPath(path)
    return pure.parent.name if pure.stem == "__init__" else pure.stem


def _named(evaluator: RepositoryEvaluator, words: Iterable[str]) -> dict[str, str]:
    """The files of the repository that words of a command name, by path."""
    base, found = evaluator.base, {}
    for word in words:
        path = str(PurePosixPath(word.partition(FUNCTION_SIGN)[0])) if word else ""
        if path in base.paths and base.repository.files[path] <= MAX_SOURCE_BYTES:
            found[path] = _text(evaluator, path)
    return found


def _text(evaluator: RepositoryEvaluator, path: str) -> str:
    root = evaluator.base.repository.root
    return read_shown(root / path, root, with_hidden=True).decode("utf-8", "replace")


def _tests(
    functions: Sequence[str], evaluator: RepositoryEvaluator, commands: Sequence[list[str]]
) -> tuple[tuple[str, str], ...]:
    """Files that the commands name, and tests that name the functions, by where they are."""
    if not functions:
        return ()
    sizes = evaluator.base.repository.files
    found = _named(evaluator, [word for words in commands for word in words])
    found = {path: text for path, text in found.items() if path.endswith(".py")}
    tests: list[tuple[int, int, int, str, str]] = []
    names = [_called(each) for each in functions]
    for path in sorted(evaluator.base.paths - found.keys()):
        if not _TEST_FILE.search(path) or sizes[path] > MAX_TEST_BYTES or path[-3:] != ".py":
            continue
        text = _text(evaluator, path)
        if not any(name in text for name in names) or (source := read_python(text)) is None:
            continue
        for each in source.definitions:
            own = source.text(each)
            words = set(_WORD.findall(own))
            for rank, name in enumerate(names):
                if not each.is_class and name in words:
                    is_other = name not in each.name
                    tests.append(
                        (rank, is_other, len(own), f"{path}{FUNCTION_SIGN}{each.name}", own)
                    )
    room = MAX_TEXTS - sum(map(len, found.values()))
    used: Counter[int] = Counter()
    for rank, _, size, place, own in sorted(tests):
        if place not in found and used[rank] < MAX_TESTS and size <= room:
            used[rank] += 1
            room -= size
            found[place] = own
    return tuple(found.items())


def _called(function: str) -> str:
    """The word by which tests name a function: of `__init__` and the like its class."""
    parts = function.partition(FUNCTION_SIGN)[2].split(".")
    return parts[-2] if parts[-1].startswith("__") and len(parts) > 1 else parts[-1]
