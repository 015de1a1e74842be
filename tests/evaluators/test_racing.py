"""The race of a candidate, against a calculation by hand and a simulation with known truth."""

from math import inf
from random import Random
from statistics import fmean

import pytest

from costada.evaluators.racing import BETS, betting_capital, estimated_mean, is_rejected

HALF = (1.0, 0.0) * 2


def test_capital_after_two_losses_is_that_computed_by_hand():
    # Four examples, a rival with 1 everywhere; both differences are -1. First the mean must be at
    # least 0: each bet `b` makes 1 + b of its capital. Then the three that are left must have a
    # mean of at least 1/3: the surplus is (-1 - 1/3) / (1 - 1/3) = -2.
    expected = fmean((1 + bet) * (1 + 2 * bet) for bet in BETS)
    assert betting_capital([0.0, 0.0], [2, 0, 1, 3], (1.0,) * 4) == pytest.approx(expected)


def test_capital_is_endless_once_the_rival_is_out_of_reach():
    # After three losses of four, the last difference would have to be 3.
    assert betting_capital([0.0] * 4, range(4), (1.0,) * 4) == inf


def test_capital_stays_one_where_candidate_and_rival_do_the_same():
    assert betting_capital(HALF, range(4), HALF) == 1.0


def test_a_candidate_that_full_scores_would_not_put_ahead_is_rejected():
    # The rival has 3 of 4 points. After two zeros at most 2 are left.
    assert is_rejected([0.0, 0.0], range(4), (1.0, 1.0, 1.0, 0.0), error=1e-9)
    assert not is_rejected([0.0], range(4), (1.0, 1.0, 0.0, 0.0), error=1e-9)


def test_nobody_is_rejected_without_an_error():
    assert not is_rejected([0.0] * 3, range(4), (1.0,) * 4, error=0.0)


@pytest.mark.parametrize(
    ("num_losses", "num_wins", "error"), [(3, 5, 0.3), (5, 11, 0.1)], ids=["eight", "sixteen"]
)
def test_a_candidate_that_has_caught_up_by_the_end_of_its_batch_is_not_rejected(
    num_losses, num_wins, error
):
    # It lost first, and with bets that would have been enough; by now it has won more often.
    scores = [0.0] * num_losses + [1.0] * num_wins
    rival = (1.0,) * num_losses + (0.0,) * num_wins
    rival += (1.0, 0.0) * ((60 - len(rival)) // 2)
    assert betting_capital(scores[:num_losses], range(60), rival) >= 1 / error
    assert estimated_mean(scores, range(60), rival) > fmean(rival)
    assert not is_rejected(scores, range(60), rival, error)


def test_no_rejected_candidate_is_estimated_above_its_rival():
    rng, rejected = Random(10), 0
    for _ in range(2000):
        rival = [float(rng.random() < 0.6) for _ in range(24)]
        candidate = [float(rng.random() < 0.5) for _ in range(24)]
        scores, order = raced(candidate, rival, rng, error=0.6, batch=6)
        if len(scores) < len(rival):
            rejected += 1
            assert estimated_mean(scores, order, rival) <= fmean(rival)
    assert rejected > 500


def test_an_estimate_adds_the_difference_on_the_same_examples_to_the_rivals_mean():
    # On examples 1 and 3 the candidate has 0.4 and 0.6, the rival 0.8 and 0.0: 0.1 more on average.
    assert estimated_mean([0.4, 0.6], [1, 3, 0, 2], (1.0, 0.8, 0.2, 0.0)) == pytest.approx(0.6)
    assert estimated_mean([0.0], [0, 1], (1.0, 0.0)) == 0.0


def raced(candidate, rival, rng, error, batch):
    """The scores of a candidate on the examples that it was judged on, and their order."""
    order = list(range(len(rival)))
    rng.shuffle(order)
    scores = []
    for first in range(0, len(order), batch):
        scores += [candidate[place] for place in order[first : first + batch]]
        if len(scores) < len(order) and is_rejected(scores, order, rival, error):
            break
    return scores, order


@pytest.mark.parametrize("error", [0.05, 0.2])
def test_equally_good_candidates_are_rejected_no_more_often_than_stated(error):
    # The same 80 scores in another order: the means are equal, so every rejection by the test is
    # wrong. One more point makes the candidate better, so it can always still win.
    rng, rejected, races = Random(7), 0, 1500
    for _ in range(races):
        rival = [float(rng.random() < 0.6) for _ in range(80)]
        candidate = rng.sample(rival, len(rival))
        candidate[candidate.index(0.0)] = 1.0
        rejected += len(raced(candidate, rival, rng, error, batch=4)[0]) < len(rival)
    # Three standard deviations of a share of 1,500 above the stated error.
    assert rejected / races < error + 3 * (error * (1 - error) / races) ** 0.5


def test_clearly_worse_candidates_are_rejected_on_a_third_of_the_examples():
    rng, used, races = Random(8), 0, 200
    for _ in range(races):
        rival = [float(rng.random() < 0.8) for _ in range(120)]
        candidate = [score * float(rng.random() < 0.6) for score in rival]
        used += len(raced(candidate, rival, rng, 0.1, batch=8)[0])
    assert used / races < 120 / 3


def test_estimates_are_closer_to_the_truth_than_means_over_what_was_seen():
    # Graded scores: examples differ in difficulty for all, candidates differ in skill.
    rng, own_errors, errors = Random(9), [], []
    for _ in range(300):
        ease = [rng.random() for _ in range(100)]
        rival = [max(0.0, each - 0.1 * rng.random()) for each in ease]
        skill = rng.uniform(0.5, 1.0)
        candidate = [skill * each * rng.uniform(0.8, 1.0) for each in ease]
        scores, order = raced(candidate, rival, rng, 0.1, batch=8)
        if len(scores) < len(rival):
            truth = fmean(candidate)
            errors.append(estimated_mean(scores, order, rival) - truth)
            own_errors.append(fmean(scores) - truth)
    assert len(errors) > 100
    assert fmean(map(abs, errors)) < 0.75 * fmean(map(abs, own_errors))
    # A candidate stops when it looks bad, so it is estimated too low, by little.
    assert -0.02 < fmean(errors) < 0
