"""Points as evenly apart as possible: what both such benchmarks, in 2 and 3 dimensions, share."""

from sys import float_info

import numpy as np

from costada.evaluators.benchmarks.arrays import Floats, float_array
from costada.evaluators.benchmarks.geometry import scaled
from costada.evaluators.contract import normalize
from costada.evaluators.sandbox.limits import MEBIBYTE, Limits
from costada.evaluators.sandbox.wire import Value
from costada.values.evaluation import Direction, Evaluation

LIMITS = Limits(wall_seconds=360.0, memory_mb=1024, result_bytes=MEBIBYTE)
SOURCE = "CostAda, App. H; AlphaEvolve (arXiv:2506.13131), App. B"


def score_points(output: Value, shape: tuple[int, int], reference: float) -> Evaluation:
    """Return the verdict on points of the shape given, anywhere and of any scale.

    The objective is (dmax/dmin)^2, of the largest and the smallest distance of two points; the
    metric min_max_ratio is its reciprocal.

    Raises:
        ValueError: If the answer has another form, or the objective would not be finite.
    """
    points = float_array(output, "points", shape)
    ratio = squared_ratio(points)
    return Evaluation(
        score=normalize(1 / ratio, reference, Direction.MINIMIZE),
        objective=1 / ratio,
        is_valid=True,
        metrics={"min_max_ratio": ratio},
    )


def squared_ratio(points: Floats) -> float:
    """Return (dmin/dmax)^2, in (0, 1].

    The points are first scaled by a power of 2, which is exact and keeps squares in range.

    Raises:
        ValueError: Naming two points that coincide, or nearly so next to the largest distance.
    """
    small = scaled(points)
    first, second = np.triu_indices(len(points), 1)
    distances = np.sqrt(np.sum((small[first] - small[second]) ** 2, axis=1))
    closest, largest = int(np.argmin(distances)), float(np.max(distances))
    share = float(distances[closest]) / largest if largest > 0 else 0.0
    if share**2 < float_info.min:
        pair = f"points {first[closest]} and {second[closest]} coincide, or nearly so"
        raise ValueError(f"{pair}: their distance is {share:.3g} of the largest; expected above 0")
    return share**2
