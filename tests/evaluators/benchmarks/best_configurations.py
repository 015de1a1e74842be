"""The best configurations found for each benchmark, stored as coordinates."""

import json
from pathlib import Path

import numpy as np

FOLDER = Path(__file__).parent / "configurations"


def best_configuration(name):
    """Return the coordinates, one row per point or circle; see configurations/search.py."""
    return np.array(json.loads((FOLDER / f"{name}.json").read_text()))
