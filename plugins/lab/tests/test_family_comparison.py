"""Methods compared over the family: weights, worst world, correction, verdicts and tables."""

import pytest

from costada.experiments.comparison.metrics import Interval
from costada.plugins.lab.recorded.family import BINS, CONTEXT, FAMILY, PARENT, World
from costada.plugins.lab.recorded.family_comparison import (
    METRICS,
    FamilyBatch,
    InWorld,
    Judgement,
    holm,
    judge,
    measure,
    verdict,
    weighted_means,
)
from costada.plugins.lab.recorded.family_report import family_tables, markdown

FIRST, SECOND, THIRD = World(CONTEXT), World(PARENT), World(BINS)
WEIGHTS = {FIRST: 0.7, SECOND: 0.29, THIRD: 0.01}


def test_a_method_is_judged_by_the_weighted_mean_and_the_worst_credible_world():
    differences = {FIRST: [0.02, 0.04], SECOND: [-0.02, 0.0], THIRD: [-1.0, -1.0]}
    found = judge(differences, WEIGHTS)
    assert found.mean == pytest.approx(0.7 * 0.03 - 0.29 * 0.01 - 0.01)
    # the third world is too light to be credible, and too light for the interval
    assert (found.worst, found.in_worst) == (SECOND, pytest.approx(-0.01))
    assert list(found.in_credible) == [FIRST, SECOND]
    assert (found.interval.low, found.interval.high) == (pytest.approx(-0.02), pytest.approx(0.04))
    # a difference of at most 0 is drawn in the second and in the third world
    assert found.p_value == pytest.approx(2 * 0.3, abs=0.05)


def test_weights_of_some_worlds_are_scaled_to_those():
    found = judge({FIRST: [0.1, 0.1], SECOND: [0.0, 0.0]}, WEIGHTS)
    assert found.mean == pytest.approx(0.1 * 0.7 / 0.99)


def test_the_smallest_p_value_is_corrected_for_all_comparisons_and_none_falls_below_an_earlier():
    assert holm({"a": 0.01, "b": 0.02, "c": 0.03}) == pytest.approx(
        {"a": 0.03, "b": 0.04, "c": 0.04}
    )
    assert holm({"a": 0.9, "b": 0.8}) == {"b": 1.0, "a": 1.0}


@pytest.mark.parametrize(
    ("mean", "low", "high", "corrected", "in_worlds", "expected"),
    [
        (0.02, 0.01, 0.03, 0.01, (0.02, -0.005), "better"),
        (0.02, 0.01, 0.03, 0.01, (0.02, -0.006), "not distinguished"),
        (0.02, 0.01, 0.03, 0.06, (0.02, 0.02), "not distinguished"),
        (-0.02, -0.03, -0.01, 0.01, (-0.02, 0.005), "worse"),
        (-0.02, -0.03, -0.01, 0.01, (-0.02, 0.006), "not distinguished"),
        (0.001, -0.01, 0.01, 1.0, (0.001, -0.02), "as good"),
        (0.001, -0.011, 0.01, 1.0, (0.001, 0.001), "not distinguished"),
        (0.001, -0.01, 0.01, 1.0, (0.001, -0.021), "not distinguished"),
    ],
)
def test_a_difference_is_called_what_the_plan_says(mean, low, high, corrected, in_worlds, expected):
    worlds = {world: InWorld(each, None) for world, each in zip(FAMILY, in_worlds, strict=False)}
    found = Judgement(mean, Interval(low, high), 0.5, worlds)
    assert verdict(found, corrected) == expected


def test_runs_are_measured_and_shown_with_their_differences_by_seed():
    batch = FamilyBatch(("costada", "uniform"), (3, 4), 0.1, (FIRST, SECOND))
    measured = dict(measure(run, batch.budget) for run in batch.runs)
    assert set(measured) == set(batch.runs)
    auc = [
        sum(measured["uniform", world, seed][0] for seed in batch.seeds) / 2
        for world in batch.worlds
    ]
    means = weighted_means(measured, batch, WEIGHTS, "uniform")
    assert means[0] == pytest.approx((0.7 * auc[0] + 0.29 * auc[1]) / 0.99)
    first, *others = family_tables(measured, batch, WEIGHTS)
    assert first.header == ("method", *METRICS)
    assert [row[1] for row in first.rows if row[0] == "uniform"] == [f"{means[0]:.4f}"]
    assert [table.rows[0][0] for table in others] == ["uniform"] * 3
    assert f"| uniform | {means[0]:.4f} |" in markdown([first])


def test_the_command_refuses_the_family_with_options_of_other_comparisons(invoke):
    result = invoke("simulate", "--world", "family", "--parallel", "2")
    assert result.exit_code == 2
    assert "--world: got family with --parallel" in " ".join(result.stderr.split())
