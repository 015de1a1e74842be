"""Stand-ins for what evaluators import from OpenEvolve, SkyDiscover and ShinkaEvolve.

They exist in memory, inside the sandbox only; an installed package takes precedence. Names and
results are those of the originals.
"""

import json
import os
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from importlib.machinery import ModuleSpec
from math import isfinite, sqrt
from shutil import which
from types import ModuleType
from typing import Any, Self

from costada.evaluators.sandbox.inside.foreign_code import capture_exception, load_module

PACKAGES = ("openevolve", "skydiscover", "shinka")
ERROR_METRICS = {
    "combined_score": 0.0,
    "execution_time_mean": 0.0,
    "execution_time_std": 0.0,
    "num_successful_runs": 0,
    "num_valid_runs": 0,
    "num_invalid_runs": 0,
    "all_validation_errors": [],
}
"""What ShinkaEvolve's helper reports of a program that fails."""

LOADING_FOLDER = os.path.dirname(load_module.__code__.co_filename)
HIDDEN_FRAMES = (LOADING_FOLDER, os.path.dirname(__file__), "<frozen importlib")
"""Beginnings of the paths of the code that loads and calls a program."""


class EvaluationResult:
    """Metrics of an evaluation, and strings beside them."""

    def __init__(self, metrics: dict[str, Any], artifacts: dict[str, Any] | None = None) -> None:
        self.metrics = metrics
        self.artifacts = {} if artifacts is None else artifacts

    @classmethod
    def from_dict(cls, metrics: dict[str, Any]) -> Self:
        """A result without artifacts."""
        return cls(metrics)

    def to_dict(self) -> dict[str, Any]:
        """The metrics."""
        return self.metrics

    def has_artifacts(self) -> bool:
        """Whether there are artifacts."""
        return bool(self.artifacts)


EvaluationResult.__module__ = "openevolve.evaluation_result"


def load_program(program_path: str) -> ModuleType:
    """The program as a module."""
    return load_module("program", program_path)


def save_json_results(
    results_dir: str,
    metrics: Mapping[str, Any],
    correct: bool,
    error: str | None = None,
    verbose: bool = True,
) -> None:
    """Write `metrics.json` and `correct.json`."""
    os.makedirs(results_dir, exist_ok=True)
    contents = {"metrics.json": metrics, "correct.json": {"correct": correct, "error": error}}
    for name, content in contents.items():
        with open(os.path.join(results_dir, name), "w", encoding="utf-8") as file:
            json.dump(content, file, indent=4)


def run_shinka_eval(
    program_path: str,
    results_dir: str,
    experiment_fn_name: str,
    num_runs: int,
    get_experiment_kwargs: Callable[[int], dict[str, Any]] | None = None,
    aggregate_metrics_fn: Callable[[list[Any]], dict[str, Any]] | None = None,
    validate_fn: Callable[[Any], tuple[bool, str | None]] | None = None,
    plotting_fn: object = None,
    default_metrics_on_error: Mapping[str, Any] | None = None,
    early_stop_method: object = None,
    **others: object,
) -> tuple[dict[str, Any], bool, str | None]:
    """Call a function of a program several times, validate each result, and aggregate them.

    Runs follow one another, whatever `run_workers` says, and nothing is plotted.

    Returns:
        The metrics, whether every result is valid, and the first error.

    Raises:
        ValueError: If runs are to be stopped early.
    """
    if early_stop_method not in (None, "none"):
        raise ValueError(
            f"early_stop_method is {early_stop_method!r}; expected None, unless shinka is installed"
        )
    results: list[Any] = []
    seconds: list[float] = []
    faults: list[str] = []
    num_invalid, first = 0, None
    with capture_exception(but=(MemoryError,)) as caught:
        function = getattr(load_program(program_path), experiment_fn_name)
        for index in range(num_runs):
            arguments = (
                get_experiment_kwargs(index) if get_experiment_kwargs else {"seed": index + 1}
            )
            start = time.perf_counter()
            results.append(function(**arguments))
            seconds.append(time.perf_counter() - start)
            is_valid, fault = validate_fn(results[-1]) if validate_fn else (True, None)
            if is_valid:
                continue
            num_invalid += 1
            if fault:
                first = first or f"Validation failed: {fault}"
                faults += [] if fault in faults else [fault]
        metrics = _aggregated(results, aggregate_metrics_fn)
        mean = sum(seconds) / (len(seconds) or 1)
        variance = sum((each - mean) ** 2 for each in seconds) / (len(seconds) or 1)
        metrics |= {"execution_time_mean": mean, "execution_time_std": sqrt(variance)}
        if validate_fn:
            counts = {"num_valid_runs": len(results) - num_invalid, "num_invalid_runs": num_invalid}
            metrics |= {**counts, "all_validation_errors": faults}
        metrics.pop("extra_data", None)
        if not isfinite(score := metrics.get("combined_score", 0.0)):
            first = first or f"combined_score is {score}"
            num_invalid += 1
    if caught.error is not None:
        _print_error(caught.error)
        defaults = default_metrics_on_error or {}
        metrics = {name: defaults.get(name, value) for name, value in ERROR_METRICS.items()}
        first = str(caught.error)
    is_correct = caught.error is None and num_invalid == 0
    save_json_results(results_dir, metrics, is_correct, first)
    return metrics, is_correct, first


def _print_error(error: BaseException) -> None:
    """Print an error with its traceback, without the frames that load and call the program."""
    report = traceback.TracebackException.from_exception(error)
    each: traceback.TracebackException | None = report
    while each:
        frames = (frame for frame in each.stack if not frame.filename.startswith(HIDDEN_FRAMES))
        each.stack = traceback.StackSummary.from_list(list(frames))
        each = each.__cause__ or each.__context__
    sys.stderr.writelines(report.format())


def _aggregated(
    results: list[Any], function: Callable[[list[Any]], dict[str, Any]] | None
) -> dict[str, Any]:
    if function:
        return function(results)
    preview = {"first_run_result_type": "N/A", "raw_results_preview": "N/A"}
    if results:
        preview = {
            "first_run_result_type": str(type(results[0])),
            "raw_results_preview": str(results[:2]),
        }
    return {"num_successful_runs": len(results), **preview}


def wolframscript_bin() -> str:
    """Name or path of the command that runs programs in the Wolfram Language."""
    return os.environ.get("WOLFRAMSCRIPT_BIN", "wolframscript")


def is_wolframscript_available() -> bool:
    """Whether that command is there."""
    return which(wolframscript_bin()) is not None


def build_wolframscript_argv(arguments: Sequence[str]) -> list[str]:
    """The command with arguments."""
    return [which(wolframscript_bin()) or wolframscript_bin(), *arguments]


RESULT = {"EvaluationResult": EvaluationResult}
SHINKA = {
    "load_program": load_program,
    "run_shinka_eval": run_shinka_eval,
    "save_json_results": save_json_results,
}
WOLFRAM = {
    "build_wolframscript_argv": build_wolframscript_argv,
    "is_wolframscript_available": is_wolframscript_available,
    "wolframscript_bin": wolframscript_bin,
}
CONTENTS: Mapping[str, Mapping[str, object]] = {
    "openevolve": {},
    "openevolve.evaluation_result": RESULT,
    "skydiscover": {},
    "skydiscover.evaluation": RESULT,
    "skydiscover.evaluation.evaluation_result": RESULT,
    "shinka": {},
    "shinka.core": {"run_shinka_eval": run_shinka_eval},
    "shinka.core.wrap_eval": SHINKA,
    "shinka.utils": {},
    "shinka.utils.wolfram": WOLFRAM,
}
"""What each stand-in module holds."""


class CompatModules:
    """Finds the stand-ins, and fills them when they are imported."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """The stand-in of a name; None if there is none, or its package is installed."""
        parent = sys.modules.get(name.partition(".")[0])
        is_ours = parent is None or isinstance(getattr(parent, "__loader__", None), CompatModules)
        if name not in CONTENTS or not is_ours:
            return None
        is_package = any(other.startswith(f"{name}.") for other in CONTENTS)
        return ModuleSpec(name, self, is_package=is_package)  # type: ignore[arg-type]

    def create_module(self, spec: ModuleSpec) -> None:
        """Use Python's default."""

    def exec_module(self, module: ModuleType) -> None:
        """Fill a module."""
        vars(module).update(CONTENTS[module.__name__])


def offer() -> None:
    """Let code import the stand-ins of packages that are not installed."""
    sys.meta_path.append(CompatModules())
