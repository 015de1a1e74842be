"""The functions of a repository's program that take most of the time when it is scored.

The command that scores is run once with a profiler, in the sandbox. What it finds is kept beside
the copy of the repository, by a hash of all that it depends on, so that every prompt of a run, and
of a resumed one, shows the same functions.
"""

import json
import os
from collections.abc import Mapping
from hashlib import sha256
from math import isfinite
from pathlib import Path
from typing import NamedTuple

from costada.evaluators import profile_hook, profiled_command
from costada.evaluators.original_folder import hidden_folder
from costada.evaluators.problem import Problem
from costada.evaluators.repository import RepositoryEvaluator
from costada.evaluators.sandbox.candidate_results import CandidateResult
from costada.values.python_source import FUNCTION_SIGN, read_python

PROFILES = "profiles"
MIN_SHARE, COVERED_SHARE, MAX_FUNCTIONS = 0.05, 0.9, 6
"""Slow functions take at least this share of the time, until they cover this much together."""

ROUNDED_SHARE = 0.05
"""Shares are compared as multiples of this, as times are noisy."""

MAX_FAULT = 200


class _Profile(NamedTuple):
    """Seconds by `path:line`, and why there are none."""

    seconds: dict[object, object]
    fault: str


def slow_functions(
    problem: Problem, evaluator: RepositoryEvaluator
) -> tuple[dict[str, float], str]:
    """The functions that take most of the time, with their shares; and why there are none.

    Raises:
        InterruptedError: If the evaluation was cancelled.
        OSError: If the profile cannot be kept.
        RuntimeError: If the sandbox itself does not work.
        ValueError: If what the command needs is not confirmed.
    """
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
            name = f"{path}{FUNCTION_SIGN}{found.name}"
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
