"""The effect of a part of the method, from tosses: by hand, by permutation and by simulation."""

from dataclasses import replace
from math import ceil, comb, inf, sqrt
from random import Random
from statistics import NormalDist

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import nctdtr

from costada.controller.constants import Constants
from costada.experiments.effect.estimate import (
    GAIN_PER_DOLLAR,
    JUMP_RATE,
    RATES,
    TossOutcome,
    clusters_to_settle,
    effect_of,
    t_quantile,
)
from costada.experiments.effect.tossed_runs import toss_outcomes

ARMS = ("guide", "no guide")
REPETITIONS = 200
ERROR = 3 * sqrt(0.95 * 0.05 / REPETITIONS)
"""Three standard errors of a share of 95 % of the repetitions."""


def outcome(arm: int, gain=0.0, dollars=1.0, steps=1, jumps=0, probability=0.5) -> TossOutcome:
    return TossOutcome(ARMS[arm], probability, gain, dollars, steps, jumps)


def test_an_estimate_by_hand():
    """Weights: 2 and 2 in the first run; 4 and 4/3 in the second.

    guide: (2 * 0.2 + 4 * 0.1) / (2 * 1 + 4 * 1) = 0.8 / 6
    no guide: (2 * 0 + 4/3 * 0.3) / (2 * 1 + 4/3 * 2) = 0.4 / (14/3)
    Without the first run the difference is 0.1 - 0.15, without the second 0.2 - 0. The jackknife
    variance of two clusters is half the sum of squares about their mean: (0.125^2 + 0.125^2) / 2.
    """
    runs = [
        [outcome(0, 0.2, jumps=6), outcome(1)],
        [outcome(0, 0.1, jumps=4, probability=0.25), outcome(1, 0.3, 2.0, probability=0.75)],
    ]
    found = effect_of(runs, ARMS, GAIN_PER_DOLLAR, 10.0)
    assert found.of_arm == pytest.approx({"guide": 0.8 / 6, "no guide": 0.4 * 3 / 14})
    assert found.difference == pytest.approx(0.8 / 6 - 0.4 * 3 / 14)
    assert found.deviation == pytest.approx(0.125)
    half = 12.7062047 * 0.125  # the 0.975 quantile of Student's t with one degree of freedom
    assert found.interval == pytest.approx((found.difference - half, found.difference + half))
    # 1.959964 + 0.841621 standard errors, of which the runs are the inverse square, and 1.920729
    # runs for Student's t; a run costs $5
    needed = 2 * (2.801585 * 0.125 / found.difference) ** 2 + 1.920729
    assert found.dollars_more == pytest.approx(5.0 * (needed - 2))
    assert not found.is_settled


def test_a_jump_rate_by_hand():
    """guide: (2 * 2 + 2 * 1) / (2 * 6 + 2 * 4) = 0.3; no guide: 2 * 1 / (2 * 5) = 0.2."""
    runs = [[outcome(0, steps=6, jumps=2), outcome(0, steps=4, jumps=1), outcome(1, 0, 1, 5, 1)]]
    found = effect_of(runs, ARMS, JUMP_RATE, 10.0)
    assert found.of_arm == pytest.approx({"guide": 0.3, "no guide": 0.2})


def test_with_one_run_the_interval_is_over_its_tosses():
    tosses = [outcome(0, 0.3), outcome(0, 0.1), outcome(1, 0.1), outcome(1, 0.0)]
    found = effect_of([tosses], ARMS, GAIN_PER_DOLLAR, 4.0)
    assert found.is_within_run
    # leaving each out: 0.05, 0.25 (guide), 0.2, 0.1 (no guide); their mean is 0.15
    spread = 0.1**2 + 0.1**2 + 0.05**2 + 0.05**2
    assert found.deviation == pytest.approx(sqrt(3 / 4 * spread))
    alone = [[each] for each in tosses]
    assert effect_of(alone, ARMS, GAIN_PER_DOLLAR, 4.0).deviation == found.deviation


@pytest.mark.parametrize(
    ("runs", "reason"),
    [
        ([[outcome(0), outcome(1)]] * 3, "no step that belongs to a toss raised the best score"),
        ([[outcome(0, 1.0), outcome(1)], [outcome(1)]], "an arm came up in one run only"),
        ([[outcome(0, 1.0), outcome(1), outcome(1)]], "an arm came up in one toss only"),
    ],
)
def test_no_interval_is_given_where_the_data_allow_none(runs, reason):
    found = effect_of(runs, ARMS, GAIN_PER_DOLLAR, 1.0)
    assert (found.interval, found.no_interval, found.dollars_more) == (None, reason, None)


@pytest.mark.parametrize(
    ("tosses", "message"),
    [
        ([outcome(1, 0.2)], "arm 'guide' never came up, expected tosses of both arms"),
        ([outcome(1), outcome(0, dollars=0.0)], "the steps of arm 'guide' cost nothing"),
    ],
)
def test_a_comparison_without_one_of_the_arms_is_refused(tosses, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        effect_of([tosses], ARMS, GAIN_PER_DOLLAR, 1.0)


def test_equal_arms_are_never_settled():
    runs = [[outcome(arm, gain, jumps=3) for arm in (0, 1)] for gain in (0.2, 0.4)]
    found = effect_of(runs, ARMS, GAIN_PER_DOLLAR, 1.0)
    assert (found.difference, found.dollars_more, found.is_settled) == (0.0, inf, False)


def test_a_settled_effect_needs_no_more_dollars_and_some_jumps():
    runs = [[outcome(0, 0.5 + n / 100, jumps=n < 8), outcome(1, 0.1, jumps=1)] for n in range(9)]
    for count, jumps in ((9, 17), (4, 8)):
        found = effect_of(runs[:count], ARMS, GAIN_PER_DOLLAR, 9.0)
        assert found.interval[0] > 0
        # eight jumps are too few to trust the interval
        assert found.has_few_jumps == (jumps < 10)
        assert (found.is_settled, found.dollars_more) == ((jumps > 10), 0.0 if jumps > 10 else None)


TOSSES = st.builds(
    TossOutcome,
    arm=st.sampled_from(ARMS),
    probability=st.sampled_from([0.25, 0.5, 0.75]),
    gain=st.floats(0, 1),
    dollars=st.floats(0.01, 1),
    steps=st.integers(1, 9),
    jumps=st.integers(0, 1),
)
BOTH = [outcome(0, 0.1, steps=2, jumps=1), outcome(1, 0.2, steps=3, jumps=1)]


@settings(max_examples=40)
@given(st.lists(st.lists(TOSSES, max_size=5), min_size=2, max_size=6), st.randoms(), st.data())
def test_permuting_runs_or_tosses_changes_nothing(others, random, data):
    runs = [*others, BOTH, BOTH[::-1]]
    shuffled = [random.sample(run, len(run)) for run in random.sample(runs, len(runs))]
    rate = data.draw(st.sampled_from(RATES))
    found, other = (effect_of(each, ARMS, rate, 3.0) for each in (runs, shuffled))
    assert found == other
    swapped = effect_of(runs, ARMS[::-1], rate, 3.0)
    assert swapped.difference == -found.difference
    assert swapped.deviation == pytest.approx(found.deviation)


@pytest.mark.parametrize("probability", [0.0, -0.1, 1.5])
def test_a_probability_that_is_none_is_refused(probability):
    with pytest.raises(ValueError, match=f"^probability: got {probability} for arm 'guide'"):
        outcome(0, probability=probability)


def test_rows_become_tosses_by_the_toss_that_they_name():
    """The third row landed after a later toss was made, and belongs to the earlier one."""

    def row(score, cost, gain, toss, arm):
        return {
            "best_score": score,
            "step_cost": cost,
            "global_gain": gain,
            "toss": toss,
            "arm": arm,
            "arm_probability": None if arm is None else 0.5,
        }

    rows = [
        row(0.5, 0.5, 0.4, None, None),
        row(0.5, 0.25, 0.0, 4, "no guide"),
        row(0.75, 0.25, 0.25, 4, "no guide"),
        row(0.75, 1.0, 0.0, 6, "guide"),
        row(0.875, 0.5, 0.125, 4, "no guide"),
        row(1.0, 2.0, 0.125, 6, "guide"),
        {"best_score": 1.0, "step_cost": 9.0, "global_gain": 0.0},
    ]
    assert list(toss_outcomes(rows, 0.1, Constants())) == [
        TossOutcome("no guide", 0.5, 0.375, 1.0, 3, 2),
        TossOutcome("guide", 0.5, 0.125, 3.0, 2, 1),
    ]


def test_gains_below_the_threshold_of_progress_are_no_jumps():
    rows = [
        {
            **{"best_score": 0.5, "step_cost": 1.0, "global_gain": gain},
            **{"toss": 1, "arm": "guide", "arm_probability": 0.5},
        }
        for gain in (1e-7, 1e-5)
    ]
    (found,) = toss_outcomes(rows, 0.5, Constants(progress_threshold=1e-6))
    assert (found.steps, found.jumps) == (2, 1)


def attempts_to_separate(first: float, second: float) -> float:
    """Attempts of each arm that separate two jump rates, if attempts are independent.

    `(z(1 - 0.05 / 2) + z(0.8))^2` times the sum of the variances of one attempt of each arm, over
    the squared difference (Fleiss, Levin and Paik, "Statistical Methods for Rates and Proportions",
    2003, chapter 4).
    """
    variance = first * (1.0 - first) + second * (1.0 - second)
    return (2.801585 / (first - second)) ** 2 * variance


def exact_power(attempts: int, first: float, second: float) -> float:
    """Power of the two-sided z-test of two shares with a pooled variance, over all outcomes."""

    def chance(jumps: int, rate: float) -> float:
        return comb(attempts, jumps) * rate**jumps * (1 - rate) ** (attempts - jumps)

    power = 0.0
    for one in range(40):
        for other in range(15):
            mean = (one + other) / (2 * attempts)
            error = sqrt(2 * mean * (1 - mean) / attempts)
            if abs(one - other) / attempts > 1.959964 * error:
                power += chance(one, first) * chance(other, second)
    return power


def test_210_attempts_an_arm_separate_jump_rates_of_6_and_1_percent():
    needed = attempts_to_separate(0.06, 0.01)
    assert (ceil(needed), ceil(attempts_to_separate(0.03, 0.01))) == (209, 766)
    # independently: with a pooled variance under the null hypothesis
    normal, mean = NormalDist(), 0.035
    null, other = sqrt(2 * mean * (1 - mean)), sqrt(0.06 * 0.94 + 0.01 * 0.99)
    by_pooling = ((normal.inv_cdf(0.975) * null + normal.inv_cdf(0.8) * other) / 0.05) ** 2
    assert by_pooling == pytest.approx(needed, rel=0.02)
    # counts are integers, so the exact power is a little above that of the normal distribution
    assert 0.8 < exact_power(210, 0.06, 0.01) < 0.86
    assert exact_power(150, 0.06, 0.01) < 0.8


def test_the_dollars_of_a_run_of_attempts_are_those_of_the_needed_attempts():
    """200 attempts an arm with 12 and 2 jumps, $0.0154 each, as clusters of one."""
    cost, jumps = 0.0154, (12, 2)
    runs = [
        [outcome(arm, jumps=int(n < jumps[arm]), dollars=cost)]
        for arm in (0, 1)
        for n in range(200)
    ]
    spent = 400 * cost
    found = effect_of(runs, ARMS, JUMP_RATE, spent)
    needed = 2 * attempts_to_separate(0.06, 0.01) * cost
    assert found.deviation is not None
    dollars = cost * clusters_to_settle(found.difference, found.deviation, 400)
    assert dollars == pytest.approx(needed, rel=0.015)
    assert 6 < dollars < 8


@pytest.mark.parametrize("clusters", [2, 3, 4, 8, 25])
@pytest.mark.parametrize("share", [0.1, 0.5, 0.9, 0.99])
def test_so_many_runs_have_the_power_of_a_t_test_and_are_more_than_there_are(clusters, share):
    """By the noncentral t distribution, at a share of the difference that just excludes 0."""
    difference = share * t_quantile(0.975, clusters - 1)
    needed = clusters_to_settle(difference, 1.0, clusters)
    assert needed >= clusters + 1
    whole = ceil(needed)
    noncentrality = difference * sqrt(whole / clusters)
    power = 1 - nctdtr(whole - 1, noncentrality, t_quantile(0.975, whole - 1))
    assert power > 0.79


PATIENCE, WINDOW, STEPS, COST = 4, 6, 60, 0.02


def simulated_run(rng: Random, effect: float) -> tuple[list[TossOutcome], list[float]]:
    """A run with luck and prices of its own, and the chances of a jump at its tosses.

    Chances fall as the run goes on. After `PATIENCE` steps without a jump it tosses for a guide,
    which costs as much as a step; the `WINDOW` steps after that jump with a chance that is `effect`
    higher. A jump gains 0.2 on average. The probability of a guide is another one for each toss.
    """
    luck, price, tosses, chances = rng.uniform(0.1, 0.5), rng.uniform(0.5, 1.5), [], []
    step = waited = 0
    while step < STEPS:
        if waited < PATIENCE:
            waited = 0 if rng.random() < luck * (1 - step / STEPS) else waited + 1
            step += 1
            continue
        share = rng.choice((0.3, 0.5, 0.7))
        arm = int(rng.random() >= share)
        own = [luck * max(0, 1 - each / STEPS) for each in range(step, step + WINDOW)]
        raised = [rng.random() < each + effect * (arm == 0) for each in own]
        gain = sum(rng.uniform(0.0, 0.4) for _ in filter(None, raised))
        dollars = price * COST * (WINDOW + (arm == 0))
        probability = share if arm == 0 else 1 - share
        tosses.append(outcome(arm, gain, dollars, WINDOW, sum(raised), probability))
        chances.append(sum(own) / WINDOW)
        step, waited = step + WINDOW, 0
    return tosses, chances


@pytest.mark.parametrize("effect", [0.0, 0.1])
@pytest.mark.parametrize("num_runs", [8, 25])
def test_intervals_cover_the_true_effect_95_times_of_100(effect, num_runs):
    """Without an effect on jumps, 5 of 100 intervals of the jump rate exclude 0 then.

    The true rates are those at the mean chance of all tosses, as arms are drawn at each of them.
    """
    rng, found, chances = Random(f"{effect}/{num_runs}"), [], []
    for _ in range(REPETITIONS):
        runs = [simulated_run(rng, effect) for _ in range(num_runs)]
        found.append([effect_of([run for run, _ in runs], ARMS, rate, 1.0) for rate in RATES])
        chances += [each for _, own in runs for each in own]
    chance = sum(chances) / len(chances)
    per_step = 0.2 * WINDOW / COST
    gain = per_step * (chance + effect) / (WINDOW + 1) - per_step * chance / WINDOW
    for number, truth in enumerate((gain, effect)):
        intervals = [each[number].interval for each in found]
        covered = sum(low <= truth <= high for low, high in intervals) / REPETITIONS
        assert covered == pytest.approx(0.95, abs=ERROR)


def test_weights_correct_for_tosses_that_were_likelier_where_gains_were():
    """Steps of a good phase have a guide with probability 0.9, those of a bad one with 0.1."""
    rng, runs = Random(1), []
    for _ in range(300):
        tosses = []
        for _ in range(8):
            is_good = rng.random() < 0.5
            share = 0.9 if is_good else 0.1
            arm = int(rng.random() >= share)
            tosses.append(outcome(arm, 0.3 * is_good, probability=share if arm == 0 else 1 - share))
        runs.append(tosses)
    weighted = effect_of(runs, ARMS, GAIN_PER_DOLLAR, 1.0)
    plain = effect_of(
        [[replace(each, probability=0.5) for each in run] for run in runs],
        ARMS,
        GAIN_PER_DOLLAR,
        1.0,
    )
    assert abs(weighted.difference) < 0.03
    assert plain.difference > 0.2
