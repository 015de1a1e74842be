import json
import os
import re
import shutil
from typing import Any

import pytest

from costada.experiments.sweep.sweep import (
    LastStep,
    Status,
    SweepGrid,
    SweepRun,
    check_inputs,
    hold_sweep,
    last_step,
    sweep_runs,
    with_progress,
)
from costada.runs.config import RunConfig, load_config
from costada.runs.folder import RunFolder

SHARED = {"max_iterations": 3}


def grid(**changes: Any) -> SweepGrid:
    fields = {"problems": ("circle_packing",), "methods": ("costada",), "seeds": (0,)}
    return SweepGrid(**{**fields, "budgets": (), **changes})


def names(runs: tuple[SweepRun, ...]) -> list[str]:
    return [run.name for run in runs]


@pytest.fixture
def copied(finished, tmp_path):
    """The finished run of three iterations, in the place of a sweep's only run."""
    config = load_config(finished / "settings.json")
    run = SweepRun("near/costada/seed-0", config, RunFolder(tmp_path / "near/costada/seed-0"))
    shutil.copytree(finished, run.folder.path)
    return run


def test_every_combination_is_a_run_and_first_seeds_come_first(tmp_path):
    wanted = grid(
        problems=("circle_packing", "min_max_dist_2d"), methods=("costada", "uniform"), seeds=(4, 7)
    )
    runs = sweep_runs(wanted, SHARED, tmp_path)
    assert names(runs) == [
        "circle_packing/costada/seed-4",
        "circle_packing/uniform/seed-4",
        "min_max_dist_2d/costada/seed-4",
        "min_max_dist_2d/uniform/seed-4",
        "circle_packing/costada/seed-7",
        "circle_packing/uniform/seed-7",
        "min_max_dist_2d/costada/seed-7",
        "min_max_dist_2d/uniform/seed-7",
    ]
    assert runs[1].folder.path == tmp_path / "circle_packing" / "uniform" / "seed-4"
    assert runs[1].config == RunConfig(
        problem="circle_packing", method="uniform", seed=4, max_iterations=3
    )


def test_more_than_one_budget_gets_folders_of_its_own(tmp_path):
    runs = sweep_runs(grid(budgets=("0.5", "1")), SHARED, tmp_path)
    assert names(runs) == [
        "circle_packing/costada/budget-0.5/seed-0",
        "circle_packing/costada/budget-1.0/seed-0",
    ]
    assert [run.config.budget for run in runs] == [0.5, 1.0]
    assert names(sweep_runs(grid(budgets=("0.5",)), SHARED, tmp_path)) == [
        "circle_packing/costada/seed-0"
    ]


def test_a_preset_says_the_budget_that_is_not_given(tmp_path):
    (run,) = sweep_runs(grid(), {"preset": "gpt-5.4"}, tmp_path)
    assert (run.config.budget, run.config.reference_cost) == (5.0, 0.1)


def test_a_problem_folder_gives_its_name_to_its_runs(near, tmp_path):
    (run,) = sweep_runs(grid(problems=(f"{near}/",)), SHARED, tmp_path)
    assert run.name == "near/costada/seed-0"
    assert run.config.problem == str(near)


def test_a_run_asked_for_twice_is_refused(tmp_path):
    with pytest.raises(ValueError, match="seed-0: asked for twice, expected each run once"):
        sweep_runs(grid(methods=("costada", "costada")), SHARED, tmp_path)


def test_two_problem_folders_of_one_name_are_refused(near, tmp_path):
    shutil.copytree(near, tmp_path / "near")
    with pytest.raises(ValueError, match=r"got two problems of that name, .*near and .*near"):
        sweep_runs(grid(problems=(str(near), str(tmp_path / "near"))), SHARED, tmp_path)


def test_a_run_without_a_folder_waits(tmp_path):
    (run,) = sweep_runs(grid(), SHARED, tmp_path)
    assert with_progress(run) == run
    assert (run.status, run.step, run.has_begun) == (Status.WAITING, None, False)


def test_a_finished_run_is_known_by_its_checkpoint(copied):
    os.utime(copied.folder.report)
    found = with_progress(copied)
    assert found.status is Status.FINISHED
    assert found.step is not None
    assert found.step.iteration == 3


def test_a_run_killed_before_its_report_is_finished_once_more(copied):
    copied.folder.report.unlink()
    assert with_progress(copied).status is Status.WAITING


def test_a_run_with_other_settings_is_refused(copied):
    asked = SweepRun(
        copied.name, copied.config.model_copy(update={"max_iterations": 9}), copied.folder
    )
    with pytest.raises(ValueError, match="other settings: max_iterations was 3, got 9"):
        with_progress(asked)


def test_files_that_are_no_run_are_refused(tmp_path):
    (run,) = sweep_runs(grid(), SHARED, tmp_path)
    run.folder.path.mkdir(parents=True)
    run.folder.steps.write_text("")
    with pytest.raises(ValueError, match=re.escape("steps.jsonl: exists")):
        with_progress(run)


def test_only_problems_that_are_still_needed_are_tried(copied, tmp_path):
    (lost,) = sweep_runs(grid(problems=("no_such_problem",)), SHARED, tmp_path)
    gone = SweepRun("gone", lost.config, lost.folder, status=Status.FINISHED)
    check_inputs([gone, copied])
    with pytest.raises(ValueError, match="problem is 'no_such_problem'"):
        check_inputs([gone, lost])


def test_two_sweeps_in_one_folder_are_refused(tmp_path):
    with (
        hold_sweep(tmp_path),
        pytest.raises(ValueError, match="another sweep is at work here"),
        hold_sweep(tmp_path),
    ):
        pass
    with hold_sweep(tmp_path):
        assert tmp_path.is_dir()


def test_a_new_folder_that_stays_empty_is_removed(tmp_path):
    with hold_sweep(tmp_path / "sweep"):
        assert (tmp_path / "sweep").is_dir()
    assert not (tmp_path / "sweep").exists()


def test_a_file_in_the_place_of_the_folder_is_refused(tmp_path):
    (tmp_path / "sweep").touch()
    with (
        pytest.raises(ValueError, match="is a file, expected a folder for the sweep"),
        hold_sweep(tmp_path / "sweep"),
    ):
        pass


def test_the_last_whole_row_says_how_far_a_run_has_come(tmp_path, make_row):
    steps = tmp_path / "steps.jsonl"
    assert last_step(steps) is None
    rows = [
        make_row(iteration=1, spent=0.01),
        make_row(iteration=2, spent=0.03, best_score=0.6, best_objective=None),
    ]
    steps.write_text("".join(json.dumps(row) + "\n" for row in rows) + '{"iteration": 3')
    assert last_step(steps) == LastStep(2, 0.03, 0.6, None)


def test_a_row_still_being_written_is_no_row(tmp_path):
    (tmp_path / "steps.jsonl").write_text('{"iteration": 1')
    assert last_step(tmp_path / "steps.jsonl") is None
