"""Who gets the money of a run that draws from a purse of others."""

import shutil
import signal
import sqlite3
from dataclasses import replace
from decimal import Decimal

import pytest
from begun_commands import BegunCommand
from langgraph.runtime import RunControl
from waiting import within

from costada import load_run
from costada.reports.progress import LoggedNotices
from costada.runs.config import RunConfig
from costada.runs.folder import RunFolder
from costada.runs.plan import plan_run
from costada.runs.runner import execute_run
from costada.runs.shared_purse import PurseAddress, account_name, paid_from
from costada.runs.stored_run import run_at
from costada.store.accounts import OverBudget
from costada.store.address import shown_address

pytestmark = pytest.mark.process

NAME = "shared"


@pytest.fixture
def run(near, tmp_path):
    """A run with its own folder, and the plan of it: run(budget_policy="hard")."""

    def planned(**settings):
        config = RunConfig(problem=str(near), budget=0.5, preflight=False, **settings)
        folder = RunFolder(tmp_path / "run")
        folder.claim(config)
        return plan_run(config), folder

    return planned


@pytest.fixture
def address(tmp_path):
    return PurseAddress(str(tmp_path / "purse.sqlite"), NAME)


def test_a_run_that_failed_returns_its_money(run, address):
    plan, folder = run()
    with address.create(1, "crossing") as purse:
        with (
            pytest.raises(ValueError, match=r"broken with 0\.5 of 0\.5"),
            paid_from(address, plan, folder) as paid,
        ):
            raise ValueError(f"broken with {purse.remaining} of {paid.budget}")
        assert purse.remaining == 1


def test_a_run_that_was_interrupted_keeps_its_money_for_its_resumption(run, address):
    plan, folder = run()
    with address.create(1, "crossing") as purse:
        with paid_from(address, plan, folder):
            pass
        assert purse.remaining == Decimal("0.5")
        purse.child("another", 0.5)
        with paid_from(address, plan, folder) as paid:
            assert paid.budget == 0.5


def test_the_money_of_a_run_that_another_process_works_on_is_left_to_it(run, address):
    plan, folder = run()
    with address.create(1, "crossing") as purse, folder.hold():
        with pytest.raises(ValueError, match="at work"), paid_from(address, plan, folder):
            raise ValueError("another process is at work")
        assert not purse.found(account_name(folder)).is_closed
        assert purse.remaining == Decimal("0.5")


def test_a_hard_budget_begins_with_the_expected_cost_of_an_iteration(run, address):
    plan, folder = run(budget_policy="hard", reference_cost=0.02)
    least = plan.least_budget
    assert least == Decimal("0.02")
    assert replace(plan, budget=0.01).least_budget == Decimal("0.01")
    # No less than a request can cost: 0.0016 at the prices of the offline model.
    assert Decimal("0.001") < replace(plan, budget=1e-6).least_budget < Decimal("0.002")
    with address.create(least - Decimal("1e-9"), "hard") as purse:
        with pytest.raises(OverBudget, match="expected at least"), paid_from(address, plan, folder):
            pass
        assert purse.remaining == purse.budget
        purse.raise_to(least)
        with paid_from(address, plan, folder) as paid:
            paid.graph()
        with pytest.raises(OverBudget), paid_from(address, plan, RunFolder(folder.path / "other")):
            pass


def test_a_run_spends_its_own_budget_where_another_of_its_name_failed_before_it_began(run, address):
    plan, folder = run()
    with address.create(2, "crossing"):
        with (
            pytest.raises(ValueError, match="no room"),
            paid_from(address, replace(plan, budget=1.5), folder),
        ):
            raise ValueError("no room")
        with paid_from(address, plan, folder) as paid:
            assert paid.budget == plan.budget == 0.5


def test_a_purse_with_less_than_a_run_can_count_pays_for_none(run, address):
    plan, folder = run()
    with address.create(Decimal("1e-12"), "crossing") as purse:
        with pytest.raises(OverBudget, match="expected at least"), paid_from(address, plan, folder):
            pass
        assert purse.remaining == purse.budget


def test_a_grant_of_many_digits_is_never_rounded_up(run, address):
    plan, folder = run(budget_policy="hard")
    most = Decimal("0.123456789012345678")  # as a float it is 0.12345678901234568
    with address.create(most, "hard"), paid_from(address, plan, folder) as paid:
        assert paid.budget == 0.123456789
        assert paid.purse.child("the run", paid.budget).budget == Decimal("0.123456789")


def test_a_run_is_not_resumed_without_its_purse_even_before_its_first_checkpoint(
    invoke, near, address, tmp_path
):
    address.create(1, "crossing").close()
    out, purse = tmp_path / "run", ("--purse", str(address))
    assert invoke("run", near, "--budget", 0.01, *purse, "--out", out).exit_code == 0
    with sqlite3.connect(out / "run.sqlite") as file:  # as if it had been killed before it
        for table in ("checkpoints", "writes"):
            file.execute(f"DELETE FROM {table}")
    file.close()
    refused = invoke("resume", out, "--budget", 0.02)
    assert refused.exit_code == 1
    assert f"expected the purse it began with, '{NAME}'" in refused.output
    assert invoke("resume", out, "--budget", 0.02, *purse).exit_code == 0


def test_a_run_that_was_killed_before_it_had_a_row_is_not_resumed_without_its_purse(
    invoke, near, address, tmp_path
):
    out, purse = tmp_path / "run", ("--purse", str(address))
    words = ("run", near, "--budget", 0.01, "--out", out, *purse)
    with address.create(1, "crossing") as shared:
        command = BegunCommand(tmp_path / "run.txt", *words)
        within(60, lambda: (out / "settings.json").exists())
        command.send_signal(signal.SIGKILL)
        command.exit_code()
        for file in out.iterdir():  # the kill may have come too late
            if file.name != "settings.json":
                file.unlink()
        for _ in range(2):  # the second time with the settings that the first one has saved
            refused = invoke("resume", out, "--budget", 0.02)
            assert refused.exit_code == 1
            assert f"expected the purse it began with, '{NAME}'" in refused.output
        assert invoke("resume", out, *purse).exit_code == 0
        assert shared.spent > 0


def test_a_stored_run_that_has_no_row_is_not_resumed_without_its_purse(
    near, postgres_address, tmp_path
):
    config = RunConfig(problem=str(near), budget=0.01, preflight=False)
    run = run_at(f"{shown_address(postgres_address)}#run", tmp_path / "run")
    run.claim(config, NAME)
    run.save(run.load())
    with pytest.raises(ValueError, match=f"expected the purse it began with, '{NAME}'"):
        execute_run(plan_run(config), run, LoggedNotices(), RunControl())


def test_a_restored_purse_gets_what_a_resumed_run_has_spent(invoke, near, address, tmp_path):
    address.create(1, "crossing").close()
    backup, out = tmp_path / "backup.sqlite", tmp_path / "run"
    shutil.copy(address.path, backup)
    words = "--purse", str(address), "--max-iterations"
    assert invoke("run", near, "--budget", 0.5, "--out", out, *words, 3).exit_code == 0
    shutil.copy(backup, address.path)
    assert invoke("resume", out, *words, 4).exit_code == 0
    run = load_run(out)
    with address.open() as purse:
        assert float(purse.spent) == pytest.approx(run.spent)
