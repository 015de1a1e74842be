"""Places 11 points in an equilateral triangle; so far, all of them in one corner."""

import numpy as np

# EVOLVE-BLOCK-START


def heilbronn_triangle11():
    """Return an array (11, 2): x and y of each point."""
    points = np.zeros((11, 2))
    return points


# EVOLVE-BLOCK-END
