"""Signal processing: a sliding-window filter for five noisy, nonstationary signals.

Objective and score are different metrics: the objective is the mean composite; the score, by which
candidates are ranked, weighs it with smoothness, accuracy, noise reduction and the share of signals
that were filtered. There is no reference. The filter gets the whole signal, so neither causality
nor the window is enforced, as in the published evaluator. The published signals can be computed
from their seeds; held-out signals drawn for each program detect that.

DELAY is the number of samples before the first one that a filter looking back over a whole window
can give; below MIN_ACCURACY the score is 0.
"""

from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, fields, replace

import numpy as np
from numpy.random import Generator, RandomState
from numpy.typing import NDArray

from costada import CandidateResult, Evaluation, Holdout, failed
from costada.evaluators.benchmarks.checks import Floats, float_array

ENTRY_POINT = "run_signal_processing"
MARGIN = 0.07  # how far the score of a program may fall on fresh signals; see bench/holdout.py
NUM_SIGNALS = 5
NUM_SETS = 3  # sets of five held-out signals: their mean varies less than that of one set
FIRST_SEED = 42
DURATION = 10.0
TIMES = [np.linspace(0, DURATION, 500 + 100 * i) for i in range(NUM_SIGNALS)]
NOISE = [0.2 + 0.1 * i for i in range(NUM_SIGNALS)]  # standard deviation of each signal's noise

# GUIDE-BLOCK-START
# A check that fails raises; the score is then 0.

WINDOW_SIZE = 20
DELAY = 19
MIN_ACCURACY = 0.1
MIN_SECONDS = 0.001
# GUIDE-BLOCK-END


@dataclass(frozen=True, slots=True, eq=False)
class Signal:
    """A test signal: what it is without noise, and what a filter gets."""

    clean: Floats
    noisy: Floats


@dataclass(frozen=True, slots=True)
class Measures:
    """What is measured on one filtered signal.

    Attributes:
        composite_score: The four penalties below in one number in (0, 1]; higher is better.
        slope_changes: How often the filtered signal turns (S).
        lag_error: Distance of the last filtered from the last noisy sample (L_recent).
        avg_error: Mean distance of filtered from noisy samples (L_avg).
        false_reversals: Turns where the clean signal has none (R).
        correlation: Pearson correlation with the clean signal.
        noise_reduction: Share of the noise's variance that is gone, at least 0.
    """

    composite_score: float
    slope_changes: float
    lag_error: float
    avg_error: float
    false_reversals: float
    correlation: float
    noise_reduction: float


def score(runs: Sequence[CandidateResult]) -> Evaluation:
    """The verdict on one run per published signal."""
    return score_signals(runs, make_signals())


def score_fresh(runs: Sequence[CandidateResult], *, seed: int, published: Evaluation) -> Evaluation:
    """The verdict on one run per signal drawn from a seed.

    Signals whose run failed count, or a program could answer the easy ones only: the score is lower
    by as much as fewer of them were filtered than of the published ones.
    """
    fresh = score_signals(runs, fresh_signals(seed))
    share = fresh.metrics["success_rate"] / published.metrics["success_rate"]
    return replace(fresh, score=fresh.score * min(1.0, share))


# GUIDE-BLOCK-START
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


def measure(filtered: Floats, signal: Signal) -> Measures:
    """Return what is measured on a filtered signal, whose first sample belongs to sample DELAY.

    Huge values count as the worst measure, or 0 where a measure is not defined.
    """
    clean = signal.clean[DELAY:]
    noisy = signal.noisy[DELAY:]
    with np.errstate(all="ignore"):
        changes = slope_changes(filtered)
        reversals = changes & ~slope_changes(clean)
        lag, average = tracking_errors(filtered, noisy)
        counts = float(np.sum(changes)), float(np.sum(reversals))
        return Measures(
            composite_score=composite(counts[0], lag, average, counts[1]),
            slope_changes=counts[0],
            lag_error=lag,
            avg_error=average,
            false_reversals=counts[1],
            correlation=correlation(filtered, clean),
            noise_reduction=noise_reduction(filtered, clean, noisy),
        )


def slope_changes(values: Floats) -> NDArray[np.bool_]:
    """Whether the slope changes its sign at each inner sample; leaving 0 is not a change."""
    signs = np.sign(np.diff(values))
    changes: NDArray[np.bool_] = (signs[1:] != signs[:-1]) & (signs[:-1] != 0)
    return changes


def tracking_errors(filtered: Floats, noisy: Floats) -> tuple[float, float]:
    """Return how far the filtered signal is from the noisy one: at the end, and on average."""
    distances = np.abs(filtered - noisy)
    return float(distances[-1]), float(np.mean(distances))


def composite(changes: float, lag: float, average: float, reversals: float) -> float:
    """Return the composite of slope changes, both errors and false reversals, in (0, 1]."""
    penalties = 0.3 * min(changes / 50, 2) + 0.2 * min(lag, 2)
    penalties += 0.2 * min(average, 2) + 0.3 * min(reversals / 25, 2)
    return 1 / (1 + penalties)


def correlation(filtered: Floats, clean: Floats) -> float:
    """Return the Pearson correlation, 0 where it is not defined."""
    value = float(np.corrcoef(filtered, clean)[0, 1])
    return value if np.isfinite(value) else 0.0


def noise_reduction(filtered: Floats, clean: Floats, noisy: Floats) -> float:
    """Return which share of the noise's variance is gone, 0 if there is more than before."""
    share = 1 - float(np.var(filtered - clean)) / float(np.var(noisy - clean))
    return max(0.0, share) if np.isfinite(share) else 0.0


# GUIDE-BLOCK-END
GUIDE_READS = (float_array,)


def _feedback(notes: Sequence[str]) -> dict[str, str]:
    return {"feedback": "\n".join(notes)} if notes else {}


def make_signals() -> list[Signal]:
    """The published test signals; signal i comes from the legacy generator with seed 42 + i."""
    randoms = [RandomState(FIRST_SEED + i) for i in range(NUM_SIGNALS)]
    third = len(TIMES[3]) // 3
    clean = [
        _sine_and_trend(TIMES[0], 2, 0.5, 0, 0.1),
        _sines(TIMES[1], [(1, 0.5, 0), (0.5, 2, 0), (0.2, 5, 0)]),
        _chirp(TIMES[2], 0.5, 0.2, 0),
        _steps(TIMES[3], [third, 2 * third], [1.0, 2.0, 0.5]),
        _random_walk(TIMES[4], randoms[4].randn(len(TIMES[4])), 0.05),
    ]
    return [
        Signal(each, each + random.normal(0, noise, len(each)))
        for each, random, noise in zip(clean, randoms, NOISE, strict=True)
    ]


def fresh_signals(seed: int) -> list[Signal]:
    """Signals of the same kinds, lengths and noise, whose shapes are drawn from a seed.

    There are `NUM_SETS` sets of five.
    """
    return [
        signal
        for random in np.random.default_rng(seed).spawn(NUM_SETS)
        for signal in _fresh_set(random)
    ]


def _fresh_set(random: Generator) -> list[Signal]:
    draw, turn = random.uniform, 2 * np.pi
    waves = [
        (amplitude * draw(0.8, 1.2), frequency * draw(0.8, 1.25), draw(0, turn))
        for amplitude, frequency in ((1, 0.5), (0.5, 2), (0.2, 5))
    ]
    length = len(TIMES[3])
    cuts = sorted(random.integers(length // 10, length - length // 10, 2).tolist())
    clean = [
        _sine_and_trend(TIMES[0], draw(1.5, 2.5), draw(0.4, 0.6), draw(0, turn), draw(-0.15, 0.15)),
        _sines(TIMES[1], waves),
        _chirp(TIMES[2], draw(0.4, 0.6), draw(0.15, 0.25), draw(0, turn)),
        _steps(TIMES[3], cuts, draw(0.3, 2.3, 3).tolist()),
        _random_walk(TIMES[4], random.standard_normal(len(TIMES[4])), draw(-0.1, 0.1)),
    ]
    return [
        Signal(each, each + random.normal(0, noise, len(each)))
        for each, noise in zip(clean, NOISE, strict=True)
    ]


def _sine_and_trend(
    t: Floats, amplitude: float, frequency: float, phase: float, slope: float
) -> Floats:
    return amplitude * np.sin(2 * np.pi * frequency * t + phase) + slope * t


def _sines(t: Floats, waves: Sequence[tuple[float, float, float]]) -> Floats:
    """The sum of sines given by amplitude, frequency and phase."""
    parts = [a * np.sin(2 * np.pi * frequency * t + phase) for a, frequency, phase in waves]
    return parts[0] + parts[1] + parts[2]


def _chirp(t: Floats, frequency: float, rise: float, phase: float) -> Floats:
    return np.sin(2 * np.pi * (frequency + rise * t) * t + phase)


def _steps(t: Floats, cuts: Sequence[int], levels: Sequence[float]) -> Floats:
    return np.repeat(levels, np.diff([0, *cuts, len(t)]))


def _random_walk(t: Floats, steps: Floats, slope: float) -> Floats:
    return np.cumsum(0.1 * steps) + slope * t


def calls_for(signals: Sequence[Signal]) -> list[dict[str, object]]:
    """The keyword arguments of one call per signal."""
    return [{"noisy_signal": signal.noisy, "window_size": WINDOW_SIZE} for signal in signals]


CALLS = calls_for(make_signals())
HOLDOUT = Holdout(
    calls=lambda seed: calls_for(fresh_signals(seed)), score=score_fresh, margin=MARGIN
)
