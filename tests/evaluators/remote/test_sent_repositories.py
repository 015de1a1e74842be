"""Repositories as problems: workers make the copies of files that were sent to them."""

import io
import shutil
import tarfile
import zlib
from dataclasses import replace

import pytest
from made_repositories import commit, git, problem_of, write
from test_remote_evaluations import compared
from test_sent_problems import recorded

from costada.evaluators.problem import confine
from costada.evaluators.remote.backend import check_backend, evaluated_by
from costada.evaluators.remote.bundle import repository_bundle, unpacked
from costada.evaluators.remote.task import setting_of
from costada.evaluators.repository_files import repository_files
from costada.values.candidate import Program
from costada.values.evaluation import WORKER

pytestmark = pytest.mark.cluster

BENCH = """
import os
import subprocess
import sys
from pathlib import Path

from solver import answer

there = [path for path in (".hidden/tracked", "link.txt", "built.so", "new.txt", ".env", "other")
         if os.path.exists(path)]
print("there:", " ".join(there))
print(subprocess.run(["./tool"], capture_output=True, text=True, check=True).stdout.strip())
total = sum(map(int, Path("link.txt").read_text().split()))
value = answer(total)
if value > 100:
    sys.exit("the answer is too large")
print("score:", value)
"""
FILES = {
    "bench.py": BENCH,
    "build.py": "import solver\nif hasattr(solver, 'BROKEN'):\n    raise SystemExit('no build')\n",
    "src/solver.py": "def answer(total):\n    return total / 2\n",
    "data/numbers.txt": "1 2 3\n",
    "tool": "#!/bin/sh\necho the tool runs\n",
    ".hidden/tracked": "hidden\n",
    ".gitignore": "*.so\n",
}
IGNORED = {"built.so": "library", "other.so": "library", ".env": "SECRET=1", "new.txt": "new"}
SETTINGS = 'build = "python build.py"\nfiles = ["built.so"]\ntimeout = 20\n'
PROGRAMS = {
    "valid": "def answer(total):\n    return total * 2\n",
    "worse": "def answer(total):\n    return -1\n",
    "failing": "def answer(total):\n    return 1000\n",
    "raising": "def answer(total):\n    return total / 0\n",
    "unbuilt": "BROKEN = True\ndef answer(total):\n    return 1\n",
    "syntax": "def answer(:\n",
    "scoreless": "def answer(total):\n    return 'text'\n",
    "killing": "import os\ndef answer(total):\n    os.kill(os.getpid(), 9)\n",
    "changing": "def answer(total):\n    open('bench.py', 'w').write('print(99)')\n    return 3\n",
}


def solver(text):
    return Program.of({"src/solver.py": text})


def make_problem(folder):
    """A problem whose benchmark needs all kinds of files, some of which git does not track."""
    repository = write(folder / "repository", FILES)
    (repository / "tool").chmod(0o755)
    (repository / "link.txt").symlink_to("data/numbers.txt")
    (repository / "outside").symlink_to("/etc/hostname")
    commit(repository)
    write(repository, IGNORED)
    return problem_of(repository, folder / "problem", settings=SETTINGS)


@pytest.fixture(scope="module")
def here(tmp_path_factory):
    return confine(make_problem(tmp_path_factory.mktemp("repositories")))


@pytest.fixture(scope="module")
def remote(given, here):
    return confine(evaluated_by(replace(here, backend=None), given))


@pytest.mark.parametrize("name", PROGRAMS)
def test_an_engine_gives_the_verdict_of_this_process(name, remote, here):
    program = solver(PROGRAMS[name])
    there = remote.evaluate_program(program, "key")
    assert WORKER in there.artifacts
    assert compared(there) == compared(here.evaluate_program(program, "key"))


def test_the_verdicts_are_those_that_the_benchmark_says(remote):
    valid = remote.evaluate_program(solver(PROGRAMS["valid"]), "key")
    assert (valid.score, valid.is_valid) == (12.0, True)
    printed = valid.artifacts["stdout"]
    assert "there: .hidden/tracked link.txt built.so new.txt\n" in printed
    assert "the tool runs" in printed
    failing = remote.evaluate_program(solver(PROGRAMS["failing"]), "key")
    assert not failing.is_valid
    assert failing.error.startswith("command failed (exit status 1)")
    unbuilt = remote.evaluate_program(solver(PROGRAMS["unbuilt"]), "key")
    assert unbuilt.error.startswith("build failed (exit status 1)")
    assert "no build" in unbuilt.error


def test_files_are_sent_once_and_the_folders_of_this_machine_are_not_used(
    worker_engine, tmp_path, monkeypatch
):
    own = tmp_path / "caches"
    monkeypatch.setenv("XDG_CACHE_HOME", str(own))
    found, sent = recorded(worker_engine, make_problem(tmp_path))
    setting, payload = setting_of(found)
    assert found.evaluate_program(found.start, "key").score == 3.0
    shutil.rmtree(tmp_path / "repository")
    shutil.rmtree(tmp_path / "problem")
    scores = [found.evaluate_program(solver(PROGRAMS["valid"]), "key").score for _ in range(4)]
    assert scores == [12.0] * 4
    assert sorted(sent) == [0, 0, 0, 0, 0, len(payload)]
    [kept] = (own / "costada" / "problems").iterdir()
    assert kept.name == setting.reference.key
    assert len([*kept.glob(".costada/originals/*.lock")]) == 1


def test_what_git_ignores_and_secrets_are_not_sent(tmp_path, cache):
    make_problem(tmp_path)
    files = repository_files(tmp_path / "repository", tmp_path / "problem", ["built.so"])
    sent = repository_bundle(tmp_path / "problem", files)
    place = unpacked(sent.digest, sent.archive)
    assert sorted(path.name for path in place.iterdir()) == [
        *(".repository", "problem.md", "problem.toml"),
    ]
    inner = place / ".repository"
    found = sorted(str(path.relative_to(inner)) for path in inner.rglob("*") if not path.is_dir())
    assert found == sorted({*FILES, "built.so", "new.txt", "link.txt"})


def test_damaged_files_are_asked_for_again(tmp_path, cache):
    setting, payload = setting_of(make_problem(tmp_path))
    key = setting.reference.key
    place = unpacked(key, payload)
    assert unpacked(key, None) == place
    (place / ".repository" / ".hidden" / "tracked").unlink()
    assert unpacked(key, None) is None
    place = unpacked(key, payload)
    (place / ".repository" / "link.txt").unlink()
    assert unpacked(key, None) is None
    assert (unpacked(key, payload) / ".repository" / "link.txt").is_symlink()


@pytest.mark.parametrize(
    ("name", "target"),
    [
        (".repository/link", "/etc"),
        (".repository/link", "../problem.toml"),
        (".repository/inner/link", "../../../outside"),
        (".repository/../link", "problem.toml"),
        ("link", ".repository"),
    ],
)
def test_links_that_lead_out_of_the_repository_are_refused(name, target, cache):
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w") as archive:
        entry = tarfile.TarInfo(name)
        entry.type, entry.linkname = tarfile.SYMTYPE, target
        archive.addfile(entry)
    with pytest.raises(ValueError, match=f"the problem's files have {name!r}"):
        unpacked("0" * 64, zlib.compress(written.getvalue()))


@pytest.mark.parametrize("path", ["bench.py", "data/numbers.txt"])
def test_a_repository_that_has_changed_since_it_was_loaded_is_refused(
    path, worker_engine, tmp_path, cache
):
    found, sent = recorded(worker_engine, make_problem(tmp_path))
    (tmp_path / "repository" / path).write_text("changed")
    with pytest.raises(ValueError, match="its files have changed since the problem was loaded"):
        check_backend(found)
    (tmp_path / "repository" / path).unlink()
    with pytest.raises(ValueError, match="its files have changed since the problem was loaded"):
        found.evaluate_program(found.start, "key")
    assert sent == []


def test_a_repository_that_is_too_large_is_refused_before_anything_runs(
    worker_engine, tmp_path, cache
):
    repository = write(tmp_path / "repository", FILES)
    git(repository, "init", "-q")
    with (repository / "large.bin").open("wb") as file:
        file.truncate(257 * 2**20)
    found, sent = recorded(worker_engine, problem_of(repository, tmp_path / "problem"))
    with pytest.raises(ValueError, match=r"269,4.* bytes; expected at most .* to send to workers"):
        check_backend(found)
    assert sent == []
