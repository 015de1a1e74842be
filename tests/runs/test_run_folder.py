import json
import os
import re
import shutil
import stat
from functools import partial
from pathlib import Path

import pytest

from costada.experiments.sweep.run_process import RunProcess
from costada.plugins.gateway.gateway_protocol import hold_address
from costada.plugins.gateway.response_journal import Journal
from costada.runs.config import RunConfig
from costada.runs.folder import RunFolder, unused_folder
from costada.runs.run_files import StepLog
from costada.store.purse import Purse
from costada.store.run_store import RunStore

pytestmark = pytest.mark.process

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


@pytest.mark.parametrize(
    "name", ["best_program.py", "report.html", "row.json", "steps.jsonl", "run.sqlite"]
)
def test_a_file_that_the_run_would_overwrite_is_named(tmp_path, name):
    (tmp_path / name).write_text("mine")
    with pytest.raises(ValueError, match=f"{name}: exists, the run would overwrite it"):
        RunFolder(tmp_path).claim(CONFIG)
    assert not (tmp_path / "settings.json").exists()


def test_a_file_in_place_of_the_folder_is_refused(tmp_path):
    (tmp_path / "run").write_text("mine")
    with pytest.raises(ValueError, match="is a file, expected a folder"):
        RunFolder(tmp_path / "run").claim(CONFIG)


def test_the_folder_of_the_problem_is_refused(tmp_path, monkeypatch):
    problem = tmp_path / "mine"
    problem.mkdir()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=r"^mine: is the problem's folder, expected another one"):
        RunFolder(Path("mine")).claim(RunConfig(problem=str(problem)))
    assert not any(problem.iterdir())


def test_runs_without_a_given_folder_are_numbered(tmp_path):
    (tmp_path / "toy-1").mkdir()
    assert unused_folder("toy", tmp_path).path == tmp_path / "toy-2"


def test_resuming_with_other_settings_names_the_difference(tmp_path):
    folder = RunFolder(tmp_path)
    folder.claim(CONFIG)
    with pytest.raises(ValueError, match=r"started with other settings: seed was 0, got 3\Z"):
        folder.check_same(CONFIG.model_copy(update={"seed": 3}))


def test_the_step_log_holds_every_iteration_once_and_in_order(tmp_path, make_row):
    path = tmp_path / "steps.jsonl"
    path.write_text("left over")
    log = StepLog(path, [json.dumps(make_row(iteration=1))])
    for iteration in (1, 2, 2, 3):
        log.append(iteration, json.dumps(make_row(iteration=iteration)))
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


JOURNAL = "gateway.sqlite"
REPLACED = (
    *("steps.jsonl", "best_program.py", "report.html", "row.json", "settings.json"),
    *("comparison.md", "comparison.csv", "comparison.tex", "comparison.html"),
)
REFUSED = ("run.lease", "run.sqlite", "run.sqlite-wal", "run.sqlite-shm", "run.sqlite-journal")
OTHERS = tuple(f".{name}" for name in REPLACED)
"""Names under which a file could be prepared before it takes its place."""


def planted(finished, place, names, victims):
    """Return a copy of a run in which files are links; what they held is where the links lead."""
    folder = place / "foreign"
    shutil.copytree(finished, folder)
    victims.mkdir()
    for name in names:
        file, victim = folder / name, victims / name
        victim.write_bytes(file.read_bytes() if file.exists() else b"precious")
        file.unlink(missing_ok=True)
        file.symlink_to(victim)
    return folder


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def modes(folder):
    return {
        str(path.relative_to(folder.parent)): stat.S_IMODE(path.lstat().st_mode)
        for path in (folder, *folder.rglob("*"))
    }


def are_private(folder):
    found = modes(folder)
    odd = {
        name: oct(mode)
        for name, mode in found.items()
        if mode != (0o700 if (folder.parent / name).is_dir() else 0o600)
    }
    assert odd == {}
    return len(found) > 1


@pytest.fixture
def open_umask():
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.mark.parametrize("names", [REPLACED, OTHERS, *((name,) for name in REFUSED)])
def test_nothing_is_written_through_a_link(invoke, finished, tmp_path, names):
    victims = tmp_path / "victims"
    folder = planted(finished, tmp_path, names, victims)
    before = contents(victims), sorted(tmp_path.iterdir())
    results = [
        invoke(*words)
        for words in (
            ["trace", folder],
            ["report", folder],
            ["compare", folder],
            ["resume", folder, "--max-iterations", 4],
        )
    ]
    assert (contents(victims), sorted(tmp_path.iterdir())) == before
    if names[0] in REFUSED:
        assert results[-1].exit_code == 2, results[-1].output
        assert f"{names[0]}: is a link" in results[-1].output
    else:
        assert [result.exit_code for result in results] == [0] * 4, [r.output for r in results]
    if names == REPLACED:
        assert [name for name in names if (folder / name).is_symlink()] == []


def test_a_picture_is_not_written_through_a_link(invoke, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    victim = tmp_path / "victim"
    victim.write_bytes(b"precious")
    picture = tmp_path / "costada-graph.svg"
    picture.symlink_to(victim)
    result = invoke("graph", "--format", "svg")
    assert result.exit_code == 0, result.output
    assert victim.read_bytes() == b"precious"
    assert picture.read_bytes().startswith(b"<?xml")


def test_a_page_does_not_take_the_place_of_a_device(invoke, finished, tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    result = invoke("report", finished, "--out", pipe)
    assert (result.exit_code, "is not a regular file" in result.output) == (2, True)
    assert pipe.is_fifo()


def test_a_lease_is_not_written_into_a_file_that_has_another_name_too(invoke, finished, tmp_path):
    folder, victim = tmp_path / "foreign", tmp_path / "victim"
    shutil.copytree(finished, folder)
    victim.write_text("precious")
    (folder / "run.lease").hardlink_to(victim)
    result = invoke("resume", folder, "--max-iterations", 4)
    assert (result.exit_code, victim.read_text()) == (2, "precious"), result.output


@pytest.mark.usefixtures("open_umask")
def test_a_run_and_what_is_written_beside_it_is_its_owners_alone(invoke, near, tmp_path):
    folder = tmp_path / "runs" / "one"
    assert invoke("run", near, "--max-iterations", 2, "--out", folder).exit_code == 0
    assert invoke("report", folder).exit_code == 0
    assert invoke("fork", folder, "--at", 1, "--out", tmp_path / "runs" / "two").exit_code == 0
    assert invoke("resume", folder, "--max-iterations", 3).exit_code == 0
    assert invoke("compare", folder, "--out", tmp_path / "runs" / "comparison").exit_code == 0
    assert are_private(tmp_path / "runs")
    words = ["--methods", "uniform", "--seeds", 1, "--max-iterations", 1, "--jobs", 1]
    swept = invoke("sweep", "--problems", near, *words, "--out", tmp_path / "swept")
    assert swept.exit_code == 0, swept.output
    assert are_private(tmp_path / "swept")


def test_an_empty_folder_that_a_run_gets_becomes_its_owners_alone_and_a_used_one_stays(
    invoke, near, tmp_path
):
    empty, used = tmp_path / "empty", tmp_path / "used"
    for folder in (empty, used):
        folder.mkdir()
        folder.chmod(0o755)
    (used / "notes.txt").touch()
    for folder in (empty, used):
        assert invoke("run", near, "--max-iterations", 1, "--out", folder).exit_code == 0
    assert (modes(empty)["empty"], modes(used)["used"]) == (0o700, 0o755)


@pytest.mark.usefixtures("open_umask")
def test_databases_and_what_lies_beside_them_are_their_owners_alone(tmp_path):
    place = tmp_path / "place"
    place.mkdir(0o700)
    with RunStore(place / "run.sqlite") as store, Purse(1, path=place / "purse.sqlite") as purse:
        store.put_text("a text")
        purse.child("a")
        (Journal(place / "gateway.sqlite")).close()
        assert {"run.sqlite-wal", "purse.sqlite-shm"} <= {path.name for path in place.iterdir()}
        assert are_private(place)


@pytest.mark.parametrize("name", ["gateway.sqlite", "gateway.sqlite-wal", "gateway.sqlite.address"])
def test_a_gateway_writes_through_no_link(tmp_path, name):
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (tmp_path / name).symlink_to(victim)
    address = hold_address(tmp_path / name)
    opened = (
        address.__enter__ if name.endswith(".address") else partial(Journal, tmp_path / JOURNAL)
    )
    with pytest.raises(ValueError, match=f"{re.escape(name)}: is a link"):
        opened()
    assert victim.read_text() == "precious"


def test_the_log_of_a_swept_run_takes_the_place_of_a_link(tmp_path):
    victim, log = tmp_path / "victim", tmp_path / "run.log"
    victim.write_text("precious")
    log.symlink_to(victim)
    process = RunProcess(["trace", str(tmp_path)], log)
    while process.end() is None:
        os.sched_yield()
    assert victim.read_text() == "precious"
    assert "holds no run" in log.read_text()


def test_a_sweep_does_not_follow_a_link_out_of_its_folder(invoke, near, tmp_path):
    elsewhere, out = tmp_path / "elsewhere", tmp_path / "swept"
    elsewhere.mkdir()
    out.mkdir()
    (out / "near").symlink_to(elsewhere)
    words = ["--methods", "uniform", "--seeds", 1, "--max-iterations", 1]
    result = invoke("sweep", "--problems", near, *words, "--out", out)
    assert (result.exit_code, list(elsewhere.iterdir())) == (2, []), result.output
    assert "near: is a link" in result.output
