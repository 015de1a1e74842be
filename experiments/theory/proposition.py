"""Simulates the paper's proposition with the allocation code that runs use.

K frontiers gain the same in every step. One of them costs c a step, the others kappa c, and the
budget B pays for B/c cheap steps. OPT takes them all on the cheap frontier. A step counts when
the budget paid for it in full, so the step that crosses the budget does not.

A method that does not look at cost makes the same choices wherever the cheap frontier is. Of its
first B/c choices a share of 1/K is cheap on average over the K places, and B pays for at most
B / (kappa c) expensive steps: on average it obtains at most 1/K + 1/kappa of OPT.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from random import Random

from costada.controller.baselines.evox import EvoX
from costada.controller.constants import Constants
from costada.controller.costada import CostAda
from costada.controller.method import Guided, PaidStep
from costada.controller.methods import METHODS, Method
from costada.controller.money import Balance

SEED_SCORE = 0.1
TOTAL_GAIN = 0.8
"""What OPT gains; scores stay below 1, so that a normalised gain is a difference of scores."""

NUM_URNS = 20
"""Random draws over which the share of a random policy is averaged."""

RANKING = "ranking"
SMALL_BONUS, SMALL_BONUS_NO_COST = "small-bonus", "small-bonus-no-cost"
"""Diagnoses: `costada` and `no-cost-calibration` with a bonus of the size of a gain."""


@dataclass(frozen=True, slots=True)
class Instance:
    """One case of the proposition."""

    num_frontiers: int  # frontiers (K)
    cost_ratio: int  # cost of all but one of them, as a multiple of the cheap one (kappa)
    num_steps: int  # steps that the budget buys on the cheap one (B/c)

    @property
    def bound(self) -> float:
        """The share of OPT that no cost-blind choice exceeds (1/K + 1/kappa)."""
        return 1 / self.num_frontiers + 1 / self.cost_ratio

    @property
    def gain(self) -> float:
        """By how much every step raises the best score (g)."""
        return TOTAL_GAIN / self.num_steps

    @property
    def constants(self) -> Constants:
        """The constants of a run; a cheap step costs the reference cost (c = c-bar)."""
        return Constants(num_frontiers=self.num_frontiers, max_iterations=self.num_steps + 1)

    def price(self, frontier: int, cheap: int) -> int:
        """What a step costs, in cheap steps."""
        return 1 if frontier == cheap else self.cost_ratio


@dataclass(frozen=True, slots=True)
class Course:
    """What a policy did with one budget."""

    choices: tuple[int, ...]  # frontiers of the steps that were paid for in full
    num_guides: int = 0  # guides that were due; each was answered with nothing, at no cost


Spend = Callable[[Instance, int], Sequence[Course]]
"""Takes an instance and the cheap frontier; returns one course, or several random ones."""


@dataclass(frozen=True, slots=True)
class Policy:
    """A way to choose frontiers."""

    name: str  # what the tables call it
    is_cost_blind: bool  # whether it may not know what a step costs or what is left
    is_method: bool  # whether runs can use it; the others are there for comparison
    spend: Spend


@dataclass(frozen=True, slots=True)
class Share:
    """What part of OPT a policy obtains, over all places of the cheap frontier, in [0, 1]."""

    mean: float
    worst: float
    num_guides: int


@dataclass(frozen=True, slots=True)
class Finding:
    """All policies on one instance."""

    instance: Instance
    shares: dict[str, Share]


def share_of_opt(policy: Policy, instance: Instance) -> Share:
    """The policy's part of OPT, every place of the cheap frontier played once."""
    places = [policy.spend(instance, cheap) for cheap in range(instance.num_frontiers)]
    num_steps = [sum(len(course.choices) for course in courses) for courses in places]
    best = instance.num_steps * len(places[0])
    num_guides = sum(course.num_guides for courses in places for course in courses)
    return Share(sum(num_steps) / (best * len(places)), min(num_steps) / best, num_guides)


def findings(
    frontiers: Sequence[int], cost_ratios: Sequence[int], num_steps: Sequence[int]
) -> list[Finding]:
    """All policies on every instance of a grid."""
    grid = [Instance(*values) for values in product(frontiers, cost_ratios, num_steps)]
    return [
        Finding(instance, {policy.name: share_of_opt(policy, instance) for policy in POLICIES})
        for instance in grid
    ]


def spend_by_method(
    method: Method, change: Callable[[Instance], Constants], instance: Instance, cheap: int
) -> Sequence[Course]:
    """How a method's own controller spends the budget, with the constants that `change` gives.

    Archives play no part: there is no migration, and no frontier is added.
    """
    cost = instance.constants.reference_cost
    constants, budget = method.adjusted(change(instance)), instance.num_steps * cost
    controller = method.start(SEED_SCORE, constants)
    rng, choices, spent, num_guides = Random(0), [], 0, 0
    while spent < instance.num_steps:
        if controller.pending is not None and isinstance(controller, Guided):
            controller, num_guides = controller.fail_guide(), num_guides + 1
        allocation = controller.ask(Balance(budget, spent * cost), rng, constants)
        price = instance.price(allocation.frontier, cheap)
        spent += price
        choices.append(allocation.frontier)
        score = SEED_SCORE + instance.gain * len(choices)
        balance = Balance(budget, spent * cost)
        step = PaidStep(score, is_kept=True, cost=price * cost)
        controller, _ = controller.tell(allocation, step, balance, constants)
        controller, _ = controller.decide(allocation, balance, constants)
    return (Course(_paid(choices, spent, instance), num_guides),)


def spend_by_ranking(instance: Instance, cheap: int) -> Sequence[Course]:
    """Spend the budget by the policy of the proof: each frontier once, then the best ratio.

    The ratio is the observed gain per cost; the lowest index wins a tie.
    """
    ratios: list[float] = []
    choices: list[int] = []
    spent = 0
    while spent < instance.num_steps:
        is_trying = len(ratios) < instance.num_frontiers
        frontier = len(ratios) if is_trying else ratios.index(max(ratios))
        price = instance.price(frontier, cheap)
        if is_trying:
            ratios.append(instance.gain / price)
        spent += price
        choices.append(frontier)
    return (Course(_paid(choices, spent, instance)),)


def spend_by_urn(instance: Instance, cheap: int) -> Sequence[Course]:
    """Spend the budget by the initial strategy of EvoX, over several random draws.

    It has no frontiers and draws the parent uniformly from all programs. Here every program
    belongs to the frontier of its parent, and each frontier starts with one.
    """
    courses = []
    for draw in range(NUM_URNS):
        rng, programs, spent = Random(draw), list(range(instance.num_frontiers)), 0
        while spent < instance.num_steps:
            frontier = rng.choice(programs)
            programs.append(frontier)
            spent += instance.price(frontier, cheap)
        courses.append(Course(_paid(programs[instance.num_frontiers :], spent, instance)))
    return courses


def _paid(choices: list[int], spent: int, instance: Instance) -> tuple[int, ...]:
    """The choices without the last one if the budget did not cover it."""
    return tuple(choices if spent <= instance.num_steps else choices[:-1])


def _usual(instance: Instance) -> Constants:
    return instance.constants


def _with_small_bonus(instance: Instance) -> Constants:
    """Constants whose optimism is as large as the gain of a step; no run uses them."""
    return replace(instance.constants, optimism_scale=instance.gain)


def _policy(method: Method) -> Policy:
    played = partial(spend_by_method, method, _usual)
    spend = spend_by_urn if method.kind is EvoX else played
    return Policy(method.name, method.kind is not CostAda, True, spend)


def _diagnosis(name: str, method: str) -> Policy:
    spend = partial(spend_by_method, METHODS[method], _with_small_bonus)
    return Policy(name, False, False, spend)


POLICIES = (
    Policy(RANKING, False, False, spend_by_ranking),
    *map(_policy, METHODS.values()),
    _diagnosis(SMALL_BONUS, "costada"),
    _diagnosis(SMALL_BONUS_NO_COST, "no-cost-calibration"),
)
