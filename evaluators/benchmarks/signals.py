"""The five test signals of signal processing, and what is measured on a filtered one."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.random import Generator, RandomState
from numpy.typing import NDArray

from costada.evaluators.benchmarks.arrays import Floats

NUM_SIGNALS = 5
NUM_SETS = 3
"""Sets of five fresh signals in a second look: their mean varies less than that of one."""

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


TIMES = [np.linspace(0, DURATION, 500 + 100 * i) for i in range(NUM_SIGNALS)]
NOISE = [0.2 + 0.1 * i for i in range(NUM_SIGNALS)]
"""Standard deviation of each signal's noise."""


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
