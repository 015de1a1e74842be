"""What an evaluator is, and how an objective becomes a score."""

from collections.abc import Callable
from math import isfinite

from costada.values.evaluation import Direction, Evaluation

Evaluator = Callable[[str], Evaluation]
"""Source text in, verdict out (F, Sec. 3). Deterministic, never a model."""


def normalize(objective: float, reference: float | None, direction: Direction) -> float:
    """Normalised score of an objective; higher is better (f_t, Sec. 3, App. H).

    The score is the objective's share of the reference, so reaching the reference scores 1
    and passing it scores more. A minimised objective is a positive quantity: its share is
    inverted, and values at or below 0 score 0.

    Args:
        objective: Value in benchmark units.
        reference: Positive objective that counts as 1; None leaves a maximised objective as is.
        direction: Which way the objective improves.

    Returns:
        A finite number; 0 for an objective or a share that is not finite.

    Raises:
        ValueError: If a minimised objective comes without a reference.
    """
    if direction is Direction.MINIMIZE:
        if reference is None:
            raise ValueError("reference is None; expected a number to divide by the objective")
        score = reference / objective if objective > 0 else 0.0
    else:
        score = objective if reference is None else objective / reference
    return float(score) if isfinite(objective) and isfinite(score) else 0.0
