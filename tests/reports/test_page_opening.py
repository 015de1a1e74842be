"""The data that a run's page opens with."""

import json
from dataclasses import replace

import pytest
from fakes import ScriptedModel, hashed_answer, toy_problem
from page_runs import candidate, settings, step, write_steps

from costada.evaluators.registry import problem
from costada.reports.page.feed import Feed
from costada.reports.page.opening import MAX_SHOWN, standing
from costada.reports.trace import failures_in_a_row
from costada.runs.config import SETTINGS, RunConfig
from costada.runs.discovery import discover
from costada.runs.folder import RunFolder
from costada.store.rows import RunSetup
from costada.values.candidate import Program

TASK = "Find \u2264 the number.\n" * 20


@pytest.fixture
def run(tmp_path):
    return settings(tmp_path / "run")


def test_the_task_is_the_one_that_the_models_read(tmp_path):
    given = {"price": "1,2", "max_iterations": 1, "out": tmp_path / "run"}
    model = ScriptedModel(answer=hashed_answer)
    discover(replace(toy_problem(), task=TASK), model, budget=1.0, **given)
    figures = Feed(RunFolder(tmp_path / "run")).figures()
    assert figures["task"] == TASK


def test_a_run_that_holds_no_task_shows_that_of_its_benchmark(tmp_path, run):
    write_steps(run, [step(1)])
    assert Feed(run).figures()["task"] == ""
    known = settings(tmp_path / "known", problem="circle_packing")
    assert Feed(known).figures()["task"] == problem("circle_packing").task
    write_steps(known, [step(1)])
    assert Feed(known).figures()["task"] == problem("circle_packing").task


def test_a_setup_whose_task_is_no_text_is_refused():
    known = {"problem": {"name": "a", "direction": "maximize"}, "settings": {}}
    assert RunSetup.read(json.dumps(known)).task == ""
    assert RunSetup.read(json.dumps({**known, "task": "abc"})).task == "abc"
    with pytest.raises(ValueError, match="expected facts as strings"):
        RunSetup.read(json.dumps({**known, "task": 3}))


def test_the_best_program_comes_whole_with_its_difference_and_once(run):
    best = Program.of("x = 1\ny = 3\n")
    feed = Feed(run)
    found = [candidate(1, program=best), candidate(2, id="1.1>2@2", migrated_in=2)]
    steps = [step(1, global_gain=0.1), step(2)]
    write_steps(run, steps, candidates=found)
    shown = feed.figures()["best"]
    assert (shown["id"], shown["files"]) == ("1.1", [("", best.text)])
    assert ("added", "y = 3") in shown["diff"]
    assert feed.figures(1)["best"] is None
    assert (feed.figures(1)["task"], feed.figures(1)["settings"]) == (None, None)
    write_steps(run, [step(3, global_gain=0.2)])
    assert feed.figures(2)["best"]["id"] == "3.1"


def test_a_large_program_is_named_but_not_shown(run):
    files = {"a.py": "x = 1\n", "b.txt": "y" * MAX_SHOWN}
    found = [candidate(1, program=Program.of(files))]
    write_steps(run, [step(1, global_gain=0.1)], candidates=found)
    shown = Feed(run).figures()["best"]
    assert shown["files"] == [("a.py", "x = 1\n"), ("b.txt", None)]
    assert shown["diff"] is None


def test_settings_are_listed_with_their_meaning_and_without_the_problem_s_path():
    listed = {each.name: each for each in RunConfig(problem="/home/ann/toy", seed=3).listed}
    assert list(listed) == list(SETTINGS)
    assert listed["problem"].value == "toy"
    assert (listed["seed"].value, listed["seed"].is_default) == ("3", False)
    assert (listed["preflight"].value, listed["preflight"].is_default) == ("yes", True)
    assert (listed["preset"].value, listed["timeout"].value) == ("none", "the problem's")
    assert listed["budget"].meaning == "Dollars to spend (B)."


def test_failed_attempts_count_back_to_the_last_usable_program():
    steps = [step(1, attempts=3, failure="no"), step(2), step(3, failure="no")]
    assert failures_in_a_row(steps, 9, 1) == 1
    assert failures_in_a_row([*steps, step(4, attempts=2, failure="no")], 9, 1) == 3
    assert failures_in_a_row(steps[:2], 9, 1) == 0


def test_steps_that_land_after_the_limit_of_failures_count_until_all_in_flight_have_landed():
    steps = [step(number, attempts=3, failure="no") for number in (1, 2, 3)]
    steps.append(step(4, attempts=1, failure="no"))
    assert failures_in_a_row(steps, 6, 3) == 10
    resumed = [*steps, step(5, attempts=2, failure="no")]
    assert failures_in_a_row(resumed, 6, 3) == 2


def test_a_run_that_was_resumed_after_failures_counts_from_the_start_again(tmp_path):
    """It was stopped by them once, and now stands still for another reason."""
    folder = settings(tmp_path / "run", max_failures=3)
    steps = [step(number, failure="no") for number in range(1, 5)]
    assert failures_in_a_row(steps[:3], 3, 1) == 3
    assert failures_in_a_row(steps, 3, 1) == 1
    stopped, resumed = (standing(folder, folder.load(), each, {}) for each in (steps[:3], steps))
    assert stopped["words"].startswith("Stopped: too many attempts in a row")
    assert resumed["words"] == f"Stopped; resume with {folder.resume_command}"
