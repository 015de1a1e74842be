"""How an evaluator that runs beside the candidate is called, by its contract.

`evaluate(program_path)` returns a dict of metrics, an object with `metrics` and `artifacts`, a
score, or `(score, side_info)`. In stages, `evaluate_stage1` to `evaluate_stage3` are called
instead, each if the metrics so far reach the threshold of the stage before. A command line is run
with `--program_path` and `--results_dir`, and leaves `metrics.json` and `correct.json` in the
latter; or it is run with the program's path alone, and prints one JSON object.

The names of files and functions are those of OpenEvolve, SkyDiscover and ShinkaEvolve.
"""

import io
import json
import os
import sys
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import redirect_stdout, suppress
from itertools import count
from numbers import Real
from types import ModuleType, SimpleNamespace
from typing import Any

from costada.evaluators.sandbox.inside.foreign_code import load_module
from costada.evaluators.sandbox.inside.scored_commands import (
    FAILURES,
    as_metrics,
    as_text,
    names_failure,
)

COMMAND_LINE, PRINTED_JSON = "evaluate.py --program_path --results_dir", "evaluator.py PROGRAM"
"""The contracts of evaluators that are run as programs; any other is called."""

COMBINED_SCORE, VALIDITY, ERROR = "combined_score", "validity", "error"
FEEDBACK, TEXT_FEEDBACK = "feedback", "text_feedback"
"""Names of the comment on a program, here and in `metrics.json`."""

RESULTS_FOLDER = "results"
CONTAINER_FOLDER = "/benchmark"
"""Where SkyDiscover's containers hold the files beside an evaluator that prints its result."""

MAX_ARTIFACT_CHARS = 20_000

Answer = dict[str, Any]


def load_evaluator(request: Mapping[str, Any], program: str) -> Callable[..., object]:
    """Load the evaluator that a request names; its evaluation of the program at a path.

    An answer has "metrics" and "artifacts", whose values are numbers, strings or None, and under
    "averaged" the names of the metrics that count in a mean: the tools with `evaluate` document
    that a mean is the score where there is no combined one, those with a command line require one.
    One of a command line also has the metrics that no model may see, as "private". A stage that is
    not reached answers None.
    """
    file = request["evaluator"]
    sys.path.insert(0, os.path.dirname(file))
    if request["contract"] == COMMAND_LINE:
        return lambda: _run_for_files(file, program)
    if request["contract"] == PRINTED_JSON:
        return lambda: _run_for_output(file, program)
    module = load_module("evaluator", file)
    if request["thresholds"]:
        return Stages(module, program, request["thresholds"])
    if not callable(evaluate := getattr(module, "evaluate", None)):
        name = os.path.basename(file)
        raise TypeError(f"{name} defines neither score(output) nor evaluate(program_path)")
    return lambda: _as_dict(evaluate(program))


class Stages:
    """An evaluation in stages: what each call answers covers the stages so far."""

    def __init__(self, module: ModuleType, program: str, thresholds: Sequence[float]) -> None:
        self._module, self._program = module, program
        self._thresholds = dict(enumerate(thresholds, start=1))
        self._answer: Answer = {}
        self._is_over = False

    def __call__(self, stage: int) -> Answer | None:
        """Run a stage, the first being 1, unless one before it was not passed or failed."""
        if self._is_over:
            return None
        self._is_over = True
        function = getattr(self._module, f"evaluate_stage{stage}")
        fresh = _as_dict(function(self._program))
        self._answer = _merged(self._answer, fresh, stage) if self._answer else fresh
        threshold = self._thresholds.get(stage)
        self._is_over = threshold is None or not _reaches(self._answer["metrics"], threshold)
        return self._answer


def _merged(before: Answer, fresh: Answer, stage: int) -> Answer:
    """The answer of stages together: the later one counts, and a number as `error` does not.

    What a stage that was passed reports as an error is only a note on it.
    """
    metrics = {**_passed(before["metrics"], stage - 1), **fresh["metrics"]}
    if isinstance(metrics.get(ERROR), float):
        del metrics[ERROR]
    return {
        "metrics": metrics,
        "artifacts": {**_passed(before["artifacts"], stage - 1), **fresh["artifacts"]},
        "averaged": _averaged(metrics),
    }


def _passed(values: Mapping[str, Any], stage: int) -> Answer:
    """What a stage answered, with its name in those of errors."""
    return {
        f"{name} of stage {stage}" if name in FAILURES and isinstance(value, str) else name: value
        for name, value in values.items()
    }


def _reaches(metrics: Mapping[str, object], threshold: float) -> bool:
    """Whether the combined score, or else the mean of the numbers, is high enough."""
    score = metrics.get(COMBINED_SCORE)
    if isinstance(score, float):
        return score >= threshold
    numbers = [v for k, v in metrics.items() if isinstance(v, float) and not names_failure(k)]
    return bool(numbers) and sum(numbers) / len(numbers) >= threshold


def _run_for_files(file: str, program: str) -> Answer:
    """Run an evaluator's file as a program, and read the results that it leaves."""
    # A new folder: the program's own files may lie in one of that name.
    names = (f"{RESULTS_FOLDER}{number or ''}" for number in count())
    results = os.path.abspath(next(name for name in names if not os.path.lexists(name)))
    os.mkdir(results)
    sys.argv = [file, "--program_path", program, "--results_dir", results]
    with suppress(SystemExit):
        load_module("__main__", file)
    metrics = _left_in(results, "metrics.json", file)
    correct = _left_in(results, "correct.json", file)
    public, private = metrics.pop("public", None), metrics.pop("private", None)
    metrics |= public if isinstance(public, dict) else {}
    if FEEDBACK not in metrics and TEXT_FEEDBACK in metrics:
        metrics[FEEDBACK] = metrics.pop(TEXT_FEEDBACK)
    answer = _as_dict(metrics)
    if not correct.get("correct"):
        error = str(correct.get("error") or "not correct")
        answer["metrics"] |= {COMBINED_SCORE: 0.0, VALIDITY: 0.0, ERROR: error}
    answer["averaged"] = []
    return answer | {"private": json.dumps(private)[:MAX_ARTIFACT_CHARS] if private else ""}


def _run_for_output(file: str, program: str) -> Answer:
    """Run an evaluator's file as a program, and read the object in the last line it prints."""
    printed = io.StringIO()
    sys.argv = [file, program]
    with suppress(SystemExit), redirect_stdout(printed):
        load_module("__main__", file, (CONTAINER_FOLDER, os.path.dirname(file)))
    lines = printed.getvalue().strip().splitlines()
    sys.stdout.write("".join(f"{line}\n" for line in lines[:-1]))
    name = os.path.basename(file)
    if not lines or not lines[-1].startswith("{"):
        raise TypeError(f"{name} printed no JSON object in its last line")
    found = _parsed(lines[-1], f"the last line that {name} printed")
    metrics, artifacts = found.pop("metrics", None) or {}, found.pop("artifacts", None) or {}
    answer = _as_dict(SimpleNamespace(metrics={**found, **metrics}, artifacts=artifacts))
    return answer | {"averaged": []}


def _left_in(results: str, name: str, file: str) -> dict[str, Any]:
    path = os.path.join(results, name)
    if not os.path.isfile(path):
        raise FileNotFoundError(f"{os.path.basename(file)} left no {name} in its --results_dir")
    with open(path, "rb") as opened:
        return _parsed(opened.read(), f"{name}, which {os.path.basename(file)} left,")


def _parsed(text: str | bytes, place: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{place} is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise TypeError(f"{place} holds a {type(found).__name__}; expected a JSON object")
    return found


def _as_dict(result: object) -> Answer:
    if isinstance(result, Coroutine):
        import asyncio

        result = asyncio.run(result)
    result = as_metrics(result)
    metrics = getattr(result, "metrics", result)
    if not isinstance(metrics, dict):
        raise TypeError(
            f"evaluate returned {type(result).__name__}; expected a dict of metrics, such as"
            ' {"combined_score": 0.5}, or a number'
        )
    artifacts = getattr(result, "artifacts", None) or {}
    return {
        "metrics": {str(name): _plain(value) for name, value in metrics.items()},
        "artifacts": {str(name): str(_plain(value)) for name, value in artifacts.items()},
        "averaged": _averaged(metrics),
    }


def _averaged(metrics: Mapping[Any, object]) -> list[str]:
    """The metrics that count in a mean: numbers, no flag or NaN, whose name tells no failure."""
    return [
        str(name)
        for name, value in metrics.items()
        if isinstance(value, int | float)
        and not isinstance(value, bool)
        and value == value
        and not names_failure(str(name))
    ]


def _plain(value: object) -> float | str | None:
    """A number as a float, None as it is, and anything else as text."""
    if value is None:
        return None
    if isinstance(value, Real) or getattr(value, "shape", None) == ():
        return float(value)  # type: ignore[arg-type]
    return as_text(value).replace(os.getcwd() + os.sep, "")[:MAX_ARTIFACT_CHARS]
