"""Whole runs on the simulated landscape, and the command that compares them."""

from hashlib import sha256
from itertools import pairwise

import pytest
from typer.testing import CliRunner

from costada.cli.simulate import CURVES_FILE, simulate
from costada.controller.constants import Constants
from costada.controller.methods import METHODS
from costada.experiments.landscape.batch import Batch, in_order, methods_named, simulated
from costada.experiments.landscape.simulation import INPUT_UNITS, OUTPUT_UNITS, simulate_run


@pytest.mark.parametrize("method", METHODS)
def test_a_run_ends_with_the_step_that_crosses_its_budget(method):
    outcome = simulate_run(method, 5, 0.3)
    spent = [point.spent for point in outcome.points]
    assert spent[-1] >= 0.3 > spent[-2]
    assert all(later > earlier for earlier, later in pairwise(spent))
    assert sum(outcome.dollars_by_role.values()) == pytest.approx(spent[-1])


@pytest.mark.parametrize(
    ("method", "digest"),
    [
        ("costada", "f72a142f6644"),
        ("adaevolve", "bf5f61685648"),
        ("evox", "3ad92fea87d4"),
        ("no-cost-calibration", "65104f292ebb"),
        ("no-remaining-budget", "ef5af630b41d"),
        ("no-intervention-gating", "d117a8baa4a8"),
        ("uniform", "53907b85b1c1"),
        ("best-of-n", "7853fc076d4e"),
    ],
)
def test_the_runs_of_a_seed_are_those_on_record(method, digest):
    """Recorded once; equal to the last digit on every platform and in every version."""
    points = [
        (point.spent, point.best_score)
        for seed in (5, 6, 17)
        for point in simulate_run(method, seed, 1.0).points
    ]
    assert sha256(repr(points).encode()).hexdigest()[:12] == digest


@pytest.mark.parametrize("method", METHODS)
def test_a_seed_always_leads_to_the_same_run(method):
    assert simulate_run(method, 5, 0.3) == simulate_run(method, 5, 0.3)


def test_the_best_score_never_falls_and_begins_with_the_seed():
    outcome = simulate_run("costada", 2, 0.5)
    scores = [outcome.seed_score, *(point.best_score for point in outcome.points)]
    assert scores[0] == 0.3642
    assert scores == sorted(scores)


def test_a_run_ends_at_the_limit_of_iterations():
    outcome = simulate_run("uniform", 2, 100.0, Constants(max_iterations=7))
    assert [point.iteration for point in outcome.points] == [1, 2, 3, 4, 5, 6, 7]


def test_only_methods_with_guides_pay_for_them():
    paid = {name: simulate_run(name, 1, 1.0).dollars_by_role["guide"] for name in METHODS}
    assert {name for name, dollars in paid.items() if dollars == 0} == {"uniform", "best-of-n"}


def test_a_token_costs_what_the_paper_says():
    # 0.60 and 1.92 dollars per million, in parts of 1e-8 dollars
    assert (INPUT_UNITS, OUTPUT_UNITS) == (60, 192)


def test_an_unknown_method_is_refused_with_the_nearest_name():
    with pytest.raises(ValueError, match="costada"):
        simulate_run("cosdata", 0, 1.0)


@pytest.mark.parametrize("text", ["", "costada,costada", "nothing"])
def test_a_list_of_methods_must_name_different_known_ones(text):
    with pytest.raises(ValueError):
        methods_named(text)


def test_all_stands_for_every_method():
    assert methods_named("all") == tuple(METHODS)


def test_processes_make_no_difference():
    batch = Batch(("uniform", "costada"), (0, 1, 2), 0.1)
    found = []
    for num_jobs in (1, 2):
        with simulated(batch, num_jobs) as outcomes:
            found.append(in_order(batch, list(outcomes)))
    assert found[0] == found[1]
    assert [(each.method, each.seed) for each in found[0]] == batch.runs


@pytest.fixture
def command():
    import typer

    app = typer.Typer()
    app.command()(simulate)
    return lambda *words: CliRunner().invoke(app, words)


def test_the_command_prints_every_method_and_writes_the_curves(command, tmp_path):
    words = ("--methods", "costada,uniform", "--seeds", "3", "--budget", "0.1", "--jobs", "1")
    result = command(*words, "--out", str(tmp_path))
    again = command(*words, "--out", str(tmp_path))
    assert result.exit_code == again.exit_code == 0
    for word in ("uniform", "minus costada", "guide $", "overshoot", "runs per minute"):
        assert word in result.stdout
    assert len((tmp_path / CURVES_FILE).read_text().splitlines()) == 6


def test_the_command_refuses_an_unknown_method(command):
    result = command("--methods", "cosdata")
    assert result.exit_code == 2
    assert "did you mean" in result.stderr or "costada" in result.stderr
