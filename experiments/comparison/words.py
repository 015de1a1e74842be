"""Numbers of a comparison as a person reads them."""

from __future__ import annotations

from math import floor, log10

from costada.experiments.comparison.comparison import Section, Summary
from costada.experiments.comparison.metrics import CONFIDENCE, RESAMPLES, Interval

NOTHING = "-"
SMALLEST_PLAIN, LARGEST_PLAIN = 1e-4, 1e7
OBJECTIVE_DIGITS, STD_DIGITS = 5, 2

DEFINITIONS = {
    "Score and objective": "The score is normalised and higher is better; the objective is in the"
    " benchmark's own units.",
    "At q B": "The best candidate by score once the first iteration with at least the share q of"
    " the budget B charged was complete, and the objective of that candidate.",
    "AUC": "The best score so far, averaged over the cost from 0 to B. An iteration is charged"
    " before its score counts; a run that ended within the budget goes on flat.",
    "AvgCost and overshoot": "The dollars charged when the iteration that crossed the budget was"
    " complete, and the share of B by which they exceed B.",
    "±": "Sample standard deviation over runs (n - 1). An average over problems is the mean of the"
    " means of each problem.",
    f"{CONFIDENCE:.0%} interval": f"Percentile bootstrap of the mean ({RESAMPLES:,} resamples over"
    " seeds within each problem, fixed random seed; differences are paired by problem and seed)."
    " Few runs make it too narrow: of normally distributed values it covers the mean in about 76%"
    " of cases with three runs, 84% with five, 92% with ten. There is none for a single run.",
}
"""How to read a comparison. The coverage was measured over 2,000 samples of each size."""


def section_title(section: Section) -> str:
    """What is compared in a section, in a few words."""
    problems = section.problems
    what = problems[0] if len(problems) == 1 else f"mean of {len(problems)} problems"
    return f"{what}, {section.model}, {money(section.budget)}"


def money(dollars: float) -> str:
    """Dollars as a budget is given."""
    return f"${dollars:g}"


def objective(value: float, digits: int = OBJECTIVE_DIGITS) -> str:
    """An objective with so many significant digits."""
    if value == 0:
        return "0"
    if not SMALLEST_PLAIN <= abs(value) < LARGEST_PLAIN:
        return f"{value:.{digits - 1}e}"
    return f"{value:.{max(0, digits - 1 - floor(log10(abs(value))))}f}"


def objective_spread(summary: Summary | None) -> str:
    """Mean and sample standard deviation of an objective."""
    if summary is None:
        return NOTHING
    mean = objective(summary.mean)
    return mean if summary.std is None else f"{mean} ± {objective(summary.std, STD_DIGITS)}"


def score(value: float) -> str:
    """A normalised score, or an area under its curve."""
    return f"{value:.4f}"


def score_spread(summary: Summary | None) -> str:
    """Mean and sample standard deviation of normalised scores or areas."""
    if summary is None:
        return NOTHING
    mean = score(summary.mean)
    return mean if summary.std is None else f"{mean} ± {score(summary.std)}"


def score_interval(interval: Interval | None, sign: str = "") -> str:
    """The bounds of an interval of scores; the sign `+` shows signs."""
    if interval is None:
        return NOTHING
    return f"{interval.low:{sign}.4f} to {interval.high:{sign}.4f}"


def dollars(summary: Summary | None) -> str:
    """A mean of dollars."""
    return NOTHING if summary is None else f"${summary.mean:.4f}"


def percent(share: float | None) -> str:
    """A share in percent."""
    return NOTHING if share is None else f"{100 * share:.2f} %"
