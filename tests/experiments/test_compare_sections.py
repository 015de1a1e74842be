from dataclasses import replace

import pytest
from compared_runs import outcome, runs_of

from costada.experiments.comparison.comparison import compare_outcomes
from costada.experiments.comparison.metrics import Point


def test_means_and_sample_standard_deviations_are_over_runs():
    (section,) = compare_outcomes(runs_of({"costada": [0.5, 0.6, 0.7]})).sections
    final = section.summaries["costada"]["score_at_1"]
    assert (final.mean, final.n) == (pytest.approx(0.6), 3)
    assert final.std == pytest.approx(0.1)
    assert (final.smallest, final.largest) == (0.5, 0.7)
    assert section.summaries["costada"]["overshoot_ratio"].mean == pytest.approx(0.1)
    assert section.summaries["costada"]["dollars_guide"].mean == pytest.approx(0.2)


def test_a_single_run_has_no_deviation_and_no_interval():
    (section,) = compare_outcomes(runs_of({"costada": [0.5], "evox": [0.6]})).sections
    final = section.summaries["costada"]["score_at_1"]
    assert (final.std, final.interval) == (None, None)
    assert section.differences["evox"]["score_at_1"].interval is None


def test_methods_stand_in_their_order_and_strangers_after_them():
    runs = runs_of({"zebra": [0.5], "uniform": [0.5], "ant": [0.5], "costada": [0.5]})
    (section,) = compare_outcomes(runs).sections
    assert list(section.runs) == ["costada", "uniform", "ant", "zebra"]


def test_differences_are_paired_by_seed():
    runs = [
        *runs_of({"costada": [0.5, 0.6, 0.9]}),
        *(each for each in runs_of({"evox": [0.4, 0.7, 0.8, 0.1]}) if each.seed != 0),
    ]
    (section,) = compare_outcomes(runs).sections
    difference = section.differences["evox"]["score_at_1"]
    assert (difference.n, difference.mean) == (2, pytest.approx((0.1 - 0.1) / 2))
    assert (difference.smallest, difference.largest) == (pytest.approx(-0.1), pytest.approx(0.1))


def test_a_constant_lead_has_an_interval_without_width():
    runs = runs_of({"costada": [0.5, 0.7, 0.9], "evox": [0.45, 0.65, 0.85]})
    (section,) = compare_outcomes(runs).sections
    interval = section.differences["evox"]["score_at_1"].interval
    assert interval is not None
    assert (interval.low, interval.high) == (pytest.approx(-0.05), pytest.approx(-0.05))


def test_the_baseline_is_costada_unless_another_is_asked_for():
    runs = runs_of({"costada": [0.5], "evox": [0.6]})
    assert compare_outcomes(runs).baseline == "costada"
    assert list(compare_outcomes(runs, "evox").sections[0].differences) == ["costada"]
    assert compare_outcomes(runs[1:]).baseline == "evox"
    with pytest.raises(ValueError, match=r"Unknown baseline 'evo'\. Did you mean 'evox'\?"):
        compare_outcomes(runs, "evo")


def test_an_average_is_the_mean_of_the_means_of_the_problems():
    runs = [
        *runs_of({"costada": [0.5, 0.7]}, problem="one"),
        *runs_of({"costada": [0.9, 0.9, 0.9, 0.9]}, problem="two"),
    ]
    (average,) = compare_outcomes(runs).averages
    final = average.summaries["costada"]["score_at_1"]
    assert (final.mean, final.std, final.n) == (pytest.approx((0.6 + 0.9) / 2), None, 6)
    assert "objective_at_1" not in average.summaries["costada"]


def test_costs_are_averaged_over_all_runs_alike():
    runs = [
        *runs_of({"costada": [0.5] * 3}, step=1.0, problem="one"),
        *runs_of({"costada": [0.5]}, step=1.4, problem="two"),
    ]
    (average,) = compare_outcomes(runs).averages
    assert average.summaries["costada"]["cost"].mean == pytest.approx((3 * 1.0 + 1.4) / 4)
    assert average.summaries["costada"]["overshoot_ratio"].largest == pytest.approx(0.4)


def test_only_problems_that_have_every_method_are_averaged():
    runs = [
        *runs_of({"costada": [0.5], "evox": [0.5]}, problem="one"),
        *runs_of({"costada": [0.5], "evox": [0.5]}, problem="two"),
        *runs_of({"costada": [0.9]}, problem="three"),
    ]
    (average,) = compare_outcomes(runs).averages
    assert average.problems == ("one", "two")
    assert compare_outcomes(runs[1:]).averages == ()


def test_models_and_budgets_are_kept_apart():
    runs = [
        *runs_of({"costada": [0.5]}, model="a"),
        *runs_of({"costada": [0.5]}, model="b"),
        *runs_of({"costada": [0.5]}, model="a", budget=2.0),
    ]
    sections = compare_outcomes(runs).sections
    assert [(each.model, each.budget) for each in sections] == [("a", 2.0), ("a", 1.0), ("b", 1.0)]


def test_a_small_budget_stands_beside_the_larger_one_at_the_same_dollars():
    large = [outcome([(0.3, 0.5), (0.6, 0.7), (1.1, 0.9)], seed=seed) for seed in (0, 1)]
    small = [outcome([(0.3, 0.5), (0.5, 0.8)], budget=0.5, seed=0)]
    (rerun,) = compare_outcomes([*large, *small]).reruns
    assert (rerun.small, rerun.large, rerun.method) == (0.5, 1.0, "costada")
    assert (rerun.rerun.mean, rerun.rerun.n) == (0.8, 1)
    assert (rerun.cutoff.mean, rerun.cutoff.n) == (0.7, 2)


def test_shares_say_how_early_one_method_is_as_far_as_another():
    fast = outcome([(0.25, 0.8), (1.0, 0.9)])
    slow = outcome([(0.5, 0.6), (1.0, 0.8)], method="evox")
    (section,) = compare_outcomes([fast, slow]).sections
    assert section.shares == {
        ("costada", "costada"): 1.0,
        ("costada", "evox"): 0.25,
        ("evox", "costada"): None,
        ("evox", "evox"): 1.0,
    }


def test_runs_without_an_objective_are_compared_by_score():
    bare = replace(outcome([]), seed_objective=None, points=(Point(1, 1.0, 0.5, None),))
    (section,) = compare_outcomes([bare]).sections
    assert "objective_at_1" not in section.summaries["costada"]
    assert section.summaries["costada"]["score_at_1"].mean == 0.5
