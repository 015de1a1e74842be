"""The five test signals of signal processing, and what is measured on a filtered one."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.random import RandomState
from numpy.typing import NDArray

from costada.evaluators.benchmarks.arrays import Floats

NUM_SIGNALS = 5
FIRST_SEED = 42
DURATION = 10.0
WINDOW_SIZE = 20
DELAY = WINDOW_SIZE - 1
"""Samples before the first one that a filter looking back over a whole window can give."""


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


def make_signals() -> list[Signal]:
    """Return the test signals; signal i comes from the legacy generator with seed 42 + i."""
    return [_make_signal(i, RandomState(FIRST_SEED + i)) for i in range(NUM_SIGNALS)]


def _make_signal(i: int, random: RandomState) -> Signal:
    shapes = (_sine_and_trend, _three_sines, _chirp, _steps, _random_walk)
    shape: Callable[[Floats, RandomState], Floats] = shapes[i]
    clean = shape(np.linspace(0, DURATION, 500 + 100 * i), random)
    noise = random.normal(0, 0.2 + 0.1 * i, len(clean))
    return Signal(clean, clean + noise)


def _sine_and_trend(t: Floats, random: RandomState) -> Floats:
    return 2 * np.sin(2 * np.pi * 0.5 * t) + 0.1 * t


def _three_sines(t: Floats, random: RandomState) -> Floats:
    slow, middle, fast = (np.sin(2 * np.pi * frequency * t) for frequency in (0.5, 2, 5))
    return slow + 0.5 * middle + 0.2 * fast


def _chirp(t: Floats, random: RandomState) -> Floats:
    return np.sin(2 * np.pi * (0.5 + 0.2 * t) * t)


def _steps(t: Floats, random: RandomState) -> Floats:
    third = len(t) // 3
    return np.repeat([1.0, 2.0, 0.5], [third, third, len(t) - 2 * third])


def _random_walk(t: Floats, random: RandomState) -> Floats:
    return np.cumsum(0.1 * random.randn(len(t))) + 0.05 * t


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
    """Return for each inner sample whether the slope changes its sign; leaving 0 is no change."""
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
