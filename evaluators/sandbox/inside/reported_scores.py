"""Reads the score that a command reports: a number, JSON, or run times that a tool measured.

The text may come from a candidate, so this runs in its process, within its limits.
"""

import json
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from math import exp, inf, isfinite, log
from typing import Any

from costada.evaluators.sandbox.inside.failure_names import FAILURES

MAX_METRICS = 200
MAX_NAME_CHARS = 200
MAX_TEXT_CHARS = 4_000
LABELLED = re.compile(r"([^:=]{0,100})[:=]\s*(\S{1,50})")
"""A line such as `score: 0.5`, unless its label is one of `FAILURES`."""

COMBINED_SCORE = "combined_score"
SECONDS = "seconds"
EXPECTED = f"expected a number, or a JSON object with {COMBINED_SCORE}, as the last line"

Report = dict[str, Any]
"""Holds `metrics`, `texts` and whether they `are_times`; or the `fault` for which they are absent.
"""


def read_output(stdout: str) -> Report:
    """What a command's output says: its last line, or all of it."""
    lines = stdout.strip().splitlines()
    if not lines:
        return {"fault": f"the command printed nothing; {EXPECTED}"}
    labelled = LABELLED.fullmatch(lines[-1].strip())
    is_score = labelled and labelled[1].strip().lower() not in FAILURES
    for text in (lines[-1], stdout, labelled[2] if labelled and is_score else ""):
        with suppress(ValueError):
            return read_json(text)
    return {"fault": f"the command's last line is {_shortened(lines[-1])}; {EXPECTED}"}


def read_json(text: str) -> Report:
    """What a number or a text in JSON says.

    It may be an object of metrics, or what pytest-benchmark or hyperfine wrote.

    Raises:
        ValueError: If it is neither.
    """
    with suppress(ValueError):
        return _read_metrics({COMBINED_SCORE: float(text)})
    try:
        value = json.loads(text)
    except RecursionError:
        raise ValueError("nested too deep") from None
    match value:
        case {"benchmarks": [{"stats": _}, *_] as rows}:
            return _read_times(
                (_at(row, "fullname"), _at(_at(row, "stats"), "median")) for row in rows
            )
        case {"results": [{"command": _}, *_] as rows}:
            return _read_times((_at(row, "command"), _at(row, "median")) for row in rows)
        case dict():
            return _read_metrics(value)
    raise ValueError("neither a number nor an object")


def _at(row: object, key: str) -> object:
    return row.get(key) if isinstance(row, dict) else None


def _read_times(medians: Iterable[tuple[object, object]]) -> Report:
    """Median run times by name, in seconds, and their geometric mean."""
    times = []
    for name, value in medians:
        if not isinstance(value, float | int) or not 0 < value < inf:
            fault = (
                f"the median time of {_shortened(name)} is {_shortened(value)}; expected seconds"
            )
            return {"fault": fault}
        times.append((f"{SECONDS} of {name}"[:MAX_NAME_CHARS], float(value)))
    mean = exp(sum(log(value) for _, value in times) / len(times))
    several = times[:MAX_METRICS] if len(times) > 1 else []
    return {"metrics": {SECONDS: mean, **dict(several)}, "texts": {}, "are_times": True}


def _read_metrics(values: Mapping[str, object]) -> Report:
    """Finite numbers as metrics, and all else as text."""
    if len(values) > MAX_METRICS:
        return {
            "fault": f"the command reports {len(values)} values; expected at most {MAX_METRICS}"
        }
    metrics: dict[str, float] = {}
    texts: dict[str, str] = {}
    for name, value in values.items():
        key = name[:MAX_NAME_CHARS]
        with suppress(OverflowError):
            if isinstance(value, bool | int | float) and isfinite(value):
                metrics[key] = float(value)
                continue
        texts[key] = (value if isinstance(value, str) else json.dumps(value))[:MAX_TEXT_CHARS]
    if COMBINED_SCORE in texts:
        given = _shortened(values[COMBINED_SCORE])
        return {"fault": f"{COMBINED_SCORE} is {given}; expected a finite number"}
    return {"metrics": metrics, "texts": texts, "are_times": False}


def _shortened(value: object) -> str:
    return repr(value)[:MAX_NAME_CHARS]
