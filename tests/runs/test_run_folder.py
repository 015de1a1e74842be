import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from costada.runs.config import RunConfig
from costada.runs.folder import RunFolder, unused_folder
from costada.runs.runner import StepLog

Invoke = Callable[..., Any]

CONFIG = RunConfig(problem="circle_packing")


def test_a_new_run_claims_its_folder_and_saves_its_settings(tmp_path):
    folder = RunFolder(tmp_path / "deep" / "run")
    folder.claim(CONFIG)
    assert folder.load() == CONFIG


def test_a_second_run_is_refused_with_the_resume_command(tmp_path):
    folder = RunFolder(tmp_path)
    folder.claim(CONFIG)
    with pytest.raises(ValueError, match=f"Resume it: costada resume {tmp_path}"):
        folder.claim(CONFIG)


def test_the_resume_command_quotes_a_path_with_spaces():
    assert RunFolder(Path("my run")).resume_command == "costada resume 'my run'"


@pytest.mark.parametrize("name", ["best_program.py", "report.png", "steps.jsonl", "run.sqlite"])
def test_a_file_that_the_run_would_overwrite_is_named(tmp_path, name):
    (tmp_path / name).write_text("mine")
    with pytest.raises(ValueError, match=f"{name}: exists, the run would overwrite it"):
        RunFolder(tmp_path).claim(CONFIG)
    assert not (tmp_path / "settings.json").exists()


def test_a_file_in_place_of_the_folder_is_refused(tmp_path):
    (tmp_path / "run").write_text("mine")
    with pytest.raises(ValueError, match="is a file, expected a folder"):
        RunFolder(tmp_path / "run").claim(CONFIG)


def test_runs_without_a_given_folder_are_numbered(tmp_path):
    (tmp_path / "toy-1").mkdir()
    assert unused_folder("toy", tmp_path).path == tmp_path / "toy-2"


def test_going_on_with_other_settings_names_the_difference(tmp_path):
    folder = RunFolder(tmp_path)
    folder.claim(CONFIG)
    with pytest.raises(ValueError, match=r"started with other settings: seed was 0, got 3\Z"):
        folder.check_same(CONFIG.model_copy(update={"seed": 3}))


def test_the_step_log_holds_every_iteration_once_and_in_order(tmp_path, make_row):
    path = tmp_path / "steps.jsonl"
    path.write_text("left over")
    log = StepLog(path, [make_row(iteration=1)])
    for iteration in (1, 2, 2, 3):
        log.append(make_row(iteration=iteration))
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert [row["iteration"] for row in rows] == [1, 2, 3]
    assert rows[2] == make_row(iteration=3)


@pytest.mark.parametrize(("sandbox", "end"), [(None, ""), ("process", " --trust")])
def test_a_run_says_how_its_user_resumes_it_whatever_its_sandbox(
    near, invoke, tmp_path, sandbox, end
):
    out, new = tmp_path / "run", tmp_path / "fork"
    chosen = ["--sandbox", sandbox] if sandbox else []
    limit = ["--max-iterations", 2, "--max-failures", 1]
    assert invoke("run", near, *limit, *chosen, "--out", out).exit_code in (0, 1)
    forked = invoke("fork", out, "--at", 1, "--out", new, *end.split())
    assert forked.exit_code == 0, forked.output
    assert forked.output.replace("\n", "").endswith(f"costada resume {new}{end}")
    assert invoke("resume", new, *end.split()).exit_code in (0, 1)
