"""Runs whose candidates have several files, killed and resumed."""

import time

import pytest
from crash_runs import EVALUATION, check_against_bill, kill_often, record_of, run_to_end, serve
from file_programs import evaluate_files, files_problem, hashed_files

pytestmark = pytest.mark.process

NUM_KILLS = 3
OPTIONS = {"lost_calls": "ignore", "budget": 0.05}


def slow_evaluation(files):
    time.sleep(EVALUATION)
    return evaluate_files(files)


def run_files(folder, url, options):
    run_to_end(folder, url, options, files_problem(evaluate=slow_evaluation))


def test_a_killed_run_of_several_files_ends_as_an_uninterrupted_one(tmp_path):
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    server, _ = serve(hashed_files)
    with server:
        run_files(whole, server.url, OPTIONS)
    server, provider = serve(hashed_files)
    with server:
        hits = kill_often(killed, server, provider, 1, NUM_KILLS, OPTIONS, run_files)
    record = record_of(killed)
    assert hits >= NUM_KILLS // 2
    check_against_bill(record, provider)
    assert record.result == record_of(whole).result
    assert (killed / "best_program" / "pkg" / "value.py").is_file()
    assert not list(killed.glob(".best_program*"))
