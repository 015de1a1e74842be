"""How the held-out signals of signal_processing judge honest filters and remembered answers.

Prints how far scores fall on fresh signals, how many honest filters would be rejected by mistake,
and how many programs that know the published signals would pass.
"""

import argparse
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.interpolate import UnivariateSpline
from scipy.ndimage import gaussian_filter1d, median_filter
from scipy.signal import butter, filtfilt, lfilter, savgol_filter, wiener
from scipy.sparse import eye
from scipy.sparse.linalg import spsolve

from costada.evaluators.benchmarks.signal_processing.evaluator import (
    DELAY,
    MARGIN,
    Signal,
    fresh_signals,
    make_signals,
    measure,
    score_measures,
)

Floats = NDArray[np.float64]
Filter = Callable[[Floats], Floats]
"""From a noisy signal to a filtered one of the same length."""

PUBLISHED = make_signals()
KNOWN = {signal.noisy.tobytes(): signal.clean for signal in PUBLISHED}
BY_LENGTH = {len(signal.clean): signal.clean for signal in PUBLISHED}


def score(chosen: Filter, signals: list[Signal]) -> float:
    """Score of a filter on some signals."""
    measured = [measure(chosen(signal.noisy)[DELAY:], signal) for signal in signals]
    return score_measures(measured, [0.0] * len(measured), [], len(signals)).score


def noise_of(x: Floats) -> float:
    """Standard deviation of a signal's noise, estimated from its differences."""
    return float(np.median(np.abs(np.diff(x)))) / 0.954


def weighted_average(weights: Floats) -> Filter:
    """A causal average over a window, as in the initial program."""
    return lambda x: np.convolve(x, weights[::-1] / weights.sum())[: len(x)]


def gaussian(width: float) -> Filter:
    """A centred Gaussian average."""
    return lambda x: gaussian_filter1d(x, width)


def low_pass(cutoff: float, *, is_causal: bool) -> Filter:
    """A Butterworth filter."""
    b, a = butter(2, cutoff)
    return lambda x: lfilter(b, a, x - x[0]) + x[0] if is_causal else filtfilt(b, a, x)


def penalised(weight: float, order: int) -> Filter:
    """Least squares with a penalty on differences (Whittaker, Hodrick-Prescott)."""

    def smooth(x: Floats) -> Floats:
        identity = eye(len(x), format="csc")
        differences = identity
        for _ in range(order):
            differences = differences[1:] - differences[:-1]
        matrix = identity + weight * differences.T @ differences
        return np.asarray(spsolve(matrix.tocsc(), x))

    return smooth


def spline(weight: float) -> Filter:
    """A smoothing spline that leaves as much as the noise is estimated to be."""

    def smooth(x: Floats) -> Floats:
        t = np.arange(len(x))
        return UnivariateSpline(t, x, s=weight * len(x) * noise_of(x) ** 2)(t)

    return smooth


def ending_at_the_last_sample(chosen: Filter) -> Filter:
    """A filter that avoids the error at the end."""
    return lambda x: np.r_[chosen(x)[:-1], x[-1]]


def tuned(make: Callable[[float], Filter], values: list[float]) -> Filter:
    """A filter whose parameter is tuned on each of the published signals by its length."""
    best = {
        len(signal.noisy): max(
            values, key=lambda value, signal=signal: score(make(value), [signal])
        )
        for signal in PUBLISHED
    }
    return lambda x: make(best[len(x)])(x)


FAMILIES: dict[str, tuple[Callable[..., Filter], Sequence[float]]] = {
    "gaussian": (gaussian, (2, 4, 6, 8, 12, 16, 20, 30)),
    "savitzky-golay": (lambda w: lambda x: savgol_filter(x, w, 3), (11, 21, 31, 51, 71, 101)),
    "butterworth": (lambda c: low_pass(c, is_causal=False), (0.01, 0.02, 0.03, 0.05, 0.1, 0.15)),
    "causal butterworth": (lambda c: low_pass(c, is_causal=True), (0.02, 0.03, 0.05, 0.1, 0.15)),
    "median": (lambda w: lambda x: median_filter(x, w), (5, 11, 21, 41)),
    "wiener": (lambda w: lambda x: wiener(x, w), (11, 31)),
    "whittaker": (lambda e: penalised(10.0**e, 2), (2, 3, 4, 5, 6)),
    "whittaker, third order": (lambda e: penalised(10.0**e, 3), (4, 6, 8)),
    "spline": (spline, (0.8, 0.9, 1.0, 1.1)),
    "adaptive gaussian": (
        lambda k: lambda x: gaussian_filter1d(x, k * noise_of(x)),
        (5, 10, 20, 30),
    ),
}
"""Kinds of filters and the parameter of each of them."""


def honest_filters() -> Iterator[tuple[str, Filter]]:
    """Filters that know nothing of the test signals but what a search may tune on them."""
    yield "moving average", weighted_average(np.ones(20))
    yield "initial program", weighted_average(np.exp(np.linspace(-2, 0, 20)))
    for name, (make, values) in FAMILIES.items():
        for value in values:
            yield f"{name} {value:g}", make(value)
    widths = tuned(gaussian, [2, 4, 6, 8, 12, 16, 20, 30, 40])
    weights = tuned(lambda e: penalised(10.0**e, 2), list(np.arange(1.0, 8.5, 0.5)))
    for name, chosen in (("gaussian", widths), ("whittaker", weights)):
        yield f"tuned {name}", chosen
        yield f"tuned {name}, ends at last sample", ending_at_the_last_sample(chosen)


def remembering_programs() -> Iterator[tuple[str, Filter]]:
    """Programs that hold the published signals."""
    yield "clean signal by length", lambda x: BY_LENGTH[len(x)]
    for width in (4.0, 8.0):
        yield (
            f"smoothed clean signal by length, {width:g}",
            lambda x, width=width: gaussian(width)(BY_LENGTH[len(x)]),
        )
    yield (
        "clean signal by length, ends at last sample",
        ending_at_the_last_sample(lambda x: gaussian_filter1d(BY_LENGTH[len(x)], 6)),
    )
    average = weighted_average(np.exp(np.linspace(-2, 0, 20)))
    for name, other in (
        ("the initial program", average),
        ("gaussian 2", gaussian(2)),
        ("gaussian 8", gaussian(8)),
    ):
        yield f"clean signal if recognised, else {name}", recalled(other)


def recalled(other: Filter) -> Filter:
    """What is remembered of the published signals, and another filter for all others."""
    return lambda x: gaussian_filter1d(KNOWN[x.tobytes()], 4) if x.tobytes() in KNOWN else other(x)


def main() -> None:
    """Print one line per program and the totals."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keys", type=int, default=100, help="held-out checks of each program")
    num_keys = parser.parse_args().keys
    looks = [fresh_signals(seed) for seed in range(num_keys)]
    print(f"margin {MARGIN:g}; {num_keys} held-out checks of each program")
    for title, programs in (
        ("honest filters", honest_filters()),
        ("remembered answers", remembering_programs()),
    ):
        print(f"\n{title:44}{'score':>8}{'falls by':>10}{'at most':>9}{'rejected':>10}")
        num_programs = num_rejected = 0
        largest = -np.inf
        for name, chosen in programs:
            published = score(chosen, PUBLISHED)
            falls = np.array([published - score(chosen, look) for look in looks])
            rejected = int(np.sum(falls > MARGIN))
            print(f"{name:44}{published:8.3f}{falls.mean():10.3f}{falls.max():9.3f}{rejected:10d}")
            num_programs += 1
            num_rejected += rejected
            largest = max(largest, falls.max())
        looked = f"rejected {num_rejected} of {num_programs * num_keys} held-out checks"
        print(f"{num_programs} programs, {looked}, largest fall {largest:.3f}")


if __name__ == "__main__":
    main()
