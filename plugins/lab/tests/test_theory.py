import json
from xml.etree import ElementTree

import pytest
from matplotlib.image import imread

from costada.plugins.lab.theory.games import Share
from costada.plugins.lab.theory.proposition import Finding, Instance, findings
from costada.plugins.lab.theory.theory_report import (
    conclusions,
    conclusions_on_unknown_gains,
    theory_json,
    theory_text,
    unknown_gains_text,
    write_theory_figure,
)
from costada.plugins.lab.theory.unknown_gains import GAINS, Learned, learn_gains


@pytest.fixture(scope="module")
def found():
    return findings((2, 3), (2, 10), (20, 60))


@pytest.fixture(scope="module")
def cases():
    return learn_gains((20, 60))


def test_the_tables_show_every_case_with_its_bound_and_equal_methods_once(found):
    text = theory_text(found)
    lines = text.splitlines()
    assert lines[:4] == [
        "Share of OPT, K = 2, mean over the 2 places of the cheap frontier",
        "kappa                   2    2   10   10",
        "B/c                    20   60   20   60",
        "bound                1.00 1.00 0.60 0.60",
    ]
    assert lines[4] == "ranking              0.95 0.98 0.55 0.85"
    # only a step of 2 is within 7 % of a budget, that of 60: one try, which loses 1/60
    assert lines[7] == "budgeted-thompson    1.00 0.98 1.00 1.00"
    worst = lines.index("Share of OPT at the worst place, B/c = 60")
    assert lines[worst + 1] == "K                       2    2    3    3"
    assert max(map(len, lines)) <= 80
    assert "no-intervention-gating" not in text
    assert "best-of-n" in text


def test_the_record_holds_every_share(found, cases):
    record = json.loads(theory_json(found, cases, ["so it is"]))
    assert record["conclusions"] == ["so it is"]
    row = record["rows"][0]
    assert (row["num_frontiers"], row["cost_ratio"], row["num_steps"]) == (2, 2, 20)
    assert row["bound"] == 1.0
    assert row["shares"]["ranking"] == {
        "mean": 0.95,
        "worst": 0.95,
        "deviation": 0.0,
        "num_games": 2,
        "num_guides": 0,
    }
    policies = {policy["name"] for policy in record["policies"]}
    assert row["shares"].keys() == policies - {"cheapest"}
    unknown = record["unknown_gains"]
    assert [(row["gains"], row["num_steps"]) for row in unknown["rows"]] == [
        (gains.name, count) for gains in GAINS for count in (20, 60)
    ]
    for row in unknown["rows"]:
        for share in row["shares"].values():
            assert share["num_games"] == 40
            assert share["error"] == pytest.approx(share["deviation"] / 40**0.5)


def test_the_table_of_unknown_gains_shows_means_with_their_errors(cases):
    text = unknown_gains_text(cases)
    lines = text.splitlines()
    assert lines[0] == "Share of OPT, unknown gains, K = 4, kappa = 10, B/c = 20, 40 games"
    assert lines[1].split() == ["gains", "even", "rare", "rising", "steep"]
    share = cases[0].shares["cheapest"]
    (row,) = [line for line in lines[: lines.index("")] if line.startswith("cheapest")]
    assert row.split()[1:4] == [f"{share.mean:.3f}", "+-", f"{share.error:.3f}"]
    assert max(map(len, lines)) <= 80
    assert "no-intervention-gating" not in text


def test_the_conclusions_on_unknown_gains_name_the_best_policies(cases):
    best = Share(mean=0.999, worst=0.9, deviation=0.0, num_games=40, num_guides=0)
    changed = [
        Learned(each.gains, each.instance, {**each.shares, "uniform": best}) for each in cases
    ]
    text = conclusions_on_unknown_gains(changed)[3]
    for gains in GAINS:
        assert f"{gains.name}: uniform 0.999 +- 0.000, costada-thompson " in text
    own = [
        Learned(each.gains, each.instance, {**each.shares, "costada-thompson": best})
        for each in cases
    ]
    assert "even: costada-thompson 0.999 +- 0.000;" in conclusions_on_unknown_gains(own)[3]


def test_the_conclusions_on_unknown_gains_hold_every_budget_and_the_cheapest(cases):
    even = [case for case in cases if case.gains == "even"]
    texts = conclusions_on_unknown_gains(cases)[1:3]
    for text, case, budget in zip(texts, even, (20, 60), strict=True):
        assert text.startswith(f"With even chances, K = 4, kappa = 10, B/c = {budget}: ")
        assert f", cheapest {case.shares['cheapest'].mean:.3f} +- " in text


def test_the_conclusions_are_computed_from_the_shares(found):
    texts = conclusions(found)
    assert texts[0].startswith("Bound: of 40 shares of cost-blind methods 0 are above")
    beyond = Share(mean=0.9, worst=0.9, deviation=0.0, num_games=2, num_guides=5)
    changed = [
        Finding(each.instance, {**each.shares, "uniform": beyond, "costada": beyond})
        for each in found
    ]
    texts = conclusions(changed)
    assert "6 are above" in texts[0]
    assert "The nearest is uniform" in texts[0]
    assert "It exceeds 1/K + 1/kappa in 3 of 4 cases" in texts[2]
    assert "80 guides were due" in texts[-1]


def test_the_picture_is_written_in_both_formats_and_always_the_same(found, cases, tmp_path):
    paths = [tmp_path / "theory.svg", tmp_path / "theory.png"]
    write_theory_figure(found, cases, paths)
    first = paths[0].read_bytes()
    ElementTree.fromstring(first)
    height, width = imread(paths[1]).shape[:2]
    assert width > 1500
    assert height > 600
    write_theory_figure(found, cases, paths[:1])
    assert paths[0].read_bytes() == first


def test_the_command_prints_and_keeps_what_it_found(invoke, tmp_path):
    result = invoke("theory", "--steps", "60,20", "--out", tmp_path / "theory")
    assert result.exit_code == 0, result.output
    record = json.loads((tmp_path / "theory" / "theory.json").read_text())
    assert [row["num_steps"] for row in record["rows"]] == [20, 60] * 12
    assert "Bound: of 120 shares of cost-blind methods 0 are above" in result.output
    files = {path.name for path in (tmp_path / "theory").iterdir()}
    assert files == {"theory.json", "theory.svg", "theory.png"}


@pytest.mark.parametrize("steps", ["", "0,20", "many"])
def test_steps_that_are_no_whole_numbers_above_0_are_refused(invoke, steps):
    result = invoke("theory", "--steps", steps)
    assert result.exit_code == 2
    assert f"--steps: got {steps!r}, expected integers above 0" in result.output


def test_a_file_in_place_of_the_folder_is_refused(invoke, tmp_path):
    (tmp_path / "theory").touch()
    result = invoke("theory", "--out", tmp_path / "theory")
    assert result.exit_code == 2
    assert "is a file, expected a folder" in result.output


def test_a_gain_is_the_same_in_every_step_and_leaves_scores_below_one():
    assert Instance(2, 2, 50).game(0).gain * 50 == pytest.approx(0.8)
