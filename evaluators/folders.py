"""A problem as a folder: task, initial program and evaluator, each in its own file.

The folder holds `problem.md` (or a `config.yaml` whose `prompt` has a `system_message`),
`initial_program.py`, `evaluator.py` and, with its settings, `problem.toml`. There are two kinds of
`evaluator.py`:

- A native one defines `score(output)`. Candidates run in the sandbox, where the entry point that
  `problem.toml` names is called with `ARGUMENTS` (or once with each of `CALLS`); what it returns is
  judged here, in another process. `HOLDOUT` may add held-out inputs.
- A legacy one defines `evaluate(program_path)` and returns a dict with a number under
  "combined_score", as SkyDiscover and OpenEvolve expect it, or an object with `metrics` and
  `artifacts`. It runs in the sandbox, in the same process as the candidate.
"""

import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import lru_cache
from inspect import signature
from math import isfinite
from numbers import Real
from pathlib import Path
from symtable import symtable
from types import FunctionType, ModuleType
from typing import Annotated, Any

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails

from costada.evaluators.contract import Holdout, normalize
from costada.evaluators.fingerprint import Unknown
from costada.evaluators.folder_files import EVALUATOR_FILE, reads_elsewhere, shown_files
from costada.evaluators.problem import Problem
from costada.evaluators.sandbox.execution import CandidateResult
from costada.evaluators.sandbox.layers import PRELOAD, Layer
from costada.evaluators.sandbox.limits import MEBIBYTE, Limits
from costada.evaluators.sandbox.run import run_evaluator
from costada.evaluators.sandboxed import Confined
from costada.evaluators.trusted_module import load_trusted, own_imports
from costada.values.evaluation import (
    COMBINED_SCORE,
    EVALUATOR_FAULT,
    NO_VERDICT,
    SANDBOX_FAULT,
    Direction,
    Evaluation,
    failed,
    storable,
)

TASK_FILE = "problem.md"
PROGRAM_FILE = "initial_program.py"
SETTINGS_FILE = "problem.toml"
CONFIG_FILE = "config.yaml"
"""Where OpenEvolve and SkyDiscover keep the task: `prompt: {system_message: ...}`."""

LARGEST_SETTINGS = 2**20
"""Bytes of `problem.toml`."""

GUIDE_BLOCK = re.compile(
    r"^# GUIDE-BLOCK-START\n(.*?)^# GUIDE-BLOCK-END$", re.MULTILINE | re.DOTALL
)
NATIVE, LEGACY = "score", "evaluate"
VALIDITY = "validity"
ERROR = "error"
UNREADABLE = ("FileNotFoundError", "PermissionError")
UNREADABLE_HINT = (
    "\nAn evaluator sees the files of its folder that its code imports or names; declare others as"
    f" files in {SETTINGS_FILE}"
)

Count = Annotated[int, Field(ge=1)]
Seconds = Annotated[float, Field(gt=0)]


class FolderSettings(BaseModel):
    """The keys of `problem.toml`; all are optional, but `entry_point` beside a `score`."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=True, allow_inf_nan=False, use_attribute_docstrings=True
    )

    name: str | None = None
    """Name of the problem; the folder's name if absent."""
    entry_point: str | None = None
    """Function that every candidate defines; required beside a `score`."""
    direction: Annotated[Direction, Field(strict=False)] = Direction.MAXIMIZE
    """Which way `combined_score` improves; `minimize` needs a reference."""
    reference: Annotated[float, Field(gt=0)] | None = None
    """The `combined_score` that counts as score 1; without it, `combined_score` is the score."""
    timeout: Seconds = Limits().wall_seconds
    """Wall-clock limit of one evaluation, in seconds."""
    call_timeout: Seconds | None = Limits().call_seconds
    """Wall-clock limit of each of several calls, in seconds."""
    memory_mb: Count = Limits().memory_mb
    """Memory of one evaluation, in MiB."""
    threads: Count = Limits().threads
    """Threads that a candidate may have at once."""
    processes: Annotated[int, Field(ge=0)] = Limits().processes
    """Processes that it may have besides its first."""
    scratch_mb: Count = Limits().scratch_mb
    """Size of the files that it may write, in MiB."""
    result_mb: Count = Limits().result_bytes // MEBIBYTE
    """Size of what it may return, all calls together, in MiB."""
    preload: Annotated[tuple[str, ...], Field(strict=False)] = PRELOAD
    """Modules loaded before a candidate starts."""
    sandbox: Annotated[Layer, Field(strict=False)] = Layer.AUTO
    """What confines the candidate's process."""
    files: Annotated[tuple[str, ...], Field(strict=False)] = ()
    """What an `evaluate(program_path)` may read of the folder, besides what its code imports or
    names: paths or patterns."""
    allow_invalid_start: bool = False
    """Whether a run may start although the initial program is rejected."""
    timing_metrics: Annotated[tuple[str, ...], Field(strict=False)] = ()
    """Metrics that hold wall-clock time, which no model sees."""
    human: float | None = None
    """Best `combined_score` known from people, for reports."""
    seed_objective: float | None = None
    """`combined_score` of the initial program, for lists."""
    source: str = ""
    """Where the problem is from."""

    @property
    def limits(self) -> Limits:
        """What one evaluation may take."""
        return Limits(
            wall_seconds=self.timeout,
            call_seconds=self.call_timeout,
            memory_mb=self.memory_mb,
            scratch_mb=self.scratch_mb,
            threads=self.threads,
            processes=self.processes,
            result_bytes=self.result_mb * MEBIBYTE,
        )


PROBLEM_FIELDS = (
    *("entry_point", "limits", "sandbox", "preload", "direction", "reference", "human"),
    *("seed_objective", "allow_invalid_start", "timing_metrics", "source"),
)
"""Settings that are fields of a problem too."""


def load_folder(path: str | Path) -> Problem:
    """The problem that a folder describes.

    Raises:
        ValueError: Naming the file that is missing, empty or malformed.
    """
    folder = Path(path).resolve()
    if not folder.is_dir():
        raise ValueError(f"{path} is not a folder; expected one with {TASK_FILE}")
    task, initial_program = _read_task(folder), _read_text(folder / PROGRAM_FILE)
    source = _read_text(folder / EVALUATOR_FILE)
    settings = read_settings(folder / SETTINGS_FILE)
    if _is_native(source):
        judging = _native(folder / EVALUATOR_FILE, settings)
    else:
        shown_files(folder, settings.files)
        judging = {"evaluate": FolderEvaluator(folder=folder, settings=settings)}
    try:
        return Problem(
            name=settings.name or folder.name,
            task=task,
            initial_program=initial_program,
            evaluator_source=_shown_to_guide(source),
            **{name: getattr(settings, name) for name in PROBLEM_FIELDS},
            **judging,
        )
    except ValueError as error:
        raise ValueError(f"{folder}: {error}") from None


def _read_task(folder: Path) -> str:
    """The task in words, from `problem.md` or else from `config.yaml`.

    Raises:
        ValueError: If neither holds it.
    """
    if (folder / TASK_FILE).is_file() or not (folder / CONFIG_FILE).is_file():
        return _read_text(folder / TASK_FILE)
    path = folder / CONFIG_FILE
    try:
        config = yaml.safe_load(_read_text(path))
    except yaml.YAMLError as error:
        raise ValueError(f"{path} is not valid YAML: {error}") from None
    match config:
        case {"prompt": {"system_message": str(task)}} if task.strip():
            return task
    raise ValueError(
        f"{TASK_FILE} is missing in {folder}, and {CONFIG_FILE} has no text at"
        " prompt.system_message; a problem folder needs one of them"
    )


def _read_text(path: Path) -> str:
    if not path.is_file():
        raise ValueError(f"{path.name} is missing in {path.parent}; a problem folder needs it")
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8 text: {error}") from None
    if not text.strip():
        raise ValueError(f"{path} is empty; a problem folder needs it")
    return text


def read_settings(path: Path) -> FolderSettings:
    """What a `problem.toml` says; the defaults if there is none.

    Raises:
        ValueError: Naming the key that is unknown or wrong, or missing beside another one.
    """
    if path.is_file() and path.stat().st_size > LARGEST_SETTINGS:
        raise ValueError(f"{path}: larger than {LARGEST_SETTINGS:,} bytes, expected settings")
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
        settings = FolderSettings.model_validate(table)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not valid TOML: {error}") from None
    except ValidationError as error:
        faults = "; ".join(map(_fault, error.errors()))
        known = ", ".join(FolderSettings.model_fields)
        raise ValueError(f"{path}: {faults} (known keys: {known})") from None
    if settings.direction is Direction.MINIMIZE and settings.reference is None:
        raise ValueError(f"{path}: reference is missing; needed where direction is 'minimize'")
    return settings


def _fault(details: ErrorDetails) -> str:
    key = ".".join(map(str, details["loc"]))
    if details["type"] != "extra_forbidden":
        return f"{key}: {details['msg']}"
    nearest = get_close_matches(key, FolderSettings.model_fields, n=1)
    return f"unknown key {key!r}" + (f", did you mean {nearest[0]!r}?" if nearest else "")


def _shown_to_guide(source: str) -> str:
    """What a guide reads of an `evaluator.py`: its guide blocks, or else all of it."""
    blocks = [block.strip("\n") for block in GUIDE_BLOCK.findall(source)]
    return "\n\n".join(blocks) + "\n" if blocks else source


@lru_cache
def _is_native(source: str) -> bool:
    """Whether an `evaluator.py` defines `score(output)` and no `evaluate(program_path)`.

    A text that cannot be parsed is not native: the sandbox says what is wrong with it.
    """
    try:
        symbols = symtable(source, EVALUATOR_FILE, "exec").get_symbols()
    except (SyntaxError, ValueError, RecursionError):
        return False
    names = {each.get_name() for each in symbols if each.is_assigned() or each.is_imported()}
    return NATIVE in names and LEGACY not in names


def _native(path: Path, settings: FolderSettings) -> dict[str, Any]:
    """Run a native `evaluator.py` in this process, for the fields of a problem that it defines."""
    if settings.entry_point is None:
        raise ValueError(
            f"{path.parent / SETTINGS_FILE}: entry_point is missing; needed where {EVALUATOR_FILE}"
            " defines score(output)"
        )
    module = load_trusted(path)
    score, holdout = module.score, getattr(module, "HOLDOUT", None)
    if not callable(score) or not _takes_one(score):
        raise ValueError(f"{path}: score is {score!r}; expected a function of one argument")
    if not isinstance(holdout, Holdout | None):
        raise ValueError(f"{path}: HOLDOUT is {holdout!r}; expected a costada.Holdout")
    judge = FolderScore(score, settings, path.parent, own_imports(module))
    return {
        "score": judge,
        "arguments": getattr(module, "ARGUMENTS", {}),
        "calls": getattr(module, "CALLS", None),
        "holdout": holdout and replace(holdout, score=replace(judge, score=holdout.score)),
    }


def _takes_one(function: Callable[[Any], object]) -> bool:
    if not isinstance(function, FunctionType):
        return True
    try:
        signature(function).bind(None)
    except TypeError:
        return False
    return True


@dataclass(frozen=True, slots=True)
class FolderScore:
    """A folder's `score(output)`, whose answer may also be a dict with a `combined_score`.

    Attributes:
        score: The function that `evaluator.py` defines.
        settings: The folder's settings, which say what a combined_score is worth.
        folder: Where `evaluator.py` is.
        imports: Modules of other places that it uses, except those of installed packages.
    """

    score: Callable[..., object]
    settings: FolderSettings
    folder: Path
    imports: tuple[ModuleType, ...]

    def decided_by(self) -> tuple[object, ...]:
        """What the verdicts depend on: every file of the folder, `imports`, and the rest."""
        rest = Unknown("what it reads elsewhere") if reads_elsewhere(self.folder) else None
        return (self.folder, self.imports, rest)

    def __call__(self, output: object, **known: object) -> Evaluation:
        """Verdict on what a candidate returned; raises whatever `score` raises."""
        answer = self.score(output, **known)
        if isinstance(answer, Evaluation):
            return answer
        if not isinstance(answer, Mapping):
            given = type(answer).__name__
            raise TypeError(
                f"score returned {given}; expected an Evaluation or a dict with {COMBINED_SCORE}"
            )
        values: dict[str, object] = {}
        for name, value in answer.items():
            is_number = isinstance(value, Real) or getattr(value, "shape", None) == ()
            values[str(name)] = float(value) if is_number else value
        return verdict(*sort_values(values), self.settings)


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderEvaluator(Confined):
    """Judges candidates by the `evaluate` of a folder, run in the sandbox.

    Attributes:
        folder: Where `evaluator.py` is; its neighbours can be imported from it.
        settings: The folder's settings.
    """

    folder: Path
    settings: FolderSettings

    def decided_by(self) -> tuple[object, ...]:
        """What the verdicts depend on besides the limits: every file of the folder."""
        return (self.folder,)

    def __call__(self, code: str) -> Evaluation:
        """Verdict on a program; raises as `SandboxedEvaluator` does."""
        files = self.settings.files
        run = run_evaluator(code, self.folder, self.limits, self.layer, self.preload, files)
        return _judge(run, self.settings)


def _judge(run: CandidateResult, settings: FolderSettings) -> Evaluation:
    """Verdict from the answer of an `evaluate(program_path)`.

    Numbers become metrics; texts, None and numbers that are not finite become artifacts.
    """
    log = {"log": run.log} if run.log else {}
    if run.error is not None and run.is_own_fault:
        mark = SANDBOX_FAULT if run.is_sandbox_fault else NO_VERDICT
        return failed(run.error, artifacts=log | {mark: run.error}, seconds=run.seconds)
    if run.error is not None:
        hint = UNREADABLE_HINT if run.error.startswith(UNREADABLE) else ""
        fault = f"evaluator.py failed: {run.error}{hint}"
        return failed(fault, artifacts=log | {EVALUATOR_FAULT: fault}, seconds=run.seconds)
    match run.output:
        case {"metrics": dict(values), "artifacts": dict(texts)}:
            metrics, others = sort_values(values)
            artifacts = log | others | {name: storable(str(text)) for name, text in texts.items()}
            return verdict(metrics, artifacts, settings, run.seconds)
    return verdict({}, log, settings, run.seconds)


def sort_values(values: Mapping[str, object]) -> tuple[dict[str, float], dict[str, str]]:
    """Finite numbers as metrics, and everything else, in words, as artifacts."""
    numbers = {k: v for k, v in values.items() if isinstance(v, float) and isfinite(v)}
    return numbers, {k: storable(str(v)) for k, v in values.items() if k not in numbers}


def verdict(
    metrics: Mapping[str, float],
    artifacts: Mapping[str, str],
    settings: FolderSettings,
    seconds: float = 0.0,
) -> Evaluation:
    """Evaluation from the metrics and artifacts of a folder's evaluator.

    The candidate failed if the evaluator says validity 0, or a score of 0 together with an error.
    """
    if COMBINED_SCORE not in metrics:
        known = ", ".join(sorted({*metrics, *artifacts})) or "nothing"
        fault = (
            f"evaluator.py returned no {COMBINED_SCORE}; expected a number (it returned {known})"
        )
        if COMBINED_SCORE in artifacts:
            given = artifacts[COMBINED_SCORE]
            fault = f"{COMBINED_SCORE} is {given!r}; expected a finite number"
            if given not in ("nan", "inf", "-inf"):
                fault = f"evaluator.py: {fault}"
        marked = {**artifacts, EVALUATOR_FAULT: fault}
        return failed(fault, metrics=metrics, artifacts=marked, seconds=seconds)
    objective = metrics[COMBINED_SCORE]
    score = normalize(objective, settings.reference, settings.direction)
    error = artifacts.get(ERROR) if score <= 0 else None
    if metrics.get(VALIDITY, 1.0) <= 0:
        error = artifacts.get(ERROR) or f"the evaluator says {VALIDITY} {metrics[VALIDITY]:g}"
    if error is None and settings.direction is Direction.MINIMIZE and objective <= 0:
        error = (
            f"{COMBINED_SCORE} is {objective:g}; expected a positive number, as an objective that"
            f" is minimised is scored by reference / {COMBINED_SCORE}"
        )
    if error:
        return failed(error, metrics=metrics, artifacts=artifacts, seconds=seconds)
    return Evaluation(
        score=score,
        objective=objective,
        is_valid=True,
        metrics=metrics,
        artifacts=artifacts,
        seconds=seconds,
    )
