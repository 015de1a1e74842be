"""The best configurations found for each benchmark, as coordinates.

Found by solving the nonlinear programs (sequences of linear programs for the packings, SLSQP for
the others) from random and annealed starts.
"""

import json
from pathlib import Path

import numpy as np

FOLDER = Path(__file__).parent / "configurations"


def best_configuration(name):
    """The coordinates, one row per point or circle."""
    return np.array(json.loads((FOLDER / f"{name}.json").read_text()))
