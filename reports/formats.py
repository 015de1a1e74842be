"""Numbers in words, the same in every report: counts, shares, dollars, times, objectives."""

from decimal import Decimal
from math import inf

MAX_COUNT = 10**9
MAX_SHARE, MAX_WRITTEN_SHARE = 1_000.0, 1e8
MIN_DOLLARS, MAX_DOLLARS = 1e-12, 1e12
UNITS = ((100, 1, "s"), (6000, 60, "min"), (inf, 3600, "h"))
"""Limit in seconds, seconds per unit, unit."""


def counted(number: int, thing: str) -> str:
    """A number of things: `1 run`, `2 runs`."""
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


def count(number: int) -> str:
    """A number with thousands separators, or with few digits above a billion."""
    return f"{number:,}" if number < MAX_COUNT else f"{number:g}"


def percent(share: float) -> str:
    """A share in percent: whole percents above 1,000 times, a bound above a hundred million."""
    if share < MAX_SHARE:
        return f"{share:.2%}"
    return f"{share:,.0%}" if share < MAX_WRITTEN_SHARE else f">{MAX_WRITTEN_SHARE:,.0%}"


def budget_text(dollars: float) -> str:
    """A budget with all its digits, except for extreme values: `$0.05`, `$0.000000001`."""
    if not MIN_DOLLARS <= dollars < MAX_DOLLARS:
        return f"${dollars:g}"
    return f"${Decimal(f'{dollars:.10g}'):f}"


def objective_text(objective: float | None) -> str:
    """An objective with six significant digits, `none` if there is none."""
    return "none" if objective is None else f"{objective:.6g}"


def short_dollars(amount: Decimal) -> str:
    """An amount with two significant digits, cents at least."""
    if amount == 0:
        return "$0"
    if amount < Decimal("0.0001"):
        return "<$0.0001"
    digits = 2 if amount >= Decimal("0.095") else 1 - amount.adjusted()
    return f"${amount:,.{digits}f}"


def duration(seconds: float) -> str:
    """A time in seconds, minutes or hours with two significant digits."""
    if seconds < 0.01:
        return "0 s" if seconds == 0 else "<0.01 s"
    size, unit = next((size, unit) for limit, size, unit in UNITS if seconds < limit)
    value = seconds / size
    digits = 0 if value >= 9.95 else 1 if value >= 0.95 else 2
    return f"{value:,.{digits}f} {unit}"


def clock(seconds: float) -> str:
    """A time as `2:05`, or `1:02:05` above an hour."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
