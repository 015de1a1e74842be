"""The functions of a program that prompts show in full: those that a user names, or the slow ones.

Of a repository whose files are Python, the command that scores is run once with a profiler, in the
sandbox. What it finds is kept beside the copy of the repository, by a hash of all that it depends
on, so that every prompt of a run, and of a resumed one, shows the same functions.
"""

import json
import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from math import isfinite
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from costada.evaluators import profile_hook, profiled_command
from costada.evaluators.original_folder import hidden_folder
from costada.evaluators.problem import Problem
from costada.evaluators.repository import MAX_SOURCE_BYTES, RepositoryEvaluator
from costada.evaluators.sandbox.candidate_results import CandidateResult
from costada.evaluators.shown_paths import read_shown
from costada.values.program_form import PYTHON, Focus
from costada.values.python_source import read_python

SIGN = "::"
PROFILES = "profiles"
MIN_SHARE, COVERED_SHARE, MAX_FUNCTIONS = 0.05, 0.9, 6
"""Functions in focus take at least this share of the time, until they cover this much together."""

ROUNDED_SHARE = 0.05
"""Shares are compared as multiples of this, as times are noisy."""

MAX_TESTS, MAX_TEST_BYTES = 4, 500_000
"""Tests of each function that are shown at most, and the largest file of tests that is read."""

MAX_TEXTS = 32_000
MAX_FAULT = 200
_WORD = re.compile(r"[^\W\d]\w*")
_TEST_FILE = re.compile(r"(^|/)(tests?|testing)/|(^|/)(test_[^/]*|[^/]*_test|bench[^/]*)\.py$")


class _Profile(NamedTuple):
    """Seconds by `path:line`, and why there are none."""

    seconds: dict[object, object]
    fault: str


def with_focus(problem: Problem) -> Problem:
    """The problem of a repository with what prompts show first, measured if no user names it.

    Any other problem is returned as it is. A note says what was found.

    Raises:
        InterruptedError: If the evaluation was cancelled.
        OSError: If the copy of the repository cannot be made.
        RuntimeError: If the sandbox itself does not work.
        ValueError: If the repository has changed since the problem was loaded.
    """
    evaluator = problem.evaluate
    if not isinstance(evaluator, RepositoryEvaluator) or problem.shown.near:
        return problem
    commands = [*evaluator.commands.values()]
    near = _near(problem, evaluator, commands[-1])
    functions, shares, note = tuple(problem.focus), tuple[float, ...](), ""
    if not functions and problem.language == PYTHON.name:
        found, fault = _measured(problem, evaluator)
        functions, shares = tuple(found), tuple(found.values())
        if not functions:
            note = f"no function is in focus ({fault}), so prompts show whole files; see focus"
    if functions:
        why = "named" if problem.focus else "measured"
        note = f"prompts show {', '.join(functions)} in full ({why})"
        near = tuple(dict.fromkeys([*(each.partition(SIGN)[0] for each in functions), *near]))
    shown = Focus(functions, shares, _tests(functions, evaluator, commands), near)
    return replace(problem, shown=shown, notes=(*problem.notes, *filter(None, [note])))


def _measured(problem: Problem, evaluator: RepositoryEvaluator) -> tuple[dict[str, float], str]:
    """The functions that take most of the time, with their shares; and why there are none."""
    digest = sha256(
        json.dumps(
            [
                evaluator.base.digest,
                problem.start.hash,
                evaluator.commands,
                problem.interpreter,
                *map(_source, (profiled_command, profile_hook)),
            ]
        ).encode()
    ).hexdigest()
    place = hidden_folder(evaluator.folder, PROFILES) / f"{digest[:32]}.json"
    if not place.is_symlink() and place.is_file():
        known = _read(place.read_bytes())
    else:
        known = _read(_profiled(problem, evaluator).encode())
        fresh = place.with_suffix(f".{os.getpid()}")
        fresh.write_text(json.dumps(known._asdict()))
        fresh.replace(place)
    return _slowest(known.seconds, problem), known.fault or "none takes much of the time"


def _source(module: object) -> str:
    return Path(str(getattr(module, "__file__", ""))).read_text("utf-8")


def _profiled(problem: Problem, evaluator: RepositoryEvaluator) -> str:
    """What a profile of the command found, as JSON."""
    runner, hook = map(_source, (profiled_command, profile_hook))
    name, words = list(evaluator.commands.items())[-1]
    build = {key: value for key, value in evaluator.commands.items() if key == "build"}
    run = evaluator.run(problem.start, {**build, name: ["python", "-c", runner, hook, *words]})
    return json.dumps(_outcome(run))


def _outcome(run: CandidateResult) -> dict[str, object]:
    match run.output:
        case {"status": 0, "metrics": dict(metrics)}:
            return {"seconds": metrics, "fault": ""}
        case {"stderr": str(said)}:
            last = said.strip().splitlines()[-1:] or ["no output"]
            return {"seconds": {}, "fault": f"it was not measured: {last[0]}"}
    return {"seconds": {}, "fault": f"it was not measured: {run.error}"}


def _read(text: bytes) -> _Profile:
    """What was kept of a profile; it comes from the sandbox, so it may be anything."""
    try:
        known = json.loads(text)
    except ValueError:
        known = None
    match known:
        case {"seconds": dict(seconds), "fault": str(fault)}:
            return _Profile(seconds, " ".join(fault.split())[:MAX_FAULT])
    return _Profile({}, "it was not measured")


def _slowest(seconds: Mapping[object, object], problem: Problem) -> dict[str, float]:
    """The functions of the program that take most of its time, the slowest first."""
    times: dict[str, float] = {}
    for place, spent in seconds.items():
        path, _, line = str(place).rpartition(":")
        if not isinstance(spent, float) or not isfinite(spent) or spent <= 0:
            continue
        if path not in problem.start or not line.isdecimal():
            continue
        source = read_python(problem.start[path].replace("\r\n", "\n"))
        found = source.at(int(line) - 1) if source else None
        if found is not None and not found.is_class:
            name = f"{path}{SIGN}{found.name}"
            times[name] = times.get(name, 0.0) + spent
    total = sum(times.values())
    shares = {
        place: ROUNDED_SHARE * round(each / total / ROUNDED_SHARE) for place, each in times.items()
    }
    chosen: dict[str, float] = {}
    for place in sorted(shares, key=lambda each: (-shares[each], each))[:MAX_FUNCTIONS]:
        if shares[place] < MIN_SHARE or sum(chosen.values()) >= COVERED_SHARE:
            break
        chosen[place] = round(shares[place], 2)
    return chosen


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
        path = str(PurePosixPath(word.partition(SIGN)[0])) if word else ""
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
                    tests.append((rank, is_other, len(own), f"{path}{SIGN}{each.name}", own))
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
    parts = function.partition(SIGN)[2].split(".")
    return parts[-2] if parts[-1].startswith("__") and len(parts) > 1 else parts[-1]
