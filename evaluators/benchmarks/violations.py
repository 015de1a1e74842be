"""What happens where a constraint is missed: refused, or credited and said so."""

from collections.abc import Iterable

Violation = tuple[float, str]
"""By how much a constraint is missed, above 0, and which one it is."""

ROUNDING = 1e-12
"""Violations up to this size are the rounding of double precision and stay unmentioned."""
NUM_SHOWN = 5


def tolerance_notes(
    violations: Iterable[Violation], tolerance: float, *, what: str
) -> dict[str, str]:
    """Return a note under "tolerance" with the amount needed of it; no note if none is needed.

    Args:
        violations: All constraints that are missed.
        tolerance: How much is credited all the same.
        what: What is judged, such as "packing".

    Raises:
        ValueError: Listing the worst violations, if one of them exceeds the tolerance.
    """
    ordered = sorted(violations, reverse=True)
    broken = [text for amount, text in ordered if amount > tolerance]
    if broken:
        shown = "; ".join(broken[:NUM_SHOWN])
        rest = f"; and {len(broken) - NUM_SHOWN} more" if len(broken) > NUM_SHOWN else ""
        raise ValueError(f"invalid {what} (tolerance {tolerance:g}): {shown}{rest}")
    excess = ordered[0][0] if ordered else 0.0
    if excess <= ROUNDING:
        return {}
    return {"tolerance": f"the {what} is valid only within tolerance: it needs {excess:.3g}"}
