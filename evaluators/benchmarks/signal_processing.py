"""Signal processing: a sliding-window filter for five noisy, nonstationary signals."""

from collections.abc import Mapping, Sequence
from dataclasses import astuple, fields, replace

import numpy as np

from costada.evaluators.benchmarks.arrays import Floats, float_array
from costada.evaluators.benchmarks.signals import (
    DELAY,
    NUM_SIGNALS,
    WINDOW_SIZE,
    Measures,
    Signal,
    composite,
    correlation,
    fresh_signals,
    make_signals,
    measure,
    noise_reduction,
    slope_changes,
    tracking_errors,
)
from costada.evaluators.benchmarks.texts import read_text, scoring_source
from costada.evaluators.holdout import Holdout
from costada.evaluators.problem import Problem
from costada.evaluators.sandbox.limits import MEBIBYTE, Limits
from costada.evaluators.sandbox.result import CandidateResult
from costada.values.evaluation import Direction, Evaluation, failed

SEED_OBJECTIVE = 0.4518100150842093
MIN_ACCURACY = 0.1
"""Accuracy below which the score is 0."""
MIN_SECONDS = 0.001
MARGIN = 0.07
"""How far the score of a program may fall on fresh signals; see bench/holdout.py."""

ENTRY_POINT = "run_signal_processing"
LIMITS = Limits(wall_seconds=360, call_seconds=10, memory_mb=1024, result_bytes=4 * MEBIBYTE)


def signal_processing() -> Problem:
    """Return the problem of filtering noisy signals as they arrive (App. H).

    Objective and score are different metrics: the objective is the mean composite; the score (F),
    by which candidates are ranked, weighs it with smoothness, accuracy, noise reduction and the
    share of signals that were filtered. There is no reference. The filter gets the whole signal,
    so neither causality nor the window is enforced, as in the published evaluator. The
    published signals can be computed from their seeds; a second look with signals drawn for each
    program detects that.
    """
    constants = {
        "WINDOW_SIZE": WINDOW_SIZE,
        "DELAY": DELAY,
        "MIN_ACCURACY": MIN_ACCURACY,
        "MIN_SECONDS": MIN_SECONDS,
    }
    filtering = (score_signals, read_filtered, score_measures, averages, overall_score)
    measuring = (measure, slope_changes, tracking_errors, composite, correlation, noise_reduction)
    return Problem(
        name="signal_processing",
        task=read_text("signal_processing_task.txt"),
        initial_program=read_text("signal_processing.txt"),
        entry_point=ENTRY_POINT,
        score=score,
        calls=calls_for(make_signals()),
        holdout=Holdout(
            calls=lambda seed: calls_for(fresh_signals(seed)),
            score=score_fresh,
            margin=MARGIN,
        ),
        limits=LIMITS,
        preload=("numpy", "scipy.optimize", "scipy.signal"),
        timing_metrics=("execution_time", "efficiency_score"),
        direction=Direction.MAXIMIZE,
        seed_objective=SEED_OBJECTIVE,
        evaluator_source=scoring_source(constants, *filtering, *measuring, float_array),
        source="CostAda, App. H; OpenEvolve, example signal_processing",
    )


def calls_for(signals: Sequence[Signal]) -> list[dict[str, object]]:
    """The keyword arguments of one call per signal."""
    return [{"noisy_signal": signal.noisy, "window_size": WINDOW_SIZE} for signal in signals]


def score(runs: Sequence[CandidateResult]) -> Evaluation:
    """Verdict on one run per published signal."""
    return score_signals(runs, make_signals())


def score_fresh(runs: Sequence[CandidateResult], *, seed: int, published: Evaluation) -> Evaluation:
    """Verdict on one run per signal drawn from a seed.

    Signals whose run failed are not left out in silence, or a program could answer the easy ones
    only: the score is lower by as much as fewer of them were filtered than of the published ones.
    """
    fresh = score_signals(runs, fresh_signals(seed))
    share = fresh.metrics["success_rate"] / published.metrics["success_rate"]
    return replace(fresh, score=fresh.score * min(1.0, share))


def score_signals(runs: Sequence[CandidateResult], signals: Sequence[Signal]) -> Evaluation:
    """Verdict on one run per signal; signals whose run failed are left out.

    Why they failed is told as feedback. If all failed, the first reason is the error.
    """
    measured: list[Measures] = []
    seconds: list[float] = []
    failures: dict[str, list[str]] = {}
    for i, (run, signal) in enumerate(zip(runs, signals, strict=True)):
        try:
            measured.append(measure(read_filtered(run, signal), signal))
            seconds.append(run.seconds)
        except ValueError as error:
            failures.setdefault(str(error), []).append(f"signal {i}")
    reasons = [f"{', '.join(names)}: {reason}" for reason, names in failures.items()]
    if not measured:
        return failed(reasons[0], metrics={"success_rate": 0.0}, artifacts=_feedback(reasons[1:]))
    return score_measures(measured, seconds, reasons, len(signals))


def read_filtered(run: CandidateResult, signal: Signal) -> Floats:
    """Return the filtered signal that a run gave.

    Raises:
        ValueError: If the run failed, or gave no finite signal of the length wanted.
    """
    if run.error is not None:
        raise ValueError(run.error)
    if not isinstance(run.output, dict) or "filtered_signal" not in run.output:
        raise ValueError(f"{ENTRY_POINT} must return a dict with the key 'filtered_signal'")
    length = len(signal.noisy) - WINDOW_SIZE + 1
    return float_array(run.output["filtered_signal"], "filtered_signal", (length,))


def score_measures(
    measured: Sequence[Measures],
    seconds: Sequence[float],
    reasons: Sequence[str],
    num_signals: int = NUM_SIGNALS,
) -> Evaluation:
    """Return the verdict on the signals that were filtered.

    Args:
        measured: What was measured on each of them.
        seconds: How long each of them took.
        reasons: Why the others failed.
        num_signals: How many signals there were.
    """
    metrics = averages(measured) | {"execution_time": float(np.mean(seconds))}
    accuracy = max(0.0, metrics["correlation"])
    metrics |= {
        "smoothness_score": 1 / (1 + metrics["slope_changes"] / 20),
        "responsiveness_score": 1 / (1 + metrics["lag_error"]),
        "accuracy_score": accuracy,
        "efficiency_score": min(1.0, 1 / max(MIN_SECONDS, metrics["execution_time"])),
        "success_rate": len(measured) / num_signals,
    }
    inaccurate = f"the mean correlation with the clean signals is {accuracy:.3g}; expected at least"
    notes = [f"{inaccurate} {MIN_ACCURACY:g}, the score is 0"] if accuracy < MIN_ACCURACY else []
    return Evaluation(
        score=overall_score(metrics),
        objective=metrics["composite_score"],
        is_valid=True,
        metrics=metrics,
        artifacts=_feedback([*notes, *reasons]),
    )


def averages(measured: Sequence[Measures]) -> dict[str, float]:
    """Return the mean of each measure over the signals that were filtered."""
    table = [astuple(measures) for measures in measured]
    names = [field.name for field in fields(Measures)]
    with np.errstate(over="ignore"):
        return dict(zip(names, np.mean(table, axis=0).tolist(), strict=True))


def overall_score(metrics: Mapping[str, float]) -> float:
    """Return the score (F): a weighted mean, or 0 if the signals are hardly recognisable."""
    if metrics["accuracy_score"] < MIN_ACCURACY:
        return 0.0
    quality = 0.4 * metrics["composite_score"] + 0.2 * metrics["smoothness_score"]
    quality += 0.2 * metrics["accuracy_score"] + 0.1 * metrics["noise_reduction"]
    return quality + 0.1 * metrics["success_rate"]


def _feedback(notes: Sequence[str]) -> dict[str, str]:
    return {"feedback": "\n".join(notes)} if notes else {}
