"""Places 13 points in the plane; so far, at random in the unit square."""

import numpy as np

# EVOLVE-BLOCK-START


def heilbronn_convex13():
    """Return an array (13, 2): x and y of each point."""
    rng = np.random.default_rng(42)
    points = rng.random((13, 2))
    return points


# EVOLVE-BLOCK-END
