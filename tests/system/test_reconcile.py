"""Killed runs whose requests in doubt are settled by a bill: the ledger is what was billed."""

import os
from decimal import Decimal
from math import inf

import pytest
from billed_runs import COLUMNS, TimedProvider, export, reconcile
from billing_server import BillingServer
from crash_runs import record_of, run_to_end
from waiting import within
from warm import PROCESSES

from costada import load_run
from costada.reports.page.feed import Feed
from costada.reports.picture import report_of
from costada.reports.run_index import RunIndex
from costada.runs.folder import RunFolder
from costada.store.purse import Purse
from costada.store.run_store import RunStore

pytestmark = pytest.mark.process

KILLED = 8


@pytest.fixture
def provider():
    return TimedProvider()


@pytest.fixture
def server(provider):
    with BillingServer(default=provider.answer) as server:
        yield server


def run_killed(folder, server, provider, options, run=run_to_end):
    """Begin a run, kill it while its requests wait for answers, and resume it to its end."""
    provider.last_answered = KILLED
    process = PROCESSES.Process(target=run, args=(folder, server.url, options))
    process.start()
    within(60, lambda: provider.billed.total() > KILLED)
    process.kill()
    process.join()
    provider.last_answered = inf
    run(folder, server.url, options)


@pytest.mark.parametrize("bills_lost", [False, True])
@pytest.mark.parametrize("parallel", [1, 4])
def test_the_ledger_of_a_killed_run_becomes_the_bill(
    parallel, bills_lost, provider, server, tmp_path
):
    folder, bill = tmp_path / "run", tmp_path / "bill.csv"
    options = {"parallel": parallel, "gateway": False}
    run_killed(folder, server, provider, options)
    before = record_of(folder)
    assert before.lost
    billed = export(bill, before, provider, bills_lost=bills_lost)
    assert before.bill_at_most > billed
    unchanged = reconcile(folder, "--bill", bill, "--dry-run")
    assert "Nothing was changed" in unchanged.output
    assert record_of(folder) == before

    done = reconcile(folder, "--bill", bill)
    assert done.exit_code == 0, done.output
    assert f"{len(before.lost)} settled" in done.output
    after = record_of(folder)
    assert after.bill_at_most == after.spent == billed
    assert after.steps == before.steps
    again = reconcile(folder, "--bill", bill)
    assert "settled" not in again.output
    assert record_of(folder) == after


def test_what_is_shown_of_a_settled_run_is_its_bill(provider, server, tmp_path):
    folder, bill = tmp_path / "runs" / "run", tmp_path / "bill.csv"
    run_killed(folder, server, provider, {"gateway": False})
    index, feed = (
        RunIndex(folder.parent, RunFolder),
        Feed(RunFolder(folder)),
    )  # of a page that is open
    (row,) = index.all_rows()
    assert (row["spent"], row["state"]) == (float(record_of(folder).spent), "finished")
    assert feed.figures()["standing"]["state"] == "finished"

    billed = float(export(bill, record_of(folder), provider, bills_lost=False))
    assert reconcile(folder, "--bill", bill).exit_code == 0
    assert load_run(folder).spent == billed
    (row,) = index.all_rows()
    assert row["spent"] == row["curve"][-1][0] == billed
    assert sum(dollars for _, dollars in row["roles"]) == pytest.approx(billed)
    figures = feed.figures()
    assert spent_on(figures) == spent_on(Feed(RunFolder(folder)).figures()) == billed
    assert figures["standing"]["words"].startswith("Stopped; resume with")  # it has money again
    assert report_of(RunFolder(folder)).title.endswith(f"for ${billed:.4f}")


def spent_on(figures):
    """What a page shows as spent: that of its last step."""
    columns, rows = figures["steps"]["columns"], figures["steps"]["rows"]
    return rows[-1][columns.index("spent")]


def test_the_money_of_a_settled_request_is_spent_by_the_resumed_run(provider, server, tmp_path):
    folder, bill = tmp_path / "run", tmp_path / "bill.csv"
    options = {"gateway": False}
    run_killed(folder, server, provider, options)
    before = record_of(folder)
    run_to_end(folder, server.url, options)
    assert record_of(folder) == before  # it has nothing left
    export(bill, before, provider, bills_lost=False)
    reconcile(folder, "--bill", bill)
    left = record_of(folder).spent
    run_to_end(folder, server.url, options)
    after = record_of(folder)
    assert after.spent > left
    assert after.spent == after.bill_at_most
    assert after.steps.count("\n") > before.steps.count("\n")
    assert after.steps.startswith(before.steps)


def test_a_purse_gets_back_what_was_not_billed(provider, server, tmp_path):
    folder, bill, file = tmp_path / "run", tmp_path / "bill.csv", tmp_path / "purse.sqlite"
    with Purse(1, path=file):
        pass
    run_killed(folder, server, provider, file, run=run_from_purse)
    record = record_of(folder)
    with Purse(1, path=file) as purse:
        assert purse.spent == record.bill_at_most
    billed = export(bill, record, provider, bills_lost=False)
    assert reconcile(folder, "--bill", bill).exit_code == 0
    with Purse(1, path=file) as purse:  # as after a crash between the run and its purse
        assert purse.spent == record.bill_at_most
        # of an iteration that the run file has lost since
        purse.below(run_id_of(folder)).put("ticket 99", cost=Decimal("0.5"))
    assert reconcile(folder, "--bill", bill, "--purse", f"{file}#purse").exit_code == 0
    with Purse(1, path=file) as purse:
        assert purse.spent == billed + Decimal("0.5")


def run_id_of(folder):
    with RunStore(folder / "run.sqlite", is_read_only=True) as store:
        return store.last_run()


def run_from_purse(folder, url, file):
    with Purse(1, path=file) as purse:
        run_to_end(folder, url, {"gateway": False, "purse": purse})


def test_a_run_that_is_named_twice_is_settled_once(provider, server, tmp_path):
    folder, bill = tmp_path / "run", tmp_path / "bill.csv"
    run_killed(folder, server, provider, {"gateway": False})
    before = record_of(folder)
    billed = export(bill, before, provider, bills_lost=True)
    done = reconcile(tmp_path, folder, "--bill", bill)
    assert (done.exit_code, done.output.count(" settled")) == (0, 1)
    assert record_of(folder).spent == billed


def test_an_export_says_nothing_of_the_time_after_it_was_written(provider, server, tmp_path):
    folder, bill = tmp_path / "run", tmp_path / "bill.csv"
    run_killed(folder, server, provider, {"gateway": False})
    before = record_of(folder)
    export(bill, before, provider, bills_lost=False)
    os.utime(bill)
    done = reconcile(folder, "--bill", bill)
    assert "ends before the last moment" in done.output
    assert record_of(folder) == before


def test_what_cannot_be_reconciled_is_refused(provider, server, tmp_path):
    bill = tmp_path / "bill.csv"
    bill.write_text(f"{COLUMNS}\ngen-1,1000,0.1,1,1,stand-in\n")
    missing = reconcile(tmp_path / "no-run", "--bill", bill)
    assert (missing.exit_code, "holds no run" in missing.output) == (2, True)
    no_file = reconcile(tmp_path, "--bill", tmp_path / "none.csv")
    assert (no_file.exit_code, "none.csv" in no_file.output) == (2, True)
    provider.last_answered = 0
    folder = tmp_path / "run"
    process = PROCESSES.Process(target=run_to_end, args=(folder, server.url, {"gateway": False}))
    process.start()
    try:
        within(60, lambda: provider.billed.total() > 0)
        running = reconcile(folder, "--bill", bill)
        assert (running.exit_code, "is running" in running.output) == (2, True)
    finally:
        process.kill()
        process.join()
        provider.last_answered = inf
