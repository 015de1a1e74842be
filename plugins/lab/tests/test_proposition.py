"""The proposition: equal gains, one cheap frontier, and what looking at cost is worth.

K frontiers gain the same in every step. One costs c a step, the others kappa c; the budget is B.
OPT takes B/c steps. A step counts when the budget paid for it in full.

By hand, for the frontiers in turn: a round costs c (1 + kappa (K-1)) and has K steps, wherever
the cheap frontier is, so n = B / (c (1/K + kappa (K-1)/K)) steps and a share of

    K / (1 + kappa (K-1)).

For always the first frontier: all of OPT at one place, 1/kappa of it at the other K-1, so

    1/K + (K-1) / (K kappa), which is 1/K + 1/kappa - 1/(K kappa), the bound but for the last term.

For ranking: one visit to each dear frontier buys nothing that OPT has not, so the share is

    1 - (K-1)(kappa-1) c / B.

For anything that does not look at cost: the sequence is the same at every place. No place sees
more than B/c of its steps, and each of these is cheap at exactly one place: cheap steps are at
most 1/K of OPT on average. Dear steps are at most B / (kappa c), which is 1/kappa of OPT.
"""

import pytest

from costada.controller.allocation import Frontier, select_frontier
from costada.plugins.lab.theory.games import Policy, Share
from costada.plugins.lab.theory.games import share_of_opt as share_of_games
from costada.plugins.lab.theory.policies import KUBE, RANKING, SMALL_BONUS
from costada.plugins.lab.theory.proposition import POLICIES, Instance, findings

BY_NAME = {policy.name: policy for policy in POLICIES}
BLIND = [policy for policy in POLICIES if policy.is_cost_blind]
INSTANCES = [
    Instance(num_frontiers, cost_ratio, num_steps)
    for num_frontiers in (2, 4, 8)
    for cost_ratio in (2, 5, 10, 50)
    for num_steps in (50, 200)
]


def share_of_opt(policy: Policy, instance: Instance) -> Share:
    return share_of_games(policy, instance.games)


each_blind = pytest.mark.parametrize("policy", BLIND, ids=lambda policy: policy.name)


def test_every_method_that_chooses_among_frontiers_plays() -> None:
    assert [policy.name for policy in POLICIES if policy.is_method] == [
        "costada",
        "costada-thompson",
        "adaevolve",
        "no-cost-calibration",
        "no-remaining-budget",
        "no-intervention-gating",
        "uniform",
        "best-of-n",
        "evox",
    ]
    assert {policy.name for policy in BLIND} == {
        "ucb1",
        "adaevolve",
        "evox",
        "uniform",
        "best-of-n",
    }


def test_the_bound_is_the_sum_of_both_shares() -> None:
    assert Instance(num_frontiers=4, cost_ratio=10, num_steps=50).bound == pytest.approx(0.35)


@each_blind
def test_a_cost_blind_method_stays_below_the_bound(policy: Policy) -> None:
    for instance in INSTANCES:
        share = share_of_opt(policy, instance)
        assert share.worst <= share.mean <= instance.bound


@each_blind
def test_a_cost_blind_method_chooses_the_same_wherever_the_cheap_frontier_is(
    policy: Policy,
) -> None:
    instance = Instance(num_frontiers=4, cost_ratio=5, num_steps=200)
    places = list(map(policy.spend, instance.games))
    for courses in zip(*places, strict=True):
        longest = max((course.choices for course in courses), key=len)
        assert all(longest[: len(course.choices)] == course.choices for course in courses)


def test_taking_turns_obtains_what_was_derived_by_hand() -> None:
    instance = Instance(num_frontiers=4, cost_ratio=10, num_steps=310)
    share = share_of_opt(BY_NAME["uniform"], instance)
    assert share.mean == share.worst == 40 / 310 == pytest.approx(4 / (1 + 10 * 3))


def test_staying_with_one_frontier_nearly_reaches_the_bound() -> None:
    instance = Instance(num_frontiers=4, cost_ratio=10, num_steps=200)
    share = share_of_opt(BY_NAME["best-of-n"], instance)
    assert share.worst == pytest.approx(1 / 10)
    assert share.mean == pytest.approx(instance.bound - 1 / (4 * 10))


@pytest.mark.parametrize(
    ("num_steps", "expected"), [(50, 1 - 27 / 50), (200, 1 - 27 / 200), (5000, 1 - 27 / 5000)]
)
def test_ranking_by_gain_per_cost_loses_only_the_first_visits(
    num_steps: int, expected: float
) -> None:
    share = share_of_opt(BY_NAME[RANKING], Instance(4, 10, num_steps))
    assert share.mean == share.worst == pytest.approx(expected)


def test_ranking_approaches_opt_as_the_budget_grows() -> None:
    shares = [share_of_opt(BY_NAME[RANKING], Instance(8, 50, 10**n)).mean for n in (2, 3, 4)]
    assert shares == sorted(shares)
    assert shares[-1] > 0.96


def test_a_step_the_budget_does_not_cover_does_not_count() -> None:
    (course,) = BY_NAME["uniform"].spend(Instance(2, 10, 25).game(0))
    assert course.choices == (0, 1, 0, 1, 0)
    (course,) = BY_NAME["uniform"].spend(Instance(2, 10, 24).game(0))
    assert course.choices == (0, 1, 0, 1, 0)
    (course,) = BY_NAME["uniform"].spend(Instance(2, 10, 22).game(0))
    assert course.choices == (0, 1, 0, 1)


def test_no_guide_is_ever_due_while_every_step_makes_progress() -> None:
    for finding in findings((2, 4), (5, 50), (200,)):
        assert all(share.num_guides == 0 for share in finding.shares.values())


def test_costada_chooses_by_the_rule_of_its_runs() -> None:
    instance = Instance(num_frontiers=2, cost_ratio=10, num_steps=100)
    (course,) = BY_NAME["costada"].spend(instance.game(1))
    assert course.choices[:2] == (0, 1)
    dear, cheap = 0.1 * 0.008 / 1.5995, 0.1 * 0.008 / 1.1733
    visited = tuple(Frontier(0.1, allocation_estimate=each, visits=1) for each in (dear, cheap))
    assert select_frontier(visited, 0.89, instance.game(1).constants) == course.choices[2] == 1


@pytest.mark.parametrize("cost_ratio", [5, 10, 50])
def test_costada_obtains_more_than_taking_turns_and_less_than_ranking(cost_ratio: int) -> None:
    instance = Instance(num_frontiers=4, cost_ratio=cost_ratio, num_steps=1000)
    own, turns, ranking = (
        share_of_opt(BY_NAME[name], instance).mean for name in ("costada", "uniform", RANKING)
    )
    assert turns < own < ranking


def test_the_rule_of_costada_exceeds_the_bound_once_its_bonus_is_as_small_as_the_gains() -> None:
    for cost_ratio in (5, 10, 50):
        instance = Instance(num_frontiers=4, cost_ratio=cost_ratio, num_steps=1000)
        share = share_of_opt(BY_NAME[SMALL_BONUS], instance)
        assert share.mean > share.worst - 1e-12 > instance.bound


@pytest.mark.parametrize("name", ["costada-thompson", "budgeted-thompson", KUBE])
@pytest.mark.parametrize("cost_ratio", [5, 10, 50])
def test_gain_per_dollar_obtains_nearly_what_ranking_does(name: str, cost_ratio: int) -> None:
    instance = Instance(num_frontiers=4, cost_ratio=cost_ratio, num_steps=1000)
    own, ranking = (share_of_opt(BY_NAME[each], instance) for each in (name, RANKING))
    assert own.mean > ranking.mean - 0.01
    assert own.worst > instance.bound
