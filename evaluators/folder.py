"""A problem as a folder: task, initial program and evaluator, each in a file of its own.

The folder holds `problem.md` (or a `config.yaml` whose `prompt` has a `system_message`),
`initial_program.py`, and `evaluator.py` with a function `evaluate(program_path)` that returns a
dict with a number under "combined_score", as SkyDiscover and OpenEvolve expect it; an object with
`metrics` and `artifacts` will do too.
"""

import tomllib
from dataclasses import dataclass
from difflib import get_close_matches
from math import isfinite
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails

from costada.evaluators.contract import (
    EVALUATOR_FAULT,
    NO_VERDICT,
    Direction,
    Evaluation,
    failed,
)
from costada.evaluators.folder_texts import read_task, read_text
from costada.evaluators.normalize import normalize
from costada.evaluators.problem import Problem
from costada.evaluators.sandbox.limits import Limits
from costada.evaluators.sandbox.run import CandidateResult, run_evaluator
from costada.evaluators.sandbox.wire import Value

SCORE = "combined_score"
VALIDITY = "validity"
ERROR = "error"


class FolderSettings(BaseModel):
    """What `problem.toml` may say; all of it is optional.

    Attributes:
        name: Name of the problem; the folder's name if absent.
        timeout: Wall-clock limit of one evaluation, in seconds.
        direction: Which way combined_score improves.
        entry_point: Function every candidate must define.
        reference: The combined_score that counts as score 1; without it, combined_score is
            the score.
        human: Best combined_score known from people.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)

    name: str | None = None
    timeout: Annotated[float, Field(gt=0)] = 360.0
    direction: Annotated[Direction, Field(strict=False)] = Direction.MAXIMIZE
    entry_point: str | None = None
    reference: Annotated[float, Field(gt=0)] | None = None
    human: float | None = None


@dataclass(frozen=True, slots=True)
class FolderEvaluator:
    """Judges candidates by the `evaluator.py` of a folder, run in the sandbox.

    Attributes:
        folder: Where `evaluator.py` lies; its neighbours can be imported from it.
        settings: The folder's settings.
    """

    folder: Path
    settings: FolderSettings

    def __call__(self, code: str) -> Evaluation:
        """Return the verdict on a program."""
        limits = Limits(wall_seconds=self.settings.timeout)
        return judge(run_evaluator(code, self.folder, limits), self.settings)


def load_folder(path: str | Path) -> Problem:
    """Return the problem that a folder describes.

    Raises:
        ValueError: Naming the file that is missing, empty or malformed.
    """
    folder = Path(path).resolve()
    if not folder.is_dir():
        raise ValueError(f"{path} is not a folder; expected one with problem.md")
    task = read_task(folder)
    initial_program = read_text(folder / "initial_program.py")
    evaluator_source = read_text(folder / "evaluator.py")
    settings = _read_settings(folder / "problem.toml")
    return Problem(
        name=settings.name or folder.name,
        task=task,
        initial_program=initial_program,
        evaluate=FolderEvaluator(folder, settings),
        entry_point=settings.entry_point,
        direction=settings.direction,
        reference=settings.reference,
        limits=Limits(wall_seconds=settings.timeout),
        evaluator_source=evaluator_source,
        human=settings.human,
    )


def judge(run: CandidateResult, settings: FolderSettings) -> Evaluation:
    """Return the verdict that an evaluator's answer amounts to.

    Numbers become metrics; texts, None and numbers that are not finite become artifacts. The
    candidate failed if the evaluator says validity 0, or a score of 0 together with an error.
    """
    log = {"log": run.log} if run.log else {}
    if run.error is not None and run.is_own_fault:
        artifacts = log | {NO_VERDICT: run.error}
        return failed(run.error, artifacts=artifacts, seconds=run.seconds)
    if run.error is not None:
        return _faulty(f"evaluator.py failed: {run.error}", {}, log, run.seconds)
    metrics, artifacts = _sort(run.output)
    artifacts = log | artifacts
    if SCORE not in metrics and SCORE not in artifacts:
        known = ", ".join(sorted(metrics | artifacts)) or "nothing"
        text = f"evaluator.py returned no {SCORE}; expected a number (it returned {known})"
        return _faulty(text, metrics, artifacts, run.seconds)
    if SCORE not in metrics:
        return _without_score(metrics, artifacts, run.seconds)
    return _scored(metrics, artifacts, run.seconds, settings)


def _sort(output: Value) -> tuple[dict[str, float], dict[str, str]]:
    match output:
        case {"metrics": dict(values), "artifacts": dict(texts)}:
            numbers = {k: v for k, v in values.items() if isinstance(v, float) and isfinite(v)}
            others = {k: _text(v) for k, v in values.items() if k not in numbers}
            return numbers, others | {k: _text(v) for k, v in texts.items()}
    return {}, {}


def _text(value: Value) -> str:
    return str(value).encode("utf-8", "replace").decode()


def _without_score(
    metrics: dict[str, float], artifacts: dict[str, str], seconds: float
) -> Evaluation:
    text = f"{SCORE} is {artifacts[SCORE]!r}; expected a finite number"
    if artifacts[SCORE] in ("nan", "inf", "-inf"):
        marked = artifacts | {NO_VERDICT: text}
        return failed(text, metrics=metrics, artifacts=marked, seconds=seconds)
    return _faulty(f"evaluator.py: {text}", metrics, artifacts, seconds)


def _scored(
    metrics: dict[str, float], artifacts: dict[str, str], seconds: float, settings: FolderSettings
) -> Evaluation:
    objective = metrics[SCORE]
    score = normalize(objective, settings.reference, settings.direction)
    error = artifacts.get(ERROR) if score <= 0 else None
    if metrics.get(VALIDITY, 1.0) <= 0:
        error = artifacts.get(ERROR) or f"the evaluator says {VALIDITY} {metrics[VALIDITY]:g}"
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


def _faulty(
    text: str, metrics: dict[str, float], artifacts: dict[str, str], seconds: float
) -> Evaluation:
    marked = artifacts | {EVALUATOR_FAULT: text}
    return failed(text, metrics=metrics, artifacts=marked, seconds=seconds)


def _read_settings(path: Path) -> FolderSettings:
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
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
