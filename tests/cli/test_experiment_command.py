"""`costada experiment`: runs that were tossed for, as a table, in words and as JSON."""

import json
import shutil

import pytest
from fakes import ScriptedModel, hashed_answer, toy_problem

from costada.runs.discovery import discover

NUM_SEEDS = 3


def run_in(folder, **options):
    given = {"budget": 0.1, "price": "1,2", "order": "launch", **options}
    return discover(toy_problem(), ScriptedModel(answer=hashed_answer), out=folder, **given)


@pytest.fixture(scope="module")
def tossed(tmp_path_factory):
    """A folder with runs of three seeds that tossed for guides."""
    folder = tmp_path_factory.mktemp("tossed")
    for seed in range(NUM_SEEDS):
        run_in(folder / f"seed-{seed}", seed=seed, experiment="guides")
    return folder


def answer_of(invoke, *arguments):
    result = invoke("experiment", *arguments)
    assert result.exit_code == 0, result.output
    return result.stdout


def refusal(invoke, *arguments):
    result = invoke("experiment", *arguments)
    assert result.exit_code == 2, result.output
    return result.stderr


def test_the_effect_is_shown_with_its_runs_tosses_and_dollars(invoke, tossed):
    (found,) = json.loads(answer_of(invoke, tossed, "--json"))["estimates"]
    assert (found["experiment"], found["problem"], found["method"]) == ("guides", "toy", "costada")
    assert found["runs"] == [str(tossed / f"seed-{seed}") for seed in range(NUM_SEEDS)]
    assert found["arms"] == ["guide", "no guide"]
    assert min(found["tosses"].values()) > 0
    rows = [
        json.loads(line)
        for seed in range(NUM_SEEDS)
        for line in (tossed / f"seed-{seed}" / "steps.jsonl").read_text().splitlines()
    ]
    spent = sum(row["step_cost"] for row in rows)
    assert found["spent"] == pytest.approx(spent)
    arms = {arm: [row for row in rows if row["arm"] == arm] for arm in found["arms"]}
    gain, jumps = found["effects"]
    for arm, own in arms.items():
        # all tosses are equally likely, so weights cancel
        assert jumps["of_arm"][arm] == pytest.approx(
            sum(row["global_gain"] > 1e-6 for row in own) / len(own)
        )
    assert gain["rate"] == "gain per dollar"
    words = answer_of(invoke, tossed)
    for part in ("guides", "jump rate", "with: guide; without: no guide.", f"${spent:.2f}"):
        assert part in words


def test_the_order_of_the_places_does_not_matter(invoke, tossed):
    places = [tossed / f"seed-{seed}" for seed in range(NUM_SEEDS)]
    one, other = (
        json.loads(answer_of(invoke, *order, "--json")) for order in (places, places[::-1])
    )
    assert one == other


def test_one_run_has_an_interval_over_its_tosses_and_says_so(invoke, tossed):
    folder = tossed / "seed-0"
    (found,) = json.loads(answer_of(invoke, folder, "--json"))["estimates"]
    assert all(each["is_within_run"] for each in found["effects"])
    assert "One run: the interval is over its tosses" in answer_of(invoke, folder)


def test_a_run_without_an_experiment_is_refused_by_name(invoke, tmp_path):
    run_in(tmp_path / "plain", max_iterations=2)
    assert refusal(invoke, tmp_path) == (
        f"costada: {tmp_path / 'plain'}: no experiment, expected runs of costada run --experiment\n"
    )


def test_what_is_missing_is_named_beside_the_estimate_of_the_other_runs(invoke, tossed, tmp_path):
    run_in(tmp_path / "plain", max_iterations=2)
    (tmp_path / "empty").mkdir()
    begun = tmp_path / "begun"
    begun.mkdir()
    settings = json.loads((tossed / "seed-0" / "settings.json").read_text())
    (begun / "settings.json").write_text(json.dumps({**settings, "seed": NUM_SEEDS}))
    reasons = {
        "empty": "holds no run",
        "missing": "is not a folder",
        "begun": "has not started",
        "plain": "has no experiment",
    }
    found = json.loads(answer_of(invoke, tossed, *(tmp_path / name for name in reasons), "--json"))
    assert {each["place"]: each["reason"] for each in found["left_out"]} == {
        str(tmp_path / name): reason for name, reason in reasons.items()
    }
    (estimate,) = found["estimates"]
    assert len(estimate["runs"]) == NUM_SEEDS


def test_a_folder_without_a_run_is_refused(invoke, tmp_path):
    assert "holds no run" in refusal(invoke, tmp_path)
    assert "is not a folder" in refusal(invoke, tmp_path / "missing")


def test_a_seed_counts_once_and_other_settings_are_kept_apart(invoke, tossed, tmp_path):
    shutil.copytree(tossed, tmp_path / "a")
    shutil.copytree(tossed / "seed-0", tmp_path / "b")
    run_in(tmp_path / "c", experiment="guides", controller={"base_patience": 3})
    found = json.loads(answer_of(invoke, tmp_path, "--json"))
    (left_out,) = found["left_out"]
    assert left_out["place"] == str(tmp_path / "b")
    assert left_out["reason"].startswith(f"seed 0 and settings of {tmp_path / 'a' / 'seed-0'}")
    assert sorted(len(each["runs"]) for each in found["estimates"]) == [1, NUM_SEEDS]
    assert "toy [" in answer_of(invoke, tmp_path)


def test_runs_with_other_budgets_are_told_apart_by_the_budget(invoke, tossed, tmp_path):
    shutil.copytree(tossed, tmp_path / "a")
    run_in(tmp_path / "b", experiment="guides", budget=0.02)
    words = answer_of(invoke, tmp_path)
    assert "toy [" not in words
    for budget in ("$0.1", "$0.02"):
        assert f", costada, {budget}: " in words


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--experiment", "router"), "--experiment: got 'router' with one model"),
        (("--experiment", "guides", "--method", "uniform"), "'uniform', which buys no guides"),
        (("--experiment", "luck"), "--experiment: got 'luck', expected 'guides', 'calibration'"),
    ],
)
def test_an_experiment_that_contradicts_the_settings_is_refused_before_the_run(
    invoke, tmp_path, options, message
):
    result = invoke("run", "circle_packing", *options, "--out", tmp_path / "run")
    assert result.exit_code == 2
    assert message in result.stderr
    assert not (tmp_path / "run").exists()


def test_a_sweep_with_a_method_without_the_part_is_refused_before_any_run(invoke, tmp_path):
    methods = ("--methods", "costada,uniform", "--experiment", "guides")
    given = ("--problems", "circle_packing", *methods, "--out", tmp_path / "sweep")
    result = invoke("sweep", *given)
    assert result.exit_code == 2
    assert "'guides' with method 'uniform', which buys no guides" in result.stderr
    assert not list((tmp_path / "sweep").rglob("settings.json"))
