"""The folder that copies of a repository are made of, where several processes use or remove it."""

import fcntl
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from threading import Thread

import pytest
from made_repositories import BENCH, make_repository, problem_of, write
from sandbox_runs import becomes_true

from costada.evaluators.original_folder import base_of
from costada.evaluators.repository_files import repository_files

pytestmark = pytest.mark.process

USES = """
import sys
from pathlib import Path
from costada.evaluators.original_folder import base_of
from costada.evaluators.repository_files import repository_files
folder, repository = map(Path, sys.argv[1:])
base = base_of(repository_files(repository, folder), ())
print("ready", flush=True)
sys.stdin.readline()
print(Path(base.original(folder).path, "repository", "data.txt").read_text(), flush=True)
sys.stdin.readline()
"""
NUM_UNUSED = 300


@pytest.fixture
def folders(tmp_path):
    """A problem folder, and a repository of one file."""
    folder = tmp_path / "problem"
    folder.mkdir()
    return folder, write(tmp_path / "repository", {"data.txt": "1 2 3"})


def originals(folder: Path) -> Path:
    places = folder / ".costada" / "originals"
    places.mkdir(parents=True, exist_ok=True)
    return places


def is_waited_for(path: Path) -> bool:
    """Whether a process waits for a lock on a file."""
    pattern = rf"-> FLOCK .*:{path.stat().st_ino} "
    return re.search(pattern, Path("/proc/locks").read_text()) is not None


def test_processes_that_begin_together_remove_unused_folders_together(folders):
    places = originals(folders[0])
    for number in range(NUM_UNUSED):
        (places / f"{number}.lock").touch()
    command = [sys.executable, "-c", USES, *map(str, folders)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    processes = [subprocess.Popen(command, **pipes) for _ in range(3)]
    said = [process.stdout.readline() for process in processes]
    for process in processes:
        print(file=process.stdin, flush=True)
    said += [process.stdout.readline() for process in processes]
    assert said == [*["ready\n"] * 3, *["1 2 3\n"] * 3]
    assert len([*places.iterdir()]) == 2
    for process in processes:
        process.communicate("\n")
        assert process.returncode == 0


@pytest.mark.skipif(not os.path.exists("/proc/locks"), reason="needs /proc/locks")
def test_a_lock_whose_file_was_removed_is_taken_again(folders):
    folder, repository = folders
    base = base_of(repository_files(repository, folder), ())
    place = originals(folder) / base.digest[:32]
    lock = place.with_name(f"{place.name}.lock")
    with open(lock, "w") as remover:
        fcntl.flock(remover, fcntl.LOCK_EX)
        user = Thread(target=base.original, args=[folder])
        user.start()
        assert becomes_true(lambda: is_waited_for(lock))
        shutil.rmtree(place, ignore_errors=True)
        lock.unlink()
    user.join()
    assert (place / "repository" / "data.txt").read_text() == "1 2 3"
    with open(lock) as other, pytest.raises(BlockingIOError):
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_a_pipe_in_the_place_of_a_file_is_replaced(folders):
    folder, repository = folders
    base = base_of(repository_files(repository, folder), ())
    place = originals(folder) / base.digest[:32]
    (place / "repository").mkdir(parents=True)
    os.mkfifo(place / "repository" / "data.txt")
    base.original(folder)
    assert (place / "repository" / "data.txt").read_text() == "1 2 3"


@pytest.mark.parametrize("name", [".costada", ".costada/originals"])
def test_links_in_the_place_of_its_folders_are_refused(tmp_path, name):
    problem = problem_of(make_repository(tmp_path / "repository"), tmp_path / "problem")
    others = tmp_path / "others"
    write(others, {"poetry.lock": "", "poetry/x": "", "originals/poetry.lock": ""})
    link = tmp_path / "problem" / name
    link.parent.mkdir(exist_ok=True)
    link.symlink_to(others)
    with pytest.raises(ValueError, match=f"{name} is a link; expected a folder, or nothing"):
        problem.evaluate_program(problem.start, "k")
    assert sorted(path.name for path in others.rglob("*")) == [
        *("originals", "poetry", "poetry.lock", "poetry.lock", "x"),
    ]


def test_the_folder_of_the_files_is_mended_and_removed_when_none_uses_it(tmp_path):
    folder = tmp_path / "problem"
    problem = problem_of(make_repository(tmp_path / "repository"), folder)
    places = folder / ".costada" / "originals"
    places.mkdir(parents=True)
    for name in ("used", "unused"):
        write(places / name, {"x": ""})
        (places / f"{name}.lock").touch()
    made = places / problem.evaluate.base.digest[:32]
    write(made, {"repository/bench.py": "spoiled"})
    with open(places / "used.lock") as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)
        assert problem.evaluate_program(problem.start, "k").score == 0.5
    left = {path.name for path in places.iterdir()}
    assert left == {"used", "used.lock", made.name, f"{made.name}.lock"}
    assert (made / "repository" / "bench.py").read_text() == BENCH


@pytest.mark.parametrize("home", ["file", "link", "absent"])
def test_a_folder_that_came_with_the_problem_and_holds_more_is_made_again(folders, tmp_path, home):
    folder, repository = folders
    base = base_of(repository_files(repository, folder), ())
    brought = originals(folder) / base.digest[:32]
    shutil.copytree(repository, brought / "repository")
    if home == "file":
        write(brought / "home", {".profile": "x"})
    if home == "link":
        (brought / "home").symlink_to(write(tmp_path / "other", {"key": "CANARY"}))
    made = Path(base.original(folder).path)
    assert not (made / "home").is_symlink()
    assert [path.name for path in sorted(made.rglob("*"))] == ["home", "repository", "data.txt"]
