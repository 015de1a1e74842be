"""Sweeps whose runs draw from one purse, in a file and in Postgres."""

import json
from decimal import Decimal
from pathlib import Path

import pytest
from swept_runs import FINISHED, REFUSED, paid

from costada.runs.folder import RunFolder
from costada.store.address import RunAddress, shown_address
from costada.store.purse import Purse

pytestmark = pytest.mark.process

TOTAL = 0.05
UNPAID = 3
NAME = "near/costada/seed-1"


def words(near: Path, out: Path, *more: object) -> list[object]:
    given = ("--seeds", 3, "--budget", 0.03, "--jobs", 2, "--json")
    return ["sweep", "--problems", near, "--methods", "costada", "--out", out, *given, *more]


@pytest.mark.parametrize(("kind", "policy"), [("file", "hard"), ("postgres", "crossing")])
def test_all_runs_draw_from_one_purse_until_it_is_empty(
    near, tmp_path, invoke, request, kind, policy
):
    out, store = tmp_path / "sweep", []
    place, path, dsn = str(tmp_path / "purse.sqlite"), tmp_path / "purse.sqlite", None
    if kind == "postgres":
        place = dsn = shown_address(request.getfixturevalue("postgres_address"))
        path, store = None, ["--store", place]
    given = words(near, out, "--purse", place, *store, "--budget-policy", policy)
    result = invoke(*given, "--total", TOTAL)
    assert result.exit_code == FINISHED, result.stderr
    assert f"Largest bill from here on: ${TOTAL:g} in the purse" in result.stderr
    runs = json.loads(result.stdout)
    statuses = [run["status"] for run in runs]
    assert set(statuses) <= {"finished", "cut short", "skipped"}
    # Two runs of $0.03 begin at once: the purse has $0.02 for the second one.
    assert statuses.count("finished") >= 1
    short = [run for run in runs if run["status"] == "cut short"]
    assert short
    assert all(0 < run["budget_at_start"] < 0.03 for run in short)
    assert all(run["budget_at_start"] is None for run in runs if run["status"] == "skipped")

    folders = [out / "near" / "costada" / f"seed-{seed}" for seed in range(3)]
    if dsn:
        names = [f"sweep/{folder.relative_to(out)}" for folder in folders]
        places = [RunAddress(dsn, name) for name in names]
    else:
        places = [RunFolder(each).database for each in folders if (each / "run.sqlite").is_file()]
    bill = sum(map(paid, places), Decimal(0))
    with Purse.existing("sweep", path=path, dsn=dsn) as purse:
        assert purse.spent == bill >= Decimal("0.03")
        if policy == "hard":
            assert bill <= Decimal(str(TOTAL))
        assert purse.remaining == Decimal(str(TOTAL)) - bill

    repeated = invoke(*given, "--total", TOTAL)
    assert repeated.exit_code == FINISHED, repeated.stderr
    assert [run["status"] for run in json.loads(repeated.stdout)] == statuses
    bill = sum(map(paid, places), Decimal(0))
    without = words(near, out, *store, "--budget-policy", policy)
    refused = invoke(*without)
    assert refused.exit_code == REFUSED
    text = " ".join(refused.stderr.split())
    assert f"--purse: is missing, expected {place}, which pays for the runs of" in text
    again = invoke(*given, "--total", 1)
    assert again.exit_code == FINISHED, again.stderr
    ended = json.loads(again.stdout)
    assert [run["status"] for run in ended] == ["finished"] * 3
    assert [run["budget_at_start"] for run in ended] == [run["budget_at_start"] for run in runs]
    with Purse.existing("sweep", path=path, dsn=dsn) as purse:
        assert purse.budget == 1
        assert purse.spent > bill


def test_a_run_that_began_with_less_than_its_budget_is_named_and_kept_apart(near, tmp_path, invoke):
    place, out = tmp_path / "purse.sqlite", tmp_path / "sweep"
    given = [each for each in words(near, out, "--purse", place, "--jobs", 1) if each != "--json"]
    first = invoke(*given, "--seeds", 1, "--total", 0.04)
    assert first.exit_code == FINISHED, first.stderr
    with Purse.existing("sweep", path=place) as purse:
        left = purse.remaining
    assert 0 < left < Decimal("0.03")
    named = "Began with less than --budget, as the purse had no more: 1"
    named += f"\n  {NAME}: ${left:f} of $0.03\n"
    cut = invoke(*given, "--seeds", 2, "--total", 0.04)
    assert f"{NAME}: cut short" in cut.stdout
    resumed = invoke(*given, "--seeds", 2, "--total", 1)
    for shown in (cut, resumed):
        assert shown.exit_code == FINISHED, shown.stderr
        assert named in shown.stdout
    assert "Finished 2 of 2 runs" in resumed.stdout
    compared = invoke("compare", out)
    assert f"1 run from {out / NAME}: budget_at_start {left:f}" in compared.stdout


def test_a_run_that_a_purse_cannot_pay_for_ends_with_a_code_of_its_own(near, tmp_path, invoke):
    place, out = tmp_path / "purse.sqlite", tmp_path / "run"
    policy = ("--budget-policy", "hard", "--max-iterations", 1)
    with Purse(1e-7, name="small", policy="hard", path=place) as purse:
        words = ("run", near, "--out", out, "--purse", f"{place}#small", *policy)
        result = invoke(*words)
        assert result.exit_code == UNPAID
        assert "'small' has $0.0000001 left, expected at least $" in result.stderr
        assert f"costada resume {out} --purse '{place}#small'" in result.stderr
        assert purse.remaining == purse.budget
        purse.raise_to(1)
        result = invoke("resume", out, "--purse", f"{place}#small")
        assert result.exit_code == FINISHED, result.stderr
        assert 0 < purse.spent == paid(out / "run.sqlite")
        assert purse.remaining == 1 - purse.spent


def test_a_purse_that_does_not_exist_is_refused_before_the_run_begins(near, tmp_path, invoke):
    place, out = tmp_path / "purse.sqlite", tmp_path / "run"
    with Purse(1, name="other", path=place):
        result = invoke("run", near, "--out", out, "--purse", f"{place}#mine")
    assert result.exit_code == REFUSED
    assert "--purse: name: got 'mine', expected the name of a purse there" in result.stderr
    assert not out.exists()


@pytest.mark.parametrize(
    ("more", "text"),
    [
        (["--purse", "p.sqlite"], "expected both or neither"),
        (["--total", 1], "expected both or neither"),
        (["--purse", "", "--total", 1], "--purse: got '', expected a file or postgresql://"),
        (["--purse", "p.sqlite", "--total", 1, "--on", "slurm"], "which nodes cannot share"),
        (["--purse", "p.sqlite", "--total", 0], "--total: got 0, expected finite dollars above 0"),
        (["--purse", "p.sqlite", "--total=-1"], "--total: got -1, expected finite dollars above"),
        (["--purse", "p.sqlite", "--total", "nan"], "--total: got nan, expected finite dollars"),
        (["--purse", "p.sqlite", "--total", 0, "--dry-run"], "--total: got 0, expected finite"),
    ],
)
def test_a_purse_that_cannot_pay_is_refused(near, tmp_path, monkeypatch, invoke, more, text):
    monkeypatch.chdir(tmp_path)
    result = invoke(*words(near, tmp_path / "sweep", *more))
    assert result.exit_code == REFUSED
    assert text in " ".join(result.stderr.split())
    assert list(tmp_path.iterdir()) == []


def test_a_refused_sweep_leaves_no_purse_and_a_purse_is_never_lowered(near, tmp_path, invoke):
    place, out = tmp_path / "purse.sqlite", tmp_path / "sweep"
    given = words(near, out, "--purse", place)
    refused = invoke(*given, "--model", "openai:no-such-model", "--total", 5)
    assert refused.exit_code == REFUSED
    assert list(tmp_path.iterdir()) == []
    short = ("--seeds", 1, "--max-iterations", 1)
    assert invoke(*given, *short, "--total", 0.5).exit_code == FINISHED
    lower = invoke(*given, *short, "--total", 0.1)
    assert lower.exit_code == REFUSED
    assert "--purse: budget: got 0.1, expected at least 0.5" in lower.stderr
