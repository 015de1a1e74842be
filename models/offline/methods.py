"""General searches over an array of numbers, as program text.

Each takes the array to start from, the functions that score an array (higher is better) and that
repair one, how often it may score, a step relative to the spread of the array, and a seed. None
knows what the numbers stand for.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Method:
    """A search written out as a function.

    Attributes:
        name: Name of the function.
        approach: The library function it rests on.
        step: Step to begin with, as a share of the spread of the array.
        text: The function.
        appetite: Evaluations it needs to begin with, as a multiple of what others do.
        needs: Import line it needs beside `import numpy as np`, or an empty text.
    """

    name: str
    approach: str
    step: float
    text: str
    appetite: int = 1
    needs: str = ""


_ARRAY = '''def array_search(start, objective, repair, evaluations, step, seed):
    """Shift the whole array at random; keep what scores higher."""
    rng = np.random.default_rng(seed)
    scale = step * (float(np.ptp(start)) or 1.0)
    best, best_value = start, objective(start)
    for _ in range(evaluations):
        trial = repair(best + rng.normal(0.0, scale, best.shape))
        value = objective(trial)
        if value > best_value:
            best, best_value = trial, value
    return best
'''

_ROW = '''def row_search(start, objective, repair, evaluations, step, seed):
    """Shift one row at a time at random; keep what scores higher."""
    rng = np.random.default_rng(seed)
    scale = step * (float(np.ptp(start)) or 1.0)
    best, best_value = start, objective(start)
    for _ in range(evaluations):
        trial = best.copy()
        row = rng.integers(len(trial))
        trial[row] += rng.normal(0.0, scale, trial[row].shape)
        trial = repair(trial)
        value = objective(trial)
        if value > best_value:
            best, best_value = trial, value
    return best
'''

_ANNEALING = '''def annealing(start, objective, repair, evaluations, step, seed):
    """Shift one row at a time; accept losses at first, then ever fewer of them."""
    rng = np.random.default_rng(seed)
    scale = step * (float(np.ptp(start)) or 1.0)
    here, here_value = start, objective(start)
    best, best_value = here, here_value
    for turn in range(evaluations):
        left = 1.0 - turn / evaluations
        trial = here.copy()
        row = rng.integers(len(trial))
        trial[row] += rng.normal(0.0, scale * left, trial[row].shape)
        trial = repair(trial)
        value = objective(trial)
        loss = here_value - value
        if loss <= 0 or rng.random() < np.exp(-loss / (0.01 * left**2 * abs(best_value) + 1e-12)):
            here, here_value = trial, value
        if value > best_value:
            best, best_value = trial, value
    return best
'''

_COMPASS = '''def compass_search(start, objective, repair, evaluations, step, seed):
    """Move single numbers up and down; shorten the step when nothing helps."""
    rng = np.random.default_rng(seed)
    scale = step * (float(np.ptp(start)) or 1.0)
    best, best_value = start, objective(start)
    places, used, failed = list(np.ndindex(start.shape)), 0, 0
    while used < evaluations:
        place = places[rng.integers(len(places))]
        for sign in (1.0, -1.0):
            trial = best.copy()
            trial[place] += sign * scale
            trial = repair(trial)
            value = objective(trial)
            used += 1
            if value > best_value:
                best, best_value, failed = trial, value, 0
                break
        else:
            failed += 1
        if failed >= len(places):
            scale, failed = 0.5 * scale, 0
    return best
'''

_RESTARTS = '''def restart_search(start, objective, repair, evaluations, step, seed):
    """Search row by row from the array and from random ones; keep the best end."""
    rng = np.random.default_rng(seed)
    scale = step * (float(np.ptp(start)) or 1.0)
    best, best_value = start, objective(start)
    starts = [start] + [rng.uniform(start.min(), start.max(), start.shape) for _ in range(2)]
    for here in map(repair, starts):
        here_value = objective(here)
        for _ in range(evaluations // len(starts)):
            trial = here.copy()
            row = rng.integers(len(trial))
            trial[row] += rng.normal(0.0, scale, trial[row].shape)
            trial = repair(trial)
            value = objective(trial)
            if value > here_value:
                here, here_value = trial, value
        if here_value > best_value:
            best, best_value = here, here_value
    return best
'''

_DESCENT = '''def gradient_search(start, objective, repair, evaluations, step, seed):
    """Follow the numerical gradient from a slightly shifted array."""
    rng = np.random.default_rng(seed)
    scale = step * (float(np.ptp(start)) or 1.0)
    shifted = start + rng.normal(0.0, scale, start.shape)
    found = optimize.minimize(
        lambda flat: -objective(repair(flat.reshape(start.shape))),
        shifted.ravel(),
        method="L-BFGS-B",
        options={"maxfun": evaluations},
    )
    end = repair(found.x.reshape(start.shape))
    return end if objective(end) > objective(start) else start
'''


METHODS = (
    Method("array_search", "numpy.random.Generator.normal", 0.03, _ARRAY),
    Method("row_search", "numpy.random.Generator.integers", 0.1, _ROW),
    Method("annealing", "numpy.exp", 0.07, _ANNEALING),
    Method("compass_search", "numpy.ndindex", 0.05, _COMPASS),
    Method("restart_search", "numpy.random.Generator.uniform", 0.1, _RESTARTS),
    Method(
        "gradient_search",
        "scipy.optimize.minimize",
        0.05,
        _DESCENT,
        appetite=10,
        needs="from scipy import optimize",
    ),
)


def method(name: str) -> Method | None:
    """Return the method whose function has that name."""
    return next((each for each in METHODS if each.name == name), None)
