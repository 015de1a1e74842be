"""Your own problem: a task in words, an initial program, and a function that scores.

python examples/own_problem.py
"""

import numpy as np

from costada import Evaluation, Limits, OfflineModel, Problem, discover

NUM_POINTS = 6

INITIAL_PROGRAM = """
import numpy as np

# EVOLVE-BLOCK-START


def construct(n):
    points = np.zeros((n, 2))
    for i in range(n):
        points[i] = np.cos(0.9 * i), np.sin(0.9 * i)
    points = points / np.linalg.norm(points, axis=1, keepdims=True)
    first, second = np.triu_indices(n, 1)
    gap = np.min(np.linalg.norm(points[first] - points[second], axis=1))
    return points, gap


# EVOLVE-BLOCK-END


def place(n):
    return construct(n)[0]
"""


def score(points: object) -> Evaluation:
    """Distance of the two nearest points; 1 for the regular hexagon."""
    if not isinstance(points, np.ndarray) or points.shape != (NUM_POINTS, 2):
        raise ValueError(f"place must return an array of shape ({NUM_POINTS}, 2)")
    furthest = np.max(np.abs(np.linalg.norm(points, axis=1) - 1))
    if not furthest <= 1e-9:
        raise ValueError(f"a point is {furthest:.3g} off the circle")
    gaps = np.linalg.norm(points[:, None] - points, axis=2)[np.triu_indices(NUM_POINTS, 1)]
    return Evaluation(score=gaps.min(), objective=gaps.min(), is_valid=True)


circle = Problem(
    name="circle",
    task=f"Place {NUM_POINTS} points on the unit circle, the two nearest as far apart as possible.",
    initial_program=INITIAL_PROGRAM,
    entry_point="place",
    arguments={"n": NUM_POINTS},
    score=score,
    limits=Limits(wall_seconds=20, memory_mb=512),
)

print(f"before: {circle.evaluate(INITIAL_PROGRAM).objective:.4f}")
found = discover(circle, OfflineModel(), budget=0.05, seed=5)
print(f"after ${found.spent:.4f} and {found.iterations} steps: {found.best_objective:.4f}")
print(found.best_program)
