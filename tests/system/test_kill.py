"""Runs that are killed again and again: what they paid, and where they end."""

import json

import pytest
from crash_runs import BUDGET, check_against_bill, kill_often, record_of, serve

NUM_KILLS = 6


@pytest.mark.parametrize("draw", [1, 2, 3])
def test_a_run_that_is_killed_ends_as_an_undisturbed_one(tmp_path, whole, draw):
    server, provider = serve()
    with server:
        options = {"lost_calls": "ignore"}
        hits = kill_often(tmp_path / "killed", server, provider, draw, NUM_KILLS, options)
    killed = record_of(tmp_path / "killed")
    assert hits >= NUM_KILLS // 2
    check_against_bill(killed, provider)
    assert killed.steps == whole.steps
    assert killed.best_program == whole.best_program
    assert killed.archives == whole.archives
    assert killed.spent == whole.spent == sum(call.cost for call in killed.done)


def test_calls_lost_in_a_kill_count_at_their_bound_so_that_no_bill_exceeds_what_is_reported(
    tmp_path,
):
    server, provider = serve()
    with server:
        kill_often(tmp_path / "killed", server, provider, 4, NUM_KILLS, {})
    record = record_of(tmp_path / "killed")
    check_against_bill(record, provider)
    assert record.lost
    assert record.spent == sum(call.cost + call.bound for call in record.calls)
    assert record.spent >= provider.bill
    before = [json.loads(line)["spent"] for line in record.steps.splitlines()][:-1]
    assert all(spent < BUDGET for spent in before)
