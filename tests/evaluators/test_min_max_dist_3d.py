import math
from itertools import product

import numpy as np
import pytest
from best_configurations import best_configuration
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial.transform import Rotation

from costada.evaluators.benchmarks.min_max_dist_3d.evaluator import score
from costada.evaluators.registry import problem as problem_named

REFERENCE = 4.165849767
SEED_RATIO = 0.004318762217790128
CORNERS = [list(map(float, corner)) for corner in product((0, 2), repeat=3)]
FACES = [[1, 1, 0], [1, 1, 2], [1, 0, 1], [1, 2, 1], [0, 1, 1], [2, 1, 1]]
CUBE = np.array(CORNERS + FACES)
"""Corners and face centers: neighbours sqrt(2) apart, opposite corners 2 sqrt(3)."""


def test_the_seed_program_scores_as_published():
    problem = problem_named("min_max_dist_3d")
    evaluation = problem.evaluate(problem.initial_program)
    assert evaluation.is_valid
    assert evaluation.metrics["min_max_ratio"] == pytest.approx(SEED_RATIO, rel=1e-12)
    assert evaluation.objective == pytest.approx(231.548, abs=1e-3)
    assert evaluation.score == pytest.approx(SEED_RATIO * REFERENCE, rel=1e-12)
    assert set(evaluation.metrics) == {"min_max_ratio", "combined_score", "eval_time"}


def test_the_problem_names_its_reference_and_human_value():
    problem = problem_named("min_max_dist_3d")
    assert (problem.entry_point, problem.direction) == ("min_max_dist_dim3_14", "minimize")
    assert (problem.reference, problem.human) == (REFERENCE, 4.17)


def test_the_task_says_that_the_score_squares_the_ratio():
    task = problem_named("min_max_dist_3d").task
    assert "(dmin/dmax)^2 times 4.165849767" in task
    assert f"about {1 / math.sqrt(REFERENCE):.5f}" in task


def test_a_face_centered_cube_has_the_ratio_computed_by_hand():
    evaluation = score(CUBE)
    assert evaluation.objective == pytest.approx(12 / 2, rel=1e-12)
    assert evaluation.score == pytest.approx(REFERENCE / 6, rel=1e-12)


def test_the_best_points_found_reach_the_reference():
    evaluation = score(best_configuration("min_max_dist_3d"))
    assert evaluation.objective == pytest.approx(REFERENCE, abs=1e-4)


@given(st.integers(0, 2**32))
def test_turning_the_points_in_space_does_not_matter(seed):
    turned = Rotation.from_rotvec(np.random.default_rng(seed).normal(size=3)).apply(CUBE)
    assert score(turned).objective == pytest.approx(6.0, rel=1e-12)
