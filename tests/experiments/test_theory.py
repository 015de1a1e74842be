import json
from xml.etree import ElementTree

import pytest
from matplotlib.image import imread

from costada.experiments.theory.proposition import Finding, Instance, Share, findings
from costada.experiments.theory.report import (
    conclusions,
    theory_json,
    theory_text,
    write_theory_figure,
)


@pytest.fixture(scope="module")
def found():
    return findings((2, 3), (2, 10), (20, 60))


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
    worst = lines.index("Share of OPT at the worst place, B/c = 60")
    assert lines[worst + 1] == "K                       2    2    3    3"
    assert max(map(len, lines)) <= 80
    assert "no-intervention-gating" not in text
    assert "best-of-n" in text


def test_the_record_holds_every_share(found):
    record = json.loads(theory_json(found, ["so it is"]))
    assert record["conclusions"] == ["so it is"]
    row = record["rows"][0]
    assert (row["num_frontiers"], row["cost_ratio"], row["num_steps"]) == (2, 2, 20)
    assert row["bound"] == 1.0
    assert row["shares"]["ranking"] == {"mean": 0.95, "worst": 0.95, "num_guides": 0}
    assert row["shares"].keys() == {policy["name"] for policy in record["policies"]}


def test_the_conclusions_are_computed_from_the_shares(found):
    texts = conclusions(found)
    assert texts[0].startswith("Bound: of 32 shares of cost-blind methods 0 are above")
    beyond = Share(mean=0.9, worst=0.9, num_guides=5)
    changed = [
        Finding(each.instance, {**each.shares, "uniform": beyond, "costada": beyond})
        for each in found
    ]
    texts = conclusions(changed)
    assert "6 are above" in texts[0]
    assert "The nearest is uniform" in texts[0]
    assert "It exceeds 1/K + 1/kappa in 3 of 4 cases" in texts[2]
    assert "80 guides were due" in texts[-1]


def test_the_picture_is_written_in_both_formats_and_always_the_same(found, tmp_path):
    paths = [tmp_path / "theory.svg", tmp_path / "theory.png"]
    write_theory_figure(found, paths)
    first = paths[0].read_bytes()
    ElementTree.fromstring(first)
    height, width = imread(paths[1]).shape[:2]
    assert width > 1500
    assert height > 600
    write_theory_figure(found, paths[:1])
    assert paths[0].read_bytes() == first


def test_the_command_prints_and_keeps_what_it_found(invoke, tmp_path):
    result = invoke("theory", "--steps", "60,20", "--out", tmp_path / "theory")
    assert result.exit_code == 0, result.output
    record = json.loads((tmp_path / "theory" / "theory.json").read_text())
    assert [row["num_steps"] for row in record["rows"]] == [20, 60] * 12
    assert "Bound: of 96 shares of cost-blind methods 0 are above" in result.output
    files = {path.name for path in (tmp_path / "theory").iterdir()}
    assert files == {"theory.json", "theory.svg", "theory.png"}


@pytest.mark.parametrize("steps", ["", "0,20", "many"])
def test_steps_that_are_no_whole_numbers_above_0_are_refused(invoke, steps):
    result = invoke("theory", "--steps", steps)
    assert result.exit_code == 2
    assert f"--steps: got {steps!r}, expected whole numbers above 0" in result.output


def test_a_file_in_place_of_the_folder_is_refused(invoke, tmp_path):
    (tmp_path / "theory").touch()
    result = invoke("theory", "--out", tmp_path / "theory")
    assert result.exit_code == 2
    assert "File exists" in result.output


def test_a_gain_is_the_same_in_every_step_and_leaves_scores_below_one():
    assert Instance(2, 2, 50).gain * 50 == pytest.approx(0.8)
