"""A run whose evaluations cost money: every view shows its dollars by role, and they add up."""

import time
from collections import Counter
from decimal import Decimal
from io import StringIO
from typing import Any

import pytest
from fakes import evaluate_value, toy_problem
from rich.console import Console
from toy_graph import PRICE, scripted

from costada.experiments.comparison.outcomes import find_outcomes
from costada.reports.export import TableName, table_of
from costada.reports.page.feed import Feed
from costada.reports.progress import LineProgress, judged_by_role
from costada.reports.summary import sum_by_role
from costada.reports.trace import rows_of_file, trace_table
from costada.reports.tracking import step_message
from costada.runs.discovery import discover
from costada.runs.folder import RunFolder
from costada.store.history import RunHistory, UsedCalls
from costada.store.run_store import RunStore

pytestmark = pytest.mark.process


def slow_evaluation(code: str) -> Any:
    time.sleep(0.01)
    return evaluate_value(code)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Twelve iterations, with guides, at a dollar for every hundred seconds of a worker."""
    folder = tmp_path_factory.mktemp("dollars") / "run"
    discover(
        toy_problem(evaluate=slow_evaluation),
        scripted(),
        price=PRICE,
        budget=1.0,
        max_iterations=12,
        compute_price=36.0,
        out=folder,
    )
    return RunFolder(folder)


@pytest.fixture(scope="module")
def ledger(run):
    """Exact dollars by role and iteration, from the rows of the calls."""
    with RunStore(run.database, is_read_only=True) as store:
        (run_id,) = store.run_ids()
        iterations = {0: 0} | dict(store.iterations(run_id))
        dollars = Counter[tuple[int, str]]()
        for call in store.call_log.calls(run_id):
            # A guide has a ticket of its own, and is charged to the step that follows.
            iteration = iterations.get(call.ticket) or next(
                (iterations[later] for later in sorted(iterations) if later > call.ticket), 0
            )
            dollars[0 if not call.ticket else iteration, call.role] += call.cost
        assert sum(dollars.values()) == store.ledger.spent(run_id, 12)
    return dollars


def of_role(ledger, role):
    return sum((dollars for (_, each), dollars in ledger.items() if each == role), Decimal(0))


def test_the_parts_of_a_step_are_those_of_the_ledger_and_add_up_to_its_cost(run, ledger):
    rows = [row for row in rows_of_file(run.database) if "dollars_by_role" in row]
    assert rows
    for row in rows:
        parts = row["dollars_by_role"]
        assert parts["compute"] > 0
        assert list(parts) == [
            role for role in ("generation", "retry", "guide", "compute") if role in parts
        ]
        for role, dollars in parts.items():
            assert dollars == float(ledger[row["iteration"], role])
        assert sum(parts.values()) == pytest.approx(row["step_cost"], abs=1e-12)
    assert any("guide" in row["dollars_by_role"] for row in rows)


def test_the_terminal_shows_them(run):
    rows = rows_of_file(run.database)
    table = trace_table(rows)
    assert "by role" in table.header
    place = table.header.index("by role")
    found = next(
        (row, line[place])
        for row, line in zip(rows, table.rows, strict=True)
        if "dollars_by_role" in row
    )
    parts = found[0]["dollars_by_role"]
    assert found[1] == ", ".join(f"{role} ${dollars:.6f}" for role, dollars in parts.items())
    out = StringIO()
    LineProgress(Console(file=out, width=400)).step(found[0])
    assert f"step ${found[0]['step_cost']:.4f} ({found[1]})" in out.getvalue()


def test_export_page_trackers_and_comparison_hold_them(run, ledger):
    computed = float(of_role(ledger, "compute"))
    started = float(ledger[0, "compute"])
    assert started > 0
    with RunHistory.of(run.database) as history:
        run_id = history.last_run()
        steps = list(table_of(history, TableName.STEPS, run_id).rows())
        calls = list(table_of(history, TableName.CALLS, run_id).rows())
        sums = sum_by_role(history.used(run_id))
        assert judged_by_role(history.used(run_id)) == {
            role: of_role(ledger, role) for role in sums if sums[role].calls
        }
    assert sum(step["dollars_by_role.compute"] or 0 for step in steps) == pytest.approx(
        computed - started
    )
    assert sum(c["dollars"] for c in calls if c["role"] == "compute") == pytest.approx(computed)
    assert sums["compute"].dollars == of_role(ledger, "compute")
    figures: Any = Feed(run).figures()
    assert figures["roles"] == [
        *("generation", "retry", "guide"),
        *("evaluation", "candidate", "compute"),
    ]
    place = figures["calls"]["columns"].index("role")
    assert sum(row[place] == "compute" for row in figures["calls"]["rows"]) == sums["compute"].calls
    row = next(row for row in rows_of_file(run.database) if "dollars_by_role" in row)
    _, values = step_message(row)
    assert values["dollars_by_role/compute"] == row["dollars_by_role"]["compute"]
    (outcome,) = find_outcomes(run.path).outcomes
    assert outcome.dollars_by_role["compute"] == computed
    assert sum(outcome.dollars_by_role.values()) == pytest.approx(outcome.points[-1].spent)


def test_a_run_whose_evaluations_are_free_shows_none():
    free = [UsedCalls("generation", "", calls=3, dollars=Decimal(1))]
    assert judged_by_role(free) == {}
    assert [*sum_by_role(free)] == ["generation", "retry", "guide"]
