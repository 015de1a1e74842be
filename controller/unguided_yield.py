"""What steps without a tactic bring per dollar: the evidence of the learned rule for guides.

Where guides are learned, low yield buys none while these steps still pay; stagnation does as in the
paper. Credit is what steps without a tactic gain over the incumbent, in usual gains. The rate of
credit per dollar has a Gamma prior with Poisson arrivals, as in bandits whose arms cost money (Xia
et al. 2015, "Thompson Sampling for Budgeted Multi-armed Bandits"). Gains become rare as a search
goes on, so older steps are discounted (Raj and Kalyani 2017, "Taming Non-stationary Bandits").
"""

from dataclasses import dataclass, replace
from typing import Self

from costada.controller.arms import next_scale, scaled_gain

PRIOR_CREDIT, PRIOR_DOLLARS = 1.0, 0.25
"""Credit that the prior counts as and what it cost (a, b): 4 credit per dollar, as simulated runs
brought in the first 15 % of $1.00 in the credible recorded worlds (docs/results/guides.md)."""

MIN_RATE = 3.0
"""Credit per dollar from which on steps without a tactic pay: below it, guides at low yield paid in
some of these worlds (docs/results/guides.md)."""

KEPT = 0.95
"""Share of credit and dollars that is kept when another step lands."""


@dataclass(frozen=True, slots=True)
class UnguidedYield:
    """What steps without a tactic have earned and cost, older ones discounted.

    Attributes:
        credit: Sum of their credit, each in [0, 1] (S).
        dollars: What they cost (D).
        scale: The usual gain of a step that gains, guided ones included; 0 before the first (s).
    """

    credit: float = 0.0
    dollars: float = 0.0
    scale: float = 0.0

    def after_step(self, global_gain: float, dollars: float, *, is_guided: bool) -> Self:
        """The yield after a step.

        Args:
            global_gain: What the step gained over the incumbent (g_t).
            dollars: What it cost (c_t).
            is_guided: Whether it followed a tactic or paid for a guide.
        """
        credit = scaled_gain(global_gain, self.scale or global_gain)
        return replace(
            self,
            credit=KEPT * self.credit + (0.0 if is_guided else credit),
            dollars=KEPT * self.dollars + (0.0 if is_guided else dollars),
            scale=next_scale(self.scale, global_gain) if global_gain else self.scale,
        )

    @property
    def pays(self) -> bool:
        """Whether the expected credit per dollar, (a + S) / (b + D), is high enough."""
        return (PRIOR_CREDIT + self.credit) / (PRIOR_DOLLARS + self.dollars) >= MIN_RATE


NO_STEPS = UnguidedYield()
