"""Packs 26 circles into the unit square: one in the middle, two rings around it."""

import numpy as np

# EVOLVE-BLOCK-START


def construct_packing():
    """Return the centers (26, 2) and radii (26,) of the packing."""
    centers = np.zeros((26, 2))
    centers[0] = (0.5, 0.5)
    centers[1:9] = ring(8, 0.3)
    centers[9:25] = ring(16, 0.7)
    centers = np.clip(centers, 0.01, 0.99)
    return centers, compute_max_radii(centers)


def ring(count, radius):
    """Return count points at equal angles on a circle around the middle of the square."""
    angles = 2 * np.pi * np.arange(count) / count
    return np.column_stack((0.5 + radius * np.cos(angles), 0.5 + radius * np.sin(angles)))


def compute_max_radii(centers):
    """Return radii that keep every circle inside the square and apart from all others."""
    radii = np.minimum(centers, 1 - centers).min(axis=1)
    for i in range(len(centers)):
        for j in range(i + 1, len(centers)):
            distance = np.sqrt(np.sum((centers[i] - centers[j]) ** 2))
            if radii[i] + radii[j] > distance:
                radii[[i, j]] *= distance / (radii[i] + radii[j])
    return radii


# EVOLVE-BLOCK-END


def run_packing():
    """Return centers, radii and the sum of the radii, as the evaluator expects them."""
    centers, radii = construct_packing()
    return centers, radii, np.sum(radii)
