"""A run that improves a repository by its own command, measured twice, killed and resumed."""

import pytest
from crash_runs import check_against_bill, kill_often, record_of, run_to_end, serve
from file_programs import START, hashed_files
from made_repositories import make_repository, problem_of

pytestmark = pytest.mark.process

NUM_KILLS = 1
OPTIONS = {"lost_calls": "ignore", "budget": 0.015}
BENCH = "from pkg.value import value\n\nprint(value())\n"


def run_repository(folder, url, options):
    problem = problem_of(
        folder.parent / "repository",
        folder.parent / "problem",
        "python bench.py",
        "repeats = 2",
        "pkg/*.py",
    )
    run_to_end(folder, url, options, problem)


def test_a_killed_run_of_a_repository_ends_as_an_uninterrupted_one(tmp_path):
    make_repository(tmp_path / "repository", {**START, "bench.py": BENCH})
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    server, _ = serve(hashed_files)
    with server:
        run_repository(whole, server.url, OPTIONS)
    server, provider = serve(hashed_files)
    with server:
        hits = kill_often(killed, server, provider, 1, NUM_KILLS, OPTIONS, run_repository)
    record = record_of(killed)
    assert hits == NUM_KILLS
    check_against_bill(record, provider)
    assert record.result == record_of(whole).result
