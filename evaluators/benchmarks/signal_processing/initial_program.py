"""Filters a noisy signal with a window that slides over its samples."""

import numpy as np

# EVOLVE-BLOCK-START


def process_signal(x, window_size=20, algorithm="enhanced"):
    """Return the filtered signal, one value per full window: len(x) - window_size + 1."""
    x = np.asarray(x, dtype=float)
    if len(x) < window_size:
        raise ValueError(f"the signal has {len(x)} samples; expected at least {window_size}")
    if algorithm == "enhanced":
        return weighted_moving_average(x, window_size)
    return moving_average(x, window_size)


def moving_average(x, window_size):
    """Return the plain mean of each window."""
    return slide(x, np.full(window_size, 1 / window_size))


def weighted_moving_average(x, window_size):
    """Return the mean of each window with weights that grow exponentially towards its end."""
    weights = np.exp(np.linspace(-2, 0, window_size))
    return slide(x, weights / np.sum(weights))


def slide(x, weights):
    """Return the weighted sum of each window; the last weight is for the newest sample."""
    return np.convolve(x, weights[::-1], mode="valid")


# EVOLVE-BLOCK-END


def run_signal_processing(noisy_signal, window_size=20):
    """Return the filtered signal, as the evaluator expects it."""
    return {"filtered_signal": process_signal(noisy_signal, window_size, "enhanced")}
