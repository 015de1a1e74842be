"""Places 16 points in the plane; so far, at random around the origin."""

import numpy as np

# EVOLVE-BLOCK-START


def min_max_dist_dim2_16():
    """Return an array (16, 2): x and y of each point."""
    rng = np.random.RandomState(42)
    points = rng.standard_normal((16, 2))
    return points


# EVOLVE-BLOCK-END
