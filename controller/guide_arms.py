"""Guides that must earn their price: steps with and without a tactic as two arms of a bandit.

An arm earns credit when one of its steps raises the incumbent, and pays for all calls of its steps,
guides included. A guide is bought with the chance that the arm with tactics brings more credit per
dollar: Thompson sampling for arms that cost money (Xia et al. 2015, "Thompson Sampling for
Budgeted Multi-armed Bandits"), with Poisson arrivals of credit and Gamma posteriors of their rates.
Of two such rates the chance is known in closed form, so that the decision needs one toss.

Gains become rare as a search goes on, and first without tactics. Older steps are therefore
discounted (Raj and Kalyani 2017, "Taming Non-stationary Bandits").
"""

from dataclasses import dataclass, replace
from math import exp, lgamma, log, log1p
from typing import Self

from costada.controller.arms import next_scale, scaled_gain
from costada.controller.constants import Constants

PRIOR_CREDIT = {True: 1.0, False: 1.0}
"""Credit that the prior counts as, with a tactic (True) and without (a)."""

PRIOR_DOLLARS = {True: 0.67, False: 0.25}
"""Dollars that this credit cost (b): 1.5 and 4 credit per dollar, as simulated runs brought in the
first 15 % of $1.00 in the credible recorded worlds, seeds 0 to 11 (docs/results/guides.md)."""

WEIGHT = 1.0
"""How often each step counts in the posterior (w)."""

KEPT = 0.95
"""Share of credit and dollars that is kept when another step lands."""


@dataclass(frozen=True, slots=True)
class ArmRecord:
    """What the steps of an arm have earned and cost, older ones discounted.

    Attributes:
        credit: Sum of their credit, each in [0, 1] (S).
        dollars: What they cost (D).
    """

    credit: float = 0.0
    dollars: float = 0.0

    def after_step(self, credit: float = 0.0, dollars: float = 0.0) -> Self:
        """The record after a step of this arm, or without arguments after one of the other arm."""
        return replace(
            self, credit=KEPT * self.credit + credit, dollars=KEPT * self.dollars + dollars
        )


NO_STEPS = ArmRecord()


@dataclass(frozen=True, slots=True)
class GuideArms:
    """Both arms, and when the next choice between them is due.

    Attributes:
        guided: Steps with a tactic.
        unguided: Steps without one.
        scale: The usual gain of a step that gains, 0 before the first (s).
        wait: Steps until the next choice: an arm that is chosen is used for as many steps as a
            guide has tactics to use.
    """

    guided: ArmRecord = NO_STEPS
    unguided: ArmRecord = NO_STEPS
    scale: float = 0.0
    wait: int = 0

    def after_step(self, global_gain: float, dollars: float, *, is_guided: bool) -> Self:
        """The arms after a step with or without a tactic.

        Args:
            global_gain: What it gained over the incumbent (g_t).
            dollars: What it cost, its guide included (c_t).
            is_guided: Which arm it belongs to.
        """
        credit = scaled_gain(global_gain, self.scale or global_gain)
        paid, idle = (credit, dollars), (0.0, 0.0)
        return replace(
            self,
            guided=self.guided.after_step(*(paid if is_guided else idle)),
            unguided=self.unguided.after_step(*(idle if is_guided else paid)),
            scale=next_scale(self.scale, global_gain) if global_gain else self.scale,
            wait=max(self.wait - 1, 0),
        )

    def after_choice(self, constants: Constants) -> Self:
        """The arms once one of them was chosen."""
        return replace(self, wait=constants.uses_per_guide)

    @property
    def chance_of_guide(self) -> float:
        """The chance that steps with a tactic bring more credit per dollar, in [0, 1].

        The rate of each arm has a Gamma distribution of shape `a + w S` and rate `b + w D`.
        """
        return chance_of_higher_rate(
            PRIOR_CREDIT[True] + WEIGHT * self.guided.credit,
            PRIOR_DOLLARS[True] + WEIGHT * self.guided.dollars,
            PRIOR_CREDIT[False] + WEIGHT * self.unguided.credit,
            PRIOR_DOLLARS[False] + WEIGHT * self.unguided.dollars,
        )


NO_ARMS = GuideArms()


def chance_of_higher_rate(
    shape: float, rate: float, other_shape: float, other_rate: float
) -> float:
    """The chance that one Gamma variable exceeds another one.

    Scaled by their rates, the share of the first in the sum of both has a Beta distribution.

    Args:
        shape: Shape of the first one, above 0.
        rate: Its rate, above 0.
        other_shape: Shape of the other one, above 0.
        other_rate: Its rate, above 0.
    """
    return beta_distribution(other_rate / (rate + other_rate), other_shape, shape)


def beta_distribution(x: float, a: float, b: float) -> float:
    """The chance that a Beta variable is below x (the regularized incomplete beta function).

    By its continued fraction (DLMF 8.17.22), evaluated by Lentz's method from the front.
    """
    if not 0.0 < x < 1.0:
        return float(x >= 1.0)
    if x > (a + 1.0) / (a + b + 2.0):  # where the fraction of the complement converges fast
        return 1.0 - beta_distribution(1.0 - x, b, a)
    front = exp(a * log(x) + b * log1p(-x) + lgamma(a + b) - lgamma(a) - lgamma(b)) / a
    # ratios of successive numerators, and of denominators upside down
    numerators, denominators, fraction = 1.0, 0.0, 1.0
    for index in range(1, MAX_TERMS):
        term = _beta_term(index, x, a, b)
        denominators = 1.0 / ((1.0 + term * denominators) or TINY)
        numerators = (1.0 + term / numerators) or TINY
        change = numerators * denominators
        fraction *= change
        if abs(change - 1.0) < PRECISION:
            break
    return front / fraction


def _beta_term(index: int, x: float, a: float, b: float) -> float:
    """The coefficient of the continued fraction 1 + d_1 / (1 + d_2 / (1 + ...))."""
    m = index // 2
    if index % 2:
        return -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
    return m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))


MAX_TERMS, PRECISION, TINY = 1000, 1e-14, 1e-300
"""Most terms of the fraction, the relative change that ends it, and a stand-in for 0."""
