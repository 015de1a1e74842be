"""Sweeps whose runs draw from one purse, in a file and in Postgres."""

import json
import subprocess
import sys
from decimal import Decimal
from pathlib import Path

import pytest

from costada.runs.folder import RunFolder
from costada.store.address import RunAddress
from costada.store.postgres_connections import name_of
from costada.store.purse import Purse
from costada.store.run_store import RunStore

FINISHED, REFUSED = 0, 2
PATIENCE_SECONDS = 200
COMMAND = [sys.executable, "-c", "from costada.cli.main import main; main()"]
TOTAL = 0.05


def costada(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *map(str, arguments)], capture_output=True, text=True, timeout=PATIENCE_SECONDS
    )


def words(near: Path, out: Path, *more: object) -> list[object]:
    given = ("--seeds", 3, "--budget", 0.03, "--jobs", 2, "--json")
    return ["sweep", "--problems", near, "--methods", "costada", "--out", out, *given, *more]


def ledger(place) -> Decimal:
    """What the calls of a run cost."""
    with RunStore.at(place, is_read_only=True) as store:
        ids = store.run_ids()
        return sum((call.cost for each in ids for call in store.call_log.calls(each)), Decimal(0))


@pytest.mark.parametrize("policy", ["crossing"])
@pytest.mark.parametrize("kind", ["file", "postgres"])
def test_all_runs_draw_from_one_purse_until_it_is_empty(near, tmp_path, request, kind, policy):
    out, store = tmp_path / "sweep", []
    place, path, dsn = str(tmp_path / "purse.sqlite"), tmp_path / "purse.sqlite", None
    if kind == "postgres":
        place = dsn = name_of(request.getfixturevalue("postgres_address"))
        path, store = None, ["--store", place]
    given = words(near, out, "--purse", place, *store, "--budget-policy", policy)
    result = costada(*given, "--total", TOTAL)
    assert result.returncode == FINISHED, result.stderr
    assert f"Largest bill from here on: ${TOTAL:g} in the purse" in result.stderr
    runs = json.loads(result.stdout)
    assert {run["status"] for run in runs} <= {"finished", "skipped"}
    assert [run["status"] for run in runs][:2] == ["finished", "finished"]

    folders = [out / "near" / "costada" / f"seed-{seed}" for seed in range(3)]
    if dsn:
        names = [f"sweep/{folder.relative_to(out)}" for folder in folders]
        places = [RunAddress(dsn, name) for name in names]
    else:
        places = [RunFolder(each).database for each in folders if (each / "run.sqlite").is_file()]
    paid = sum(map(ledger, places), Decimal(0))
    with Purse.existing("sweep", path=path, dsn=dsn) as purse:
        assert purse.spent == paid > 0
        assert paid >= Decimal("0.03")
        if policy == "hard":
            assert paid <= Decimal(str(TOTAL))
        assert purse.remaining == Decimal(str(TOTAL)) - paid

    again = costada(*given, "--total", 1)
    assert again.returncode == FINISHED, again.stderr
    assert [run["status"] for run in json.loads(again.stdout)] == ["finished"] * 3
    with Purse.existing("sweep", path=path, dsn=dsn) as purse:
        assert purse.budget == 1
        assert purse.spent > paid


@pytest.mark.parametrize(
    ("more", "text"),
    [
        (["--purse", "p.sqlite"], "expected both or neither"),
        (["--total", 1], "expected both or neither"),
        (["--purse", "p.sqlite", "--total", 1, "--on", "slurm"], "which nodes cannot share"),
        (["--purse", "p.sqlite", "--total", 0], "expected finite dollars above 0"),
    ],
)
def test_a_purse_that_cannot_pay_is_refused(near, tmp_path, more, text):
    result = costada(*words(near, tmp_path / "sweep", *more))
    assert result.returncode == REFUSED
    assert text in " ".join(result.stderr.split())
