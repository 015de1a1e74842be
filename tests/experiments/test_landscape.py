"""The distributions of the simulated landscape are the documented ones."""

from random import Random
from statistics import fmean, median

import pytest

from costada.experiments.landscape.landscape import (
    NUM_APPROACHES,
    STRATEGY_FAILURE_RATE,
    Approach,
    Attempt,
    Landscape,
    Wording,
    attempted,
    drawn_landscape,
    failure_probability,
    generation_tokens,
    improvement_probability,
)
from costada.experiments.landscape.model import named_approaches
from costada.models.offline.answers import FAILURE_RATE

DRAWS = 4000


def flat(failure_rate=0.2, ceilings=(0.8,) * 4):
    approaches = tuple(Approach(ceiling, 0.2, failure_rate, 1.0) for ceiling in ceilings)
    return Landscape(approaches, landing_mean=0.8)


def outcomes(attempt, landscape):
    rng = Random(7)
    return [attempted(attempt, landscape, rng) for _ in range(DRAWS)]


def share(flags):
    return fmean(map(bool, flags))


def test_a_seed_always_draws_the_same_landscape_and_another_seed_another():
    assert drawn_landscape(1) == drawn_landscape(1)
    assert drawn_landscape(1) != drawn_landscape(2)


def test_drawn_approaches_stay_within_their_bounds_and_cost_1_on_average():
    approaches = [each for seed in range(200) for each in drawn_landscape(seed).approaches]
    assert len(approaches) == 200 * NUM_APPROACHES
    assert all(0.6 <= each.ceiling <= 1.0 for each in approaches)
    assert all(0.1 <= each.failure_rate <= 0.4 for each in approaches)
    assert fmean(each.cost_factor for each in approaches) == pytest.approx(1.0, abs=0.05)


def test_failures_follow_the_approach_and_rise_with_guidance():
    assert failure_probability(0.25, Wording.BALANCED) == pytest.approx(0.25)
    # odds 1/3 times 2.7 = 0.9, so 0.9 / 1.9
    assert failure_probability(0.25, Wording.REFINEMENT) == pytest.approx(0.9 / 1.9)
    found = outcomes(Attempt(0, 0.5, Wording.BALANCED), flat(failure_rate=0.3))
    assert share(each.quality is None for each in found) == pytest.approx(0.3, abs=0.03)


@pytest.mark.parametrize(
    ("wording", "probability"),
    [(Wording.EXPLORATION, 0.30), (Wording.BALANCED, 0.22), (Wording.EXPLOITATION, 0.15)],
)
def test_the_wording_decides_how_often_the_approach_changes(wording, probability):
    found = outcomes(Attempt(0, 0.5, wording), flat())
    assert share(each.approach != 0 for each in found) == pytest.approx(probability, abs=0.03)


def test_a_breakthrough_tactic_leads_to_the_approach_it_names():
    found = outcomes(Attempt(0, 0.5, Wording.BREAKTHROUGH, named=2), flat())
    assert {each.approach for each in found} == {2}


def test_improvements_become_rarer_towards_the_ceiling():
    assert improvement_probability(0.0, 0.8) == 0.95
    assert improvement_probability(0.4, 0.8) == pytest.approx(1.08 - 0.335)
    assert improvement_probability(0.8, 0.8) == pytest.approx(0.41)


def test_no_program_scores_above_the_ceiling_of_its_approach():
    landscape = flat(ceilings=(0.7, 0.6, 1.0, 0.9))
    found = outcomes(Attempt(0, 0.65, Wording.EXPLORATION), landscape)
    assert all(
        0 <= each.quality <= min(0.9999, landscape.approaches[each.approach].ceiling)
        for each in found
        if each.quality is not None
    )


def test_a_refinement_tactic_stays_and_gains_more_on_average():
    def gain(wording):
        found = outcomes(Attempt(0, 0.4, wording), flat(0.0))
        scores = [each.quality for each in found if each.approach == 0]
        return fmean(score - 0.4 for score in scores if score > 0.4)

    refined = outcomes(Attempt(0, 0.4, Wording.REFINEMENT), flat())
    assert {each.approach for each in refined} == {0}
    assert gain(Wording.REFINEMENT) > 1.1 * gain(Wording.EXPLOITATION)


def test_the_first_program_of_an_approach_lands_where_the_landscape_says():
    found = outcomes(Attempt(0, 0.2, Wording.BREAKTHROUGH, named=1), flat(0.0))
    assert fmean(each.quality for each in found) == pytest.approx(0.8 * 0.8, abs=0.02)


def test_a_guide_names_three_other_approaches_and_promising_ones_more_often():
    landscape = flat(ceilings=(0.7, 0.6, 0.6, 0.6, 0.9, 0.9, 0.9))
    rng = Random(1)
    named = [named_approaches(landscape, 0, 0.65, rng) for _ in range(DRAWS)]
    assert all(len(set(each)) == 3 and 0 not in each for each in named)
    good = fmean(number >= 4 for each in named for number in each)
    assert 0.55 < good < 0.67


def test_tokens_grow_with_the_programs_shown_and_the_answers_with_the_approach():
    def typical(num_others, factor):
        rng = Random(3)
        drawn = [generation_tokens(num_others, factor, rng) for _ in range(DRAWS)]
        return median(each.taken for each in drawn), median(each.given for each in drawn)

    # 1,360 + 4 * 1,640 = 7,920 and 4,400 times the factor
    assert typical(4, 1.0) == (pytest.approx(7920, rel=0.02), pytest.approx(4400, rel=0.04))
    assert typical(0, 2.0) == (pytest.approx(1360, rel=0.02), pytest.approx(8800, rel=0.04))


def test_a_strategy_is_refused_as_often_as_the_offline_model_spoils_one():
    assert STRATEGY_FAILURE_RATE == FAILURE_RATE
