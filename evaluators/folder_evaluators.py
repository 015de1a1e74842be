"""The evaluators of problem folders, and how their answers become evaluations.

A `score(output)` runs in this process, an `evaluate(program_path)` in the sandbox.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from math import isfinite
from numbers import Real
from pathlib import Path
from types import ModuleType
from typing import SupportsFloat, TypeGuard

from costada.evaluators.consent import ConfirmableFile, check_sendable, consent_fault
from costada.evaluators.data_set import Example
from costada.evaluators.feedback import reported_texts
from costada.evaluators.fingerprint import Unknown
from costada.evaluators.folder_files import EvaluatorFile, reads_elsewhere
from costada.evaluators.folder_settings import SETTINGS_FILE, FolderSettings
from costada.evaluators.sandbox.candidate_results import CandidateResult
from costada.evaluators.sandbox.candidate_runs import ENDED, run_evaluator
from costada.evaluators.sandbox.execution import too_slow
from costada.evaluators.sandbox.inside.orders import CANDIDATE_FILE
from costada.evaluators.sandbox.inside.scored_commands import (
    FAILURES,
    as_metrics,
    as_text,
    names_failure,
)
from costada.evaluators.sandbox.layer_choice import chosen_layer
from costada.evaluators.sandbox.layers import Layer
from costada.evaluators.sandbox.limits import Limits
from costada.evaluators.sandboxed import Confined
from costada.evaluators.scoring import normalize, weighted_sum
from costada.evaluators.setup_hints import (
    REFUSED,
    Setup,
    refused_process,
    setup_hint,
)
from costada.values.candidate import Program
from costada.values.evaluation import (
    COMBINED_SCORE,
    EVALUATOR_FAULT,
    LOG,
    NOT_SCORED,
    PRIVATE_METRICS,
    SANDBOX_FAULT,
    SCORED_BY,
    UNSCORED,
    Direction,
    Evaluation,
    InvalidEvaluation,
    failed,
    failed_evaluator,
    read_objectives,
    storable,
)

VALIDITY = "validity"
NO_ERROR = frozenset(
    {
        *("", "none", "null", "nil", "nan", "n/a", "na", "-", "no", "no error", "no errors", "ok"),
        *("false", "0", "0.0", "[]", "{}", "()", "set()"),
    }
)
"""What evaluators write for an error where there is none, in lower case."""

NO_SCORES = ("nan", "inf", "-inf", "None")
"""Texts of a score that evaluators give to candidates that failed."""

STAGE_ERROR = re.compile(r"stage(\d)_error")
SCORED_AS = f"{COMBINED_SCORE} is "
"""Begins the note on a `combined_score` that the evaluator does not return itself."""

SCORE_NAME = re.compile(r"(^|_)(score|fitness|accuracy|quality|reward)$")
"""Fits the names of metrics that most likely say how good a program is."""

NO_SCORE = re.compile(
    r"^(num|n)_|(^|_)(time|times|seconds|secs?|ms|duration|latency|runtime|count|counts)(_|$)"
)
"""Fits the names of metrics that are most likely times or counts."""

FAR_ABOVE_ONE = 10.0


@dataclass(frozen=True, slots=True)
class FolderFunction:
    """A function that a folder's `evaluator.py` defines.

    Attributes:
        score: The function.
        settings: The folder's settings.
        folder: The problem's folder.
        path: The evaluator.
        imports: Modules of other places that it uses, except those of installed packages.
        shared: Files of this package beside the benchmarks that it uses.
    """

    score: Callable[..., object]
    settings: FolderSettings
    folder: Path
    path: Path
    imports: tuple[ModuleType, ...]
    shared: tuple[Path, ...]

    def decided_by(self) -> tuple[object, ...]:
        """What the score depends on: every file of the folder, `imports`, `shared`, the rest."""
        is_known = not reads_elsewhere(self.folder, self.path)
        rest = None if is_known else Unknown("what it reads elsewhere")
        return (self.folder, self.imports, *self.shared, rest)


@dataclass(frozen=True, slots=True)
class FolderExampleScore(FolderFunction):
    """A folder's `score_example(output, example)`."""

    def __call__(self, output: object, example: Example) -> object:
        """What it answers; raises whatever it raises."""
        return self.score(output, example)


@dataclass(frozen=True, slots=True)
class FolderScore(FolderFunction):
    """A folder's `score(output)`, whose answer may be all that `scored_answer` reads."""

    def __call__(self, output: object, **known: object) -> Evaluation:
        """Evaluation of what a candidate returned; raises whatever `score` raises."""
        return scored_answer(self.score(output, **known), self.settings, "score")


def scored_answer(answer: object, settings: FolderSettings, function: str) -> Evaluation:
    """Evaluation of what a function returned.

    That is a number, a dict with a `combined_score`, `(score, side_info)`, or an `Evaluation`.

    Raises:
        InvalidEvaluation: It is none of these, or a number in it is too large.
    """
    if isinstance(answer, Evaluation):
        return answer
    answer = as_metrics(answer)
    if not isinstance(answer, Mapping):
        raise InvalidEvaluation(
            f"{function} returned {type(answer).__name__}; expected a number, a dict, such as"
            f' {{"{COMBINED_SCORE}": 0.5}}, (score, side_info), or an Evaluation'
        )
    values: dict[str, object] = {}
    for name, value in answer.items():
        try:
            values[str(name)] = float(value) if is_number(value) else value
        except OverflowError:
            fault = f"{function} returned {str(name)!r}: a number too large for a float"
            raise InvalidEvaluation(fault) from None
    metrics, texts = sort_values(values)
    return folder_evaluation(metrics, reported_texts(texts), settings)


def is_number(value: object) -> TypeGuard[SupportsFloat]:
    """Whether a value is a number, also an array of one."""
    return isinstance(value, Real) or getattr(value, "shape", None) == ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderEvaluator(Confined):
    """Evaluates candidates by the evaluator of a folder, run in the sandbox.

    Attributes:
        evaluator: The evaluator and how it is called.
        settings: The folder's settings.
        file_name: Name of the file that a candidate of one text is given as.
        dimensions: Metrics left out where the score is the mean of the metrics.
    """

    evaluator: EvaluatorFile
    settings: FolderSettings
    file_name: str = CANDIDATE_FILE
    dimensions: tuple[str, ...] = ()

    def decided_by(self) -> tuple[object, ...]:
        """What evaluations depend on besides the limits: every file of the folder, and helpers."""
        return self.evaluator.decided_by()

    def check_confirmed(self, layer: Layer) -> None:
        """Refuse to run an evaluator whose declarations nobody has confirmed; as in `Confined`."""
        folder, file = self.evaluator.folder, ConfirmableFile(self.evaluator)
        if fault := consent_fault(folder, self.settings.needs, file, layer):
            raise ValueError(f"{folder}: {fault}")

    def check_sendable(self) -> None:
        """As in `Confined`."""
        check_sendable(self.settings.needs)

    def __call__(self, source: str | Program) -> Evaluation:
        """Evaluation of a program; raises as `SandboxedEvaluator` does.

        It raises a ValueError too if what the evaluator needs is not confirmed, or no longer.
        """
        self.check_granted()
        if self.settings.needs.are_of_evaluator:
            self.check_confirmed(chosen_layer(self.layer))
        with self.settings.needs.opened() as opened:
            run = run_evaluator(
                source,
                self.evaluator,
                self.limits,
                self.layer,
                self.preload,
                self.interpreter,
                self.file_name,
                self.readable,
                self.connect,
                opened,
            )
        return self._evaluation_of(run)

    def _evaluation_of(self, run: CandidateResult) -> Evaluation:
        """Evaluation made of what the evaluator answered.

        Numbers become metrics; strings, None and numbers that are not finite become artifacts.
        """
        log = {LOG: run.log} if run.log else {}
        if run.error is not None and run.is_own_fault:
            mark = SANDBOX_FAULT if run.is_sandbox_fault else NOT_SCORED
            error = evaluation_error(run.error, self.limits)
            return failed(error, artifacts=log | {mark: error}, seconds=run.seconds)
        if run.error is not None:
            fault = f"{self.evaluator.path.name} failed: {self._explained(run.error, run.log)}"
            evaluation = failed_evaluator(fault, run.outage)
            return replace(
                evaluation, artifacts=log | {**evaluation.artifacts}, seconds=run.seconds
            )
        match run.output:
            case {
                "metrics": dict(values),
                "artifacts": dict(texts),
                "averaged": list(names),
                **rest,
            }:
                metrics, others = sort_values(values)
                texts = others | {k: storable(str(text)) for k, text in texts.items()}
                artifacts = log | reported_texts(texts, log)
                if rest.get("private"):
                    artifacts[PRIVATE_METRICS] = storable(str(rest["private"]))
                is_chosen = self.settings.weights or self.settings.metric
                if COMBINED_SCORE not in values and not is_chosen:
                    chosen = [name for name in names if name not in self.dimensions] or names
                    metrics, artifacts = _with_mean_score(
                        values, metrics, artifacts, [*map(str, chosen)]
                    )
                return folder_evaluation(metrics, artifacts, self.settings, run.seconds)
        return folder_evaluation({}, log, self.settings, run.seconds)

    def _explained(self, error: str, log: str) -> str:
        """The evaluator's error and a hint; a refused process is named first."""
        process = refused_process(log)
        if process:
            return f"{process}\n{error}" if REFUSED in error else error
        return "\n".join(filter(None, [error, self.hint(error, log)]))

    def hint(self, error: str, log: str) -> str:
        """What may help where the evaluator fails for where it runs; empty if nothing is known."""
        path = self.evaluator.path
        setup = Setup(
            source=path.read_text("utf-8", "replace"),
            layer=chosen_layer(self.layer),
            processes=self.limits.processes,
            place=path.parent,
            folder=self.evaluator.folder,
            shown=self.evaluator.shown().keys(),
        )
        return setup_hint(error, log, setup)


def _with_mean_score(
    values: Mapping[str, object],
    metrics: Mapping[str, float],
    artifacts: Mapping[str, str],
    names: list[str],
) -> tuple[dict[str, float], dict[str, str]]:
    """The metrics with the mean of those named as score, and a note that says so."""
    found = {name: metrics[name] for name in names if name in metrics}
    if len(found) < len(names) or not found:
        return {**metrics}, {**artifacts}
    others = [name for name, value in values.items() if isinstance(value, float)]
    left_out = ", ".join(name for name in others if name not in found)
    odd = _unlike_scores(found)
    scores = [name for name in names if name not in odd] or names
    likely = [name for name in scores if SCORE_NAME.search(name)] or scores
    text = f"{SCORED_AS}{'the mean of ' if len(names) > 1 else ''}{', '.join(names)}"
    text += f" (without {left_out})" if left_out else ""
    text += ", as the evaluator returns none"
    if odd and len(names) > 1:
        text += f". Not all of these look like scores: {', '.join(odd)}"
    text += f'; to choose one of them: metric = "{likely[0]}" in {SETTINGS_FILE}'
    mean = sum(found.values()) / len(found)
    return {**metrics, COMBINED_SCORE: mean}, {**artifacts, SCORED_BY: text}


def _unlike_scores(found: Mapping[str, float]) -> list[str]:
    """Metrics named like times or counts, or far above 1 where others are in [0, 1]."""
    has_ratio = any(0 <= value <= 1 for value in found.values())
    return [
        name
        for name, value in found.items()
        if (NO_SCORE.search(name) and not SCORE_NAME.search(name))
        or (has_ratio and abs(value) > FAR_ABOVE_ONE)
    ]


def sort_values(values: Mapping[str, object]) -> tuple[dict[str, float], dict[str, str]]:
    """Finite numbers as metrics, and everything else as text in artifacts."""
    numbers = {k: v for k, v in values.items() if isinstance(v, float) and isfinite(v)}
    return numbers, {k: storable(as_text(v)) for k, v in values.items() if k not in numbers}


def evaluation_error(error: str, limits: Limits) -> str:
    """Why an evaluation failed, with the setting of a time limit that it exceeded.

    Evaluator and candidate share one time limit, so neither is blamed.
    """
    if error != too_slow(limits.wall_seconds):
        return error
    seconds = f"{limits.wall_seconds:g} s"
    return f"timeout: the evaluation exceeded {seconds} (timeout in problem.toml, or --timeout)"


def reported_error(artifacts: Mapping[str, str]) -> str | None:
    """Why a candidate failed, in the words of its evaluator; None if there are none."""
    found = (artifacts.get(name, "") for name in FAILURES)
    return next((text for text in found if text.strip().lower() not in NO_ERROR), None)


def last_stage(artifacts: Mapping[str, str]) -> str | None:
    """Which stage an evaluation ended in, or which later one failed; None of a whole one."""
    found = ((STAGE_ERROR.fullmatch(name), text) for name, text in artifacts.items())
    failed = (f"stage {name[1]} failed: {text}" for name, text in found if name)
    return next(failed, artifacts.get(ENDED))


def folder_evaluation(
    metrics: Mapping[str, float],
    artifacts: Mapping[str, str],
    settings: FolderSettings,
    seconds: float = 0.0,
) -> Evaluation:
    """Evaluation from the metrics and artifacts of a folder's evaluator.

    The candidate failed if the evaluator says validity 0, an error with a score of 0, none or one
    that is not finite, or only numbers that are named like a failure.
    """
    artifacts = {**artifacts}
    returned = {*metrics, *artifacts}
    if settings.weights:
        metrics = _with_weighted_score(metrics, artifacts, settings)
    if settings.metric:
        metrics = _with_chosen_score(metrics, artifacts, settings.metric)
    is_invalid = metrics.get(VALIDITY, 1.0) <= 0
    error = reported_error(artifacts)
    if is_invalid and not error:
        error = f"the evaluator says {VALIDITY} {metrics[VALIDITY]:g}"
    if not {COMBINED_SCORE, settings.metric} & {*metrics, *artifacts}:
        if not error and (error := _only_failures(metrics, settings)) and not settings.metric:
            artifacts[UNSCORED] = error
        if error:
            return failed(error, metrics=metrics, artifacts=artifacts, seconds=seconds)
    if COMBINED_SCORE not in metrics:
        if error and artifacts.get(COMBINED_SCORE) in NO_SCORES:
            return failed(error, metrics=metrics, artifacts=artifacts, seconds=seconds)
        fault = _missing_score(returned, artifacts.get(COMBINED_SCORE), settings)
        marked = {**artifacts, EVALUATOR_FAULT: fault}
        return failed(fault, metrics=metrics, artifacts=marked, seconds=seconds)
    objective = metrics[COMBINED_SCORE]
    score = normalize(objective, settings.reference, settings.direction)
    error = error if is_invalid or score <= 0 else None
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


def _missing_score(returned: Iterable[str], given: str | None, settings: FolderSettings) -> str:
    """What an evaluator has to return in place of the text given as the score, if any."""
    if given is None:
        known = ", ".join(sorted(returned)) or "nothing"
        wanted = settings.metric or COMBINED_SCORE
        return f"the evaluator returned no {wanted}; expected a number (it returned {known})"
    if given in ("nan", "inf", "-inf"):
        return f"{COMBINED_SCORE} is {given}; expected a finite number"
    return f"the evaluator's {COMBINED_SCORE} is {given!r}; expected a finite number"


def _only_failures(metrics: Mapping[str, float], settings: FolderSettings) -> str | None:
    """The error of a candidate of which only failures are reported; None if not."""
    if not metrics or not all(map(names_failure, metrics)):
        return None
    numbers = ", ".join(f"{name} {value:g}" for name, value in metrics.items())
    return f"the evaluator reports {numbers}, and no {settings.metric or COMBINED_SCORE}"


def _with_chosen_score(
    metrics: Mapping[str, float], artifacts: Mapping[str, str], metric: str
) -> dict[str, float]:
    """The metrics with one of them as `combined_score`, which a failed candidate need not have."""
    if metric in metrics:
        return {**metrics, COMBINED_SCORE: metrics[metric]}
    if reported_error(artifacts) or metrics.get(VALIDITY, 1.0) <= 0:
        return {**metrics, COMBINED_SCORE: 0.0}
    return {name: value for name, value in metrics.items() if name != COMBINED_SCORE}


def _with_weighted_score(
    metrics: Mapping[str, float], artifacts: Mapping[str, str], settings: FolderSettings
) -> Mapping[str, float]:
    """The metrics with the `combined_score` that weights make of them, 0 for a failed candidate."""
    objectives = read_objectives(settings.objectives)
    if all(each.metric in metrics for each in objectives):
        return {**metrics, COMBINED_SCORE: weighted_sum(metrics, objectives, settings.weights)}
    has_failed = reported_error(artifacts) or metrics.get(VALIDITY, 1.0) <= 0
    return {**metrics, COMBINED_SCORE: 0.0} if has_failed else metrics
