"""Repositories that tests make, and problem folders for them."""

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

from costada.evaluators.folders import load_folder
from costada.evaluators.problem import Problem

BENCH = "from solver import answer\n\nprint(answer())\n"
SOLVER = "def answer():\n    return 0.5\n"
FILES = {"bench.py": BENCH, "src/solver.py": SOLVER, "data/numbers.txt": "1 2 3\n"}
AUTHOR = {
    "GIT_AUTHOR_NAME": "A",
    "GIT_AUTHOR_EMAIL": "a@example.org",
    "GIT_COMMITTER_NAME": "A",
    "GIT_COMMITTER_EMAIL": "a@example.org",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_SYSTEM": os.devnull,
}


def git(folder: Path, *words: str) -> str:
    """Run git in a folder; what it prints."""
    command, environment = ["git", "-C", folder, *words], {**os.environ, **AUTHOR}
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    return done.stdout


def write(folder: Path, files: Mapping[str, str]) -> Path:
    """Write files into a folder."""
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    return folder


def commit(folder: Path) -> Path:
    """Make a folder a git repository that tracks all of it."""
    git(folder, "init", "-q")
    git(folder, "add", "--all", "--force")
    git(folder, "commit", "-qm", "All")
    return folder


def make_repository(folder: Path, files: Mapping[str, str] = FILES) -> Path:
    """A git repository of files."""
    return commit(write(folder, files))


def problem_of(
    repository: Path,
    folder: Path,
    command: str = "python bench.py",
    settings: str = "",
    pattern: str = "src/*.py",
) -> Problem:
    """The problem of improving the files below `src` of a repository."""
    folder.mkdir(exist_ok=True)
    (folder / "problem.md").write_text("Raise the answer.\n")
    lines = [f"repository = '{repository}'", f"program = '{pattern}'", f"command = '''{command}'''"]
    (folder / "problem.toml").write_text("\n".join([*lines, settings]))
    return load_folder(folder)
