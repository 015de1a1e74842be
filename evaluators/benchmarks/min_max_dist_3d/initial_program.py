"""Places 14 points in space; so far, at random around the origin."""

import numpy as np

# EVOLVE-BLOCK-START


def min_max_dist_dim3_14():
    """Return an array (14, 3): x, y and z of each point."""
    rng = np.random.RandomState(42)
    points = rng.standard_normal((14, 3))
    return points


# EVOLVE-BLOCK-END
