"""The policies that play a game: every method with its own controller, and rules for comparison."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from math import inf, log, sqrt
from random import Random

from costada.controller.arms import Arm, ModelOption, ModelRecord, Money, Rule
from costada.controller.constants import Constants
from costada.controller.costada import CostAda
from costada.controller.credit import Balance
from costada.controller.method import Guided, PaidStep, ParentRule
from costada.controller.methods import METHODS, Method
from costada.controller.router_rules import DEFAULT_ROUTER, budgeted_thompson, ucb1
from costada.plugins.lab.theory.games import Course, Game, Policy

SEED_SCORE = 0.1

NUM_URNS = 20
"""Random draws over which the share of a random policy is averaged."""

RANKING, UCB1, KUBE, CHEAPEST = "ranking", "ucb1", "fractional-kube", "cheapest"
SMALL_BONUS, SMALL_BONUS_NO_COST = "small-bonus", "small-bonus-no-cost"
"""Diagnoses: `costada` and `no-cost-calibration` with a bonus of the size of a gain."""


def spend_by_method(
    method: Method, change: Callable[[Game], Constants], game: Game
) -> Sequence[Course]:
    """How a method's own controller spends the budget, with the constants that `change` gives.

    Archives play no part: there is no migration, and no frontier is added. A step without a gain
    reaches the seed's score again.
    """
    cost = game.constants.reference_cost
    constants, budget = method.apply_switches(change(game)), game.num_steps * cost
    controller = method.start(SEED_SCORE, constants)
    rng, has_gained, choices, spent = Random(game.draw), game.luck(), [], 0
    num_gains, num_guides = 0, 0
    while spent < game.num_steps:
        if controller.pending is not None and isinstance(controller, Guided):
            controller, num_guides = controller.fail_guide(), num_guides + 1
        allocation = controller.ask(Balance(budget, spent * cost), rng, constants)
        price = game.prices[allocation.frontier]
        spent += price
        choices.append(allocation.frontier)
        score = SEED_SCORE
        if has_gained(allocation.frontier):
            num_gains += 1
            score = SEED_SCORE + game.gain * num_gains
        balance = Balance(budget, spent * cost)
        step = PaidStep(score, is_kept=True, cost=price * cost)
        controller, _ = controller.tell(allocation, step, balance, constants)
        controller, _ = controller.decide(allocation, balance, constants)
    return (Course(_paid(choices, spent, game), num_guides),)


def spend_by_rule(rule: Rule, game: Game, *, is_cost_blind: bool = False) -> Sequence[Course]:
    """How a router's rule spends the budget, the frontiers being its menu and prices known.

    Unless the rule is blind to cost, it chooses among what is left can pay for, or among all where
    that is none.
    """
    names = [str(index) for index in range(len(game.prices))]
    arms = [
        Arm(ModelRecord(name), ModelOption(name, float(price)))
        for name, price in zip(names, game.prices, strict=True)
    ]
    rng, has_gained, choices, spent = Random(game.draw), game.luck(), [], 0
    while spent < game.num_steps:
        left = game.num_steps - spent
        # If nothing can be paid for, any choice ends the game: the step that crosses does not
        # count.
        offered = arms if is_cost_blind else [arm for arm in arms if arm.price <= left] or arms
        frontier = int(rule(offered, Money(game.num_steps, left), 1, rng).record.name)
        spent += game.prices[frontier]
        choices.append(frontier)
        before = arms[frontier].record
        after = replace(
            before,
            credit=before.credit + has_gained(frontier),
            tries=before.tries + 1,
            dollars=before.dollars + game.prices[frontier],
        )
        arms[frontier] = replace(arms[frontier], record=after)
    return (Course(_paid(choices, spent, game)),)


def ranking(arms: Sequence[Arm], money: Money, attempt: int, rng: Random) -> Arm:
    """Each frontier once, then the highest observed gain per cost (the policy of the proof)."""
    untried = [arm for arm in arms if arm.record.tries == 0]
    return next(iter(untried), max(arms, key=_observed_density))


def _observed_density(arm: Arm) -> float:
    return arm.record.credit / arm.record.dollars if arm.record.tries else 0.0


def fractional_kube(arms: Sequence[Arm], money: Money, attempt: int, rng: Random) -> Arm:
    """The highest upper bound of the mean gain per cost (Tran-Thanh et al. 2012)."""
    total = sum(arm.record.tries for arm in arms)

    def density(arm: Arm) -> float:
        tries = arm.record.tries
        if tries == 0:
            return inf
        return (arm.record.credit / tries + sqrt(2.0 * log(total) / tries)) / arm.price

    return max(arms, key=density)


def cheapest(arms: Sequence[Arm], money: Money, attempt: int, rng: Random) -> Arm:
    """The frontier with the lowest price, whatever it gains."""
    return min(arms, key=lambda arm: arm.price)


def spend_by_urn(game: Game) -> Sequence[Course]:
    """Spend the budget by the initial strategy of EvoX, over several random draws.

    It has no frontiers and draws the parent uniformly from all programs. Here every program
    belongs to the frontier of its parent, and each frontier starts with one.
    """
    num_frontiers, courses = len(game.prices), []
    for draw in range(NUM_URNS):
        rng, programs, spent = Random(draw), list(range(num_frontiers)), 0
        while spent < game.num_steps:
            frontier = rng.choice(programs)
            programs.append(frontier)
            spent += game.prices[frontier]
        courses.append(Course(_paid(programs[num_frontiers:], spent, game)))
    return courses


def _paid(choices: list[int], spent: int, game: Game) -> tuple[int, ...]:
    """The choices without the last one if the budget did not cover it."""
    return tuple(choices if spent <= game.num_steps else choices[:-1])


def _usual(game: Game) -> Constants:
    return game.constants


def _with_small_bonus(game: Game) -> Constants:
    """Constants whose optimism is as large as the gain of a step; no run uses them."""
    return game.constants.model_copy(update={"optimism_scale": game.gain})


def _chooses_frontiers(method: Method) -> bool:
    return method.start(SEED_SCORE, Constants()).parents is not ParentRule.POPULATION


def _policy(method: Method) -> Policy:
    played = partial(spend_by_method, method, _usual)
    spend = spend_by_urn if method.name == "evox" else played
    knows_cost = isinstance(method.kind, type) and issubclass(method.kind, CostAda)
    return Policy(method.name, not knows_cost, True, spend)


def _diagnosis(name: str, method: str) -> Policy:
    spend = partial(spend_by_method, METHODS[method], _with_small_bonus)
    return Policy(name, False, False, spend)


def _rule(name: str, rule: Rule, *, is_cost_blind: bool = False) -> Policy:
    spend = partial(spend_by_rule, rule, is_cost_blind=is_cost_blind)
    return Policy(name, is_cost_blind, False, spend)


RULES = (
    _rule(RANKING, ranking),
    _rule(UCB1, ucb1, is_cost_blind=True),
    _rule(KUBE, fractional_kube),
    _rule(DEFAULT_ROUTER, budgeted_thompson),
)
"""Policies that know the prices, but for UCB1, and learn what the frontiers gain."""

OF_METHODS = tuple(
    _policy(method)
    for method in METHODS.values()
    if method.name == "evox" or _chooses_frontiers(method)
)
"""Methods of other packages do not play: they choose among all candidates."""
DIAGNOSES = (
    _diagnosis(SMALL_BONUS, "costada"),
    _diagnosis(SMALL_BONUS_NO_COST, "no-cost-calibration"),
)
ONLY_CHEAPEST = _rule(CHEAPEST, cheapest)
