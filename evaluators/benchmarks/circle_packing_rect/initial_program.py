"""Packs 21 circles into a rectangle of perimeter 4; so far, all of them are points."""

import numpy as np

# EVOLVE-BLOCK-START


def circle_packing21():
    """Return an array (21, 3): x, y and radius of each circle."""
    circles = np.zeros((21, 3))
    return circles


# EVOLVE-BLOCK-END
