"""Digits and points of a piecewise linear sine, judged outside of the candidate's process."""

import numpy as np

LARGEST = 200


def score(output):
    """Both objectives; `problem.toml` says what they are worth together."""
    points = np.asarray(output, dtype=float)
    if points.ndim != 2 or points.shape[1] != 2 or not 2 <= len(points) <= LARGEST:
        raise ValueError(f"knots() has shape {points.shape}; expected 2 to {LARGEST} pairs (x, y)")
    x, y = points.T
    if not np.isfinite(points).all() or (np.diff(x) <= 0).any() or x[0] > 0 or x[-1] < 6.3:
        raise ValueError("expected finite points with ascending x, from 0 or less to 6.3 or more")
    places = np.linspace(0.0, 6.3, 5000)
    error = np.abs(np.interp(places, x, y) - np.sin(places)).max()
    return {"digits": -np.log10(max(error, 1e-12)), "points": len(points)}
