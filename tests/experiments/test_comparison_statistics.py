from bisect import bisect_right
from dataclasses import replace
from math import isclose
from statistics import fmean

import pytest
from compared_runs import outcome, runs_of
from hypothesis import given
from hypothesis import strategies as st

from costada.experiments.comparison.comparison import compare_outcomes
from costada.experiments.comparison.metrics import (
    Point,
    best_score_at,
    cost_at_crossing,
    crossing,
    curve_of,
    dollars_to_reach,
    mean_at,
    mean_interval,
    normalized_auc,
    objective_at,
    overshoot_ratio,
    point_at,
    share_to_reach,
)
from costada.experiments.comparison.tables import area_and_cost

PRINTED = outcome([(0.25, 0.6), (0.5, 0.6), (1.1, 0.9)])
"""The fixture printed with the definition of the metrics: B = 1, y_0 = 0.4."""


@st.composite
def runs(draw):
    spent, score, steps = 0.0, draw(st.floats(0.0, 0.5)), []
    start = score
    for cost, gain in draw(
        st.lists(st.tuples(st.floats(0.0, 0.6), st.floats(0.0, 0.3)), max_size=12)
    ):
        spent, score = spent + cost, score + gain
        steps.append((spent, score))
    return outcome(steps, seed_score=start, budget=draw(st.floats(0.5, 3.0)))


def test_the_printed_fixture():
    assert normalized_auc(PRINTED) == pytest.approx(0.25 * 0.4 + 0.75 * 0.6) == 0.55
    assert [best_score_at(PRINTED, share) for share in (0.25, 1.0)] == [0.6, 0.9]
    assert objective_at(PRINTED, 0.5) == 6.0
    assert [crossing(PRINTED, share).iteration for share in (0.25, 0.5, 0.75, 1.0)] == [1, 2, 3, 3]
    curve = curve_of(PRINTED)
    assert (curve.shares, curve.scores) == ((0.0, 0.25, 0.5, 1.0), (0.4, 0.6, 0.6, 0.9))
    scores = [curve.at(share) for share in (0.0, 0.2499, 0.25, 0.9999, 1.0)]
    assert scores == [0.4, 0.4, 0.6, 0.6, 0.9]


def test_methods_are_compared_by_the_dollars_to_the_lowest_final_mean_score():
    outcomes = runs_of({"costada": (0.8, 0.6), "uniform": (0.9, 0.5), "evox": (0.9, 0.9)}, 0.5)
    (section,) = compare_outcomes(outcomes).sections
    assert section.targets == {"toy": pytest.approx(0.7)}
    found = {name: by["dollars_to_reach"].mean for name, by in section.summaries.items()}
    assert found == {"costada": 0.75, "uniform": 0.75, "evox": 0.5}


@pytest.mark.parametrize(
    ("facts", "target", "score"),
    [
        ({}, "0.6", 0.6),
        ({"reference": "2.0"}, "1.2", 0.6),
        ({"reference": "3.0", "is_minimized": True}, "5.0", 0.6),
    ],
)
def test_runs_with_a_target_are_compared_by_the_dollars_to_it(facts, target, score):
    is_minimized = facts.pop("is_minimized", False)
    shared = {"settings": {"target": target}, "problem_facts": facts, "is_minimized": is_minimized}
    # Each run ended at the target; the lowest mean is 0.75, which one of them never saw.
    scores = {"costada": (0.6, 0.9), "uniform": (0.8, 0.7)}
    (section,) = compare_outcomes(runs_of(scores, 0.5, **shared)).sections
    assert (section.has_target, section.targets) == (True, {"toy": pytest.approx(score)})
    found = {name: by["dollars_to_reach"].mean for name, by in section.summaries.items()}
    assert found == {"costada": 0.5, "uniform": 0.5}
    assert "Dollars to reach the target (0.6000);" in area_and_cost(section).note


def test_runs_that_all_end_at_one_score_reach_it():
    """The mean of three times 0.8 is rounded up."""
    assert fmean([0.8] * 3) > 0.8
    outcomes = runs_of({"costada": (0.8,) * 3, "uniform": (0.8,) * 3}, 0.5)
    (section,) = compare_outcomes(outcomes).sections
    assert section.targets == {"toy": 0.8}
    found = {name: by["dollars_to_reach"].mean for name, by in section.summaries.items()}
    assert found == {"costada": 0.5, "uniform": 0.5}


def test_a_share_is_crossed_but_for_rounding():
    run = outcome([(0.15, 0.5), (0.19, 0.6), (0.2, 0.7), (0.3, 0.8)], budget=0.2)
    assert 0.75 * run.budget > 0.15
    assert [crossing(run, share).iteration for share in (0.75, 1.0)] == [1, 3]
    almost = outcome([(0.1 + 0.7, 0.5), (1.0, 0.6)], budget=0.8)
    assert almost.points[0].spent < almost.budget
    assert crossing(almost).iteration == 1
    assert curve_of(almost).shares == (0.0, 1.0)
    missed = outcome([(0.5 * (1 - 1e-9), 0.5), (0.6, 0.6)])
    assert crossing(missed, 0.5).iteration == 2


def test_a_run_that_ends_before_a_cutoff_counts_with_its_last_iteration():
    short = outcome([(0.2, 0.5), (0.4, 0.7)])
    assert crossing(short, 0.75).iteration == 2
    assert best_score_at(short, 1.0) == 0.7
    assert normalized_auc(short) == pytest.approx(0.2 * 0.4 + 0.2 * 0.5 + 0.6 * 0.7)


def test_a_run_without_an_iteration_is_worth_its_initial_program():
    empty = outcome([])
    assert best_score_at(empty, 1.0) == normalized_auc(empty) == 0.4
    assert objective_at(empty, 0.25) == 4.0
    assert cost_at_crossing(empty) == 0.0


def test_the_objective_is_that_of_the_best_score_and_may_fall():
    falling = replace(PRINTED, points=(Point(1, 0.3, 0.6, 6.0), Point(2, 1.2, 0.9, 1.5)))
    assert [objective_at(falling, share) for share in (0.25, 1.0)] == [6.0, 1.5]


@pytest.mark.parametrize(
    ("spent", "budget", "ratio"), [(1.009, 1.0, 0.0090), (5.5, 5.0, 0.1), (0.75, 1.0, -0.25)]
)
def test_overshoot_is_the_share_spent_beyond_the_budget(spent, budget, ratio):
    run = outcome([(0.5, 0.5), (spent, 0.6)], budget=budget)
    assert overshoot_ratio(run) == pytest.approx(ratio)


def test_a_run_that_does_not_reach_a_score_counts_its_budget():
    run = outcome([(0.25, 0.6), (0.5, 0.9), (2.2, 1.0)], budget=2.0)
    assert [dollars_to_reach(run, score) for score in (0.4, 0.5, 0.9)] == [0.0, 0.25, 0.5]
    # reached by the step that crosses the budget, and not at all
    assert dollars_to_reach(run, 0.95) == dollars_to_reach(run, 1.1) == 2.0


def test_a_smaller_budget_is_a_cutoff_in_dollars():
    run = outcome([(0.4, 0.5), (0.6, 0.7), (1.3, 0.9), (2.1, 1.0)], budget=2.0)
    assert point_at(run, 0.5) == crossing(run, 0.25) == run.points[1]


def test_the_share_to_reach_a_score_is_read_off_the_mean_curve():
    early = curve_of(outcome([(0.2, 0.8), (1.0, 0.8)]))
    late = curve_of(outcome([(0.6, 0.6), (1.0, 1.0)]))
    assert mean_at([[early, late]], 0.5) == pytest.approx((0.8 + 0.4) / 2)
    shares = [share_to_reach([[early, late]], score) for score in (0.3, 0.6, 0.65, 0.9, 0.91)]
    assert shares == [0.0, 0.2, 0.6, 1.0, None]


def test_a_mean_over_problems_weighs_each_problem_alike():
    ones = [curve_of(outcome([(0.5, 1.0)])) for _ in range(3)]
    assert mean_at([ones, [curve_of(outcome([]))]], 0.5) == pytest.approx(0.7)


@given(runs(), st.floats(0.01, 0.4))
def test_the_area_lies_between_the_scores_and_grows_with_earlier_or_higher_ones(run, more):
    fields = {"seed_score": run.seed_score, "budget": run.budget}
    higher = outcome([(each.spent, each.best_score + more) for each in run.points], **fields)
    sooner = outcome([(each.spent * (1 - more), each.best_score) for each in run.points], **fields)
    last = run.points[-1].best_score if run.points else run.seed_score
    area = normalized_auc(run)
    assert run.seed_score - 1e-12 <= area <= last + 1e-12
    assert normalized_auc(higher) >= area - 1e-12
    assert normalized_auc(sooner) >= area - 1e-12


@given(runs())
def test_the_best_score_never_falls_with_the_cutoff_and_is_reached_within_the_budget(run):
    scores = [best_score_at(run, share / 20) for share in range(1, 21)]
    assert scores == sorted(scores)
    assert 0.0 <= share_to_reach([[curve_of(run)]], scores[-1]) <= 1.0


@given(runs())
def test_the_area_equals_a_riemann_sum(run):
    pieces = 4000
    middles = [(number + 0.5) / pieces * run.budget for number in range(pieces)]

    scores = [run.seed_score, *(point.best_score for point in run.points)]
    spent = [point.spent for point in run.points]
    area = sum(scores[bisect_right(spent, dollars)] for dollars in middles) / pieces
    largest_error = (1 + len(run.points)) * 0.3 / pieces
    assert isclose(normalized_auc(run), area, abs_tol=largest_error + 1e-9)


@pytest.mark.parametrize(
    ("strata", "low", "high", "error"),
    [
        # A quarter of all resamples holds only one of two values, far more than a tail.
        ([[0.2, 0.6]], 0.2, 0.6, 1e-6),
        ([[float(n % 2) for n in range(400)]], 0.451, 0.549, 0.005),  # 1.96 * 0.5 / sqrt(400)
        # Means far apart do not widen the interval: each problem is resampled by itself.
        ([[0.0, 0.0, 0.0], [1.0, 1.0, 1.0]], 0.5, 0.5, 0),
        ([[0.0, 0.0], [1.0] * 8], 0.5, 0.5, 0),
    ],
)
def test_an_interval_is_that_of_the_mean_over_problems(strata, low, high, error):
    interval = mean_interval(strata)
    assert (interval.low, interval.high) == pytest.approx((low, high), abs=error)


def test_the_draws_of_two_problems_are_independent():
    values = [0.0, 1.0, 0.0, 1.0, 0.0, 1.0]
    one, two = mean_interval([values]), mean_interval([values, values])
    assert two.high - two.low < one.high - one.low


@pytest.mark.parametrize("strata", [[], [[]], [[0.5]], [[0.1, 0.2], [0.5]]])
def test_fewer_than_two_values_have_no_interval(strata):
    assert mean_interval(strata) is None


@given(st.lists(st.floats(0.0, 1.0), min_size=2, max_size=8))
def test_the_same_values_have_the_same_interval_around_their_mean(values):
    interval, mean = mean_interval([values]), sum(values) / len(values)
    assert interval == mean_interval([values])
    assert min(values) - 1e-6 <= interval.low <= mean + 1e-6
    assert mean - 1e-6 <= interval.high <= max(values) + 1e-6


def test_means_and_sample_standard_deviations_are_over_runs():
    (section,) = compare_outcomes(runs_of({"costada": [0.5, 0.6, 0.7]})).sections
    final = section.summaries["costada"]["score_at_1"]
    assert (final.mean, final.n) == (pytest.approx(0.6), 3)
    assert final.std == pytest.approx(0.1)
    assert (final.smallest, final.largest) == (0.5, 0.7)
    assert section.summaries["costada"]["overshoot_ratio"].mean == pytest.approx(0.1)
    assert section.summaries["costada"]["dollars_guide"].mean == pytest.approx(0.2)


def test_an_interval_needs_two_runs_and_a_constant_lead_has_one_without_width():
    (section,) = compare_outcomes(runs_of({"costada": [0.5], "evox": [0.6]})).sections
    final = section.summaries["costada"]["score_at_1"]
    assert (final.std, final.interval) == (None, None)
    assert section.differences["evox"]["score_at_1"].interval is None
    runs = runs_of({"costada": [0.5, 0.7, 0.9], "evox": [0.45, 0.65, 0.85]})
    (section,) = compare_outcomes(runs).sections
    interval = section.differences["evox"]["score_at_1"].interval
    assert (interval.low, interval.high) == (pytest.approx(-0.05), pytest.approx(-0.05))


def test_methods_keep_their_order_and_unknown_ones_follow():
    runs = runs_of({"zebra": [0.5], "uniform": [0.5], "ant": [0.5], "costada": [0.5]})
    (section,) = compare_outcomes(runs).sections
    assert list(section.runs) == ["costada", "uniform", "ant", "zebra"]


def test_differences_are_paired_by_seed():
    others = [each for each in runs_of({"evox": [0.4, 0.7, 0.8, 0.1]}) if each.seed != 0]
    (section,) = compare_outcomes([*runs_of({"costada": [0.5, 0.6, 0.9]}), *others]).sections
    difference = section.differences["evox"]["score_at_1"]
    assert (difference.n, difference.mean) == (2, pytest.approx((0.1 - 0.1) / 2))
    assert (difference.smallest, difference.largest) == (pytest.approx(-0.1), pytest.approx(0.1))


def test_the_baseline_is_costada_unless_another_is_asked_for():
    runs = runs_of({"costada": [0.5], "evox": [0.6]})
    assert compare_outcomes(runs).baseline == "costada"
    assert list(compare_outcomes(runs, "evox").sections[0].differences) == ["costada"]
    assert compare_outcomes(runs[1:]).baseline == "evox"
    with pytest.raises(
        ValueError, match=r"--baseline: Unknown method 'evo'\. Did you mean 'evox'\?"
    ):
        compare_outcomes(runs, "evo")


def test_an_average_is_the_mean_of_the_means_of_the_problems_and_of_all_costs():
    runs = [
        *runs_of({"costada": [0.5, 0.7]}, problem="one", step=1.0),
        *runs_of({"costada": [0.9, 0.9, 0.9, 0.9]}, problem="two", step=1.4),
    ]
    average = compare_outcomes(runs).by_method[0].average
    assert average is not None
    summary = average.summaries["costada"]
    final = summary["score_at_1"]
    assert (final.mean, final.std, final.n) == (pytest.approx((0.6 + 0.9) / 2), None, 6)
    assert "objective_at_1" not in summary
    assert summary["cost"].mean == pytest.approx((2 * 1.0 + 4 * 1.4) / 6)
    assert summary["overshoot_ratio"].largest == pytest.approx(0.4)


def test_only_problems_that_have_every_method_are_averaged():
    runs = [
        *runs_of({"costada": [0.5], "evox": [0.5]}, problem="one"),
        *runs_of({"costada": [0.5], "evox": [0.5]}, problem="two"),
        *runs_of({"costada": [0.9]}, problem="three"),
    ]
    average = compare_outcomes(runs).by_method[0].average
    assert average is not None
    assert average.problems == ("one", "two")
    assert compare_outcomes(runs[1:]).by_method[0].average is None


def test_models_and_budgets_are_kept_apart():
    runs = [
        *runs_of({"costada": [0.5]}, model="a"),
        *runs_of({"costada": [0.5]}, model="b"),
        *runs_of({"costada": [0.5]}, model="a", budget=2.0),
    ]
    sections = compare_outcomes(runs).sections
    assert [(each.model, each.budget) for each in sections] == [("a", 2.0), ("a", 1.0), ("b", 1.0)]


MODELS = ["glm-5", "offline"]


def test_one_method_is_compared_across_models_of_equal_other_settings():
    own = {"price": "1,2", "base_url": "http://localhost:1/v1"}
    cheap = runs_of({"costada": (0.8, 0.6), "evox": (0.9,)}, 0.5, settings=own)
    dear = runs_of({"costada": (0.9, 0.9)}, 0.5, model="offline", settings={"model.name": "x"})
    apart = runs_of({"evox": (0.9,)}, model="third", settings={"max_failures": "3"})
    comparison = compare_outcomes([*cheap, *dear, *apart])
    ((section,),) = [group.sections for group in comparison.by_model]
    assert (section.subject, section.method, list(section.runs)) == ("model", "costada", MODELS)
    assert section.targets == {"toy": pytest.approx(0.7)}
    found = {name: by["dollars_to_reach"].mean for name, by in section.summaries.items()}
    assert found == {"glm-5": 0.75, "offline": 0.5}
    assert section.summaries["offline"]["normalized_auc"].mean == pytest.approx(0.65)
    assert section.baseline == "glm-5"
    assert section.differences["offline"]["score_at_1"].mean == pytest.approx(0.2)
    assert compare_outcomes(cheap).by_model == ()


def test_a_method_is_averaged_over_problems_that_have_all_models():
    runs = [
        run
        for model in MODELS
        for problem in ("one", "two")
        for run in runs_of({"costada": (0.8, 0.6)}, problem=problem, model=model)
    ]
    (group,) = compare_outcomes(runs).by_model
    assert group.average is not None
    assert group.average.problems == ("one", "two")
    assert [section.problems for section in group.sections] == [("one",), ("two",)]


def test_a_small_budget_is_compared_with_the_larger_one_at_the_same_dollars():
    large = [outcome([(0.3, 0.5), (0.6, 0.7), (1.1, 0.9)], seed=seed) for seed in (0, 1)]
    small = [outcome([(0.3, 0.5), (0.5, 0.8)], budget=0.5, seed=0)]
    (rerun,) = compare_outcomes([*large, *small]).reruns
    assert (rerun.small, rerun.large, rerun.method) == (0.5, 1.0, "costada")
    assert (rerun.rerun.mean, rerun.rerun.n) == (0.8, 1)
    assert (rerun.cutoff.mean, rerun.cutoff.n) == (0.7, 1)


def test_a_small_budget_and_a_larger_one_are_compared_over_the_seeds_that_both_have():
    large = [outcome([(0.6, score), (1.1, 0.9)], seed=seed) for seed, score in ((0, 0.5), (1, 0.7))]
    small = [outcome([(0.6, 0.8)], budget=0.5, seed=seed) for seed in (1, 2)]
    (rerun,) = compare_outcomes([*large, *small]).reruns
    assert (rerun.rerun.mean, rerun.rerun.n) == (0.8, 1)
    assert (rerun.cutoff.mean, rerun.cutoff.n) == (0.7, 1)
    assert rerun.cutoff_objective.mean == 7.0
    assert compare_outcomes([large[0], *small]).reruns == ()


def test_shares_say_how_early_one_method_is_as_far_as_another():
    fast = outcome([(0.25, 0.8), (1.0, 0.9)])
    slow = outcome([(0.5, 0.6), (1.0, 0.8)], method="evox")
    (section,) = compare_outcomes([fast, slow]).sections
    names = ("costada", "evox")
    shares = [[section.shares[one, other] for other in names] for one in names]
    assert shares == [[1.0, 0.25], [None, 1.0]]
    assert len(section.shares) == 4


def test_runs_without_an_objective_are_compared_by_score():
    bare = replace(outcome([]), seed_objective=None, points=(Point(1, 1.0, 0.5, None),))
    (section,) = compare_outcomes([bare]).sections
    assert "objective_at_1" not in section.summaries["costada"]
    assert section.summaries["costada"]["score_at_1"].mean == 0.5
