"""When money stops buying: the chance that a run improves once more with what is left of it.

The model, in dollars, as steps of different models and tiers differ in price:

- *Observed.* When the best score last rose, by more than the threshold of progress (eps_g), the run
  had spent `G` dollars. It has spent `C` now, so `w = C - G` dollars brought nothing.
- *Prior.* After a gain, the next one comes at a constant, unknown rate per dollar until it has
  come. The rate has a Gamma distribution of shape `a = 2` and rate parameter `s = 2 c + G / 2`
  dollars, where `c` is the mean cost of a step so far. Its mean `a / s` falls as `4 / (4 c + G)`:
  the more money the best program took, the rarer is a better one, as for the records of a series
  of draws.
- *Posterior.* Nothing in `w` dollars makes it a Gamma distribution with `a` and `s + w`.
- *Chance.* Another gain within `r` dollars misses with probability `((s + w) / (s + w + r)) ** a`,
  the mean of `exp(-rate * r)`. `r` is what is left of the budget, or what the iterations that are
  left cost at `c` each, whichever is less.

Shape and scale were set on simulated runs. In runs of CostAda, $1 each, the chance differs from how
often a gain followed by at most 0.06 on the landscape. In the recorded world it is too high in the
middle of its range: where it is 0.75 on average, a gain followed in 0.62 to 0.68 of cases by the
seeds, and where it is 0.55, in 0.41. A gain counts whatever its size.
"""

from math import pow

from costada.controller.constants import Constants
from costada.controller.credit import made_progress
from costada.controller.money import Balance

SHAPE = 2.0
"""Shape of the prior of the rate of gains (a)."""

STEPS_SCALE, SPENT_SCALE = 2.0, 0.5
"""Weights of the mean step cost and of the dollars up to the last gain in the prior's scale (s)."""


def spent_at_gain(before: float, spent: float, global_gain: float, constants: Constants) -> float:
    """Dollars spent when the best score last rose (G), after a step.

    Args:
        before: The same before the step; 0 if there was no gain.
        spent: Dollars spent after the step (C).
        global_gain: What the step gained over the incumbent (g_t).
        constants: Source of the threshold of progress.
    """
    return spent if made_progress(global_gain, constants) else before


def chance_of_gain(
    balance: Balance, gained_at: float, iterations: int, constants: Constants
) -> float:
    """Chance that the best score rises once more in the run, in [0, 1].

    Args:
        balance: Budget and spending after the last step.
        gained_at: Dollars spent when the best score last rose (G), 0 without a gain.
        iterations: Iterations completed, at least 1.
        constants: Source of the iteration limit.
    """
    step_cost = balance.spent / iterations
    payable = (constants.max_iterations - iterations) * step_cost
    left = max(0.0, min(balance.budget - balance.spent, payable))
    if left == 0.0:
        return 0.0
    scale = STEPS_SCALE * step_cost + SPENT_SCALE * gained_at
    waited = scale + balance.spent - gained_at
    return 1.0 - pow(waited / (waited + left), SHAPE)


def is_flat(
    threshold: float | None,
    balance: Balance,
    gained_at: float,
    iterations: int,
    constants: Constants,
) -> bool:
    """Whether a further gain is less likely than the threshold.

    Never without a threshold, nor where nothing is left: then budget or iterations end the run.
    """
    if threshold is None or iterations == 0:
        return False
    return 0.0 < chance_of_gain(balance, gained_at, iterations, constants) < threshold
