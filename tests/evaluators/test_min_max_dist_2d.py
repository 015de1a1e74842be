import math

import numpy as np
import pytest
from best_configurations import best_configuration

from costada.evaluators.benchmarks.min_max_dist_2d.evaluator import score
from costada.evaluators.registry import problem as problem_named

REFERENCE = 12.889266112
SEED_RATIO = 0.0015354732902234823


def test_the_seed_program_scores_as_published():
    problem = problem_named("min_max_dist_2d")
    evaluation = problem.evaluate(problem.initial_program)
    assert evaluation.is_valid
    assert evaluation.metrics["min_max_ratio"] == pytest.approx(SEED_RATIO, rel=1e-12)
    assert evaluation.objective == pytest.approx(651.265, abs=1e-3)
    assert evaluation.score == pytest.approx(SEED_RATIO * REFERENCE, rel=1e-12)
    assert set(evaluation.metrics) == {"min_max_ratio", "combined_score", "eval_time"}


def test_the_problem_names_its_reference_and_human_value():
    problem = problem_named("min_max_dist_2d")
    assert (problem.entry_point, problem.direction) == ("min_max_dist_dim2_16", "minimize")
    assert (problem.reference, problem.human) == (REFERENCE, 12.89)


def test_the_task_says_that_the_score_squares_the_ratio():
    task = problem_named("min_max_dist_2d").task
    assert "(dmin/dmax)^2 times 12.889266112" in task
    assert f"about {1 / math.sqrt(REFERENCE):.4f}" in task


def test_a_hexagonal_patch_has_the_ratio_computed_by_hand():
    """Rows of 3, 4, 5 and 4 points at distance 1: the ends of the longest row are 4 apart."""
    rows = [(3, 0), (4, 1), (5, 2), (4, 3)]
    points = [
        [k - (count - 1) / 2, row * math.sqrt(3) / 2] for count, row in rows for k in range(count)
    ]
    evaluation = score(np.array(points))
    assert evaluation.objective == pytest.approx(16.0, rel=1e-12)
    assert evaluation.score == pytest.approx(REFERENCE / 16, rel=1e-12)


def test_the_best_points_found_reach_the_reference():
    evaluation = score(best_configuration("min_max_dist_2d"))
    assert evaluation.objective == pytest.approx(REFERENCE, abs=1e-4)
