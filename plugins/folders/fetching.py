"""Runs the command by which a problem folder downloads what it needs: data, or a model.

The command may be somebody else's. It runs in the sandbox, in a copy of the folder, with a network:
it reads no files of the user, finds no key, and what it leaves beside the copied files is put into
the folder. It changes no file of the folder, and leaves none that Python imports: a `score` beside
it runs outside of the sandbox.
"""

import os
import shlex
import shutil
import subprocess
from filecmp import cmp
from importlib.machinery import BYTECODE_SUFFIXES, SOURCE_SUFFIXES
from pathlib import Path
from tempfile import TemporaryDirectory

from costada.evaluators.environment import DATA_FOLDER
from costada.evaluators.fetched_files import FetchedFile, fetched_files, record_fetched
from costada.evaluators.folder_files import content_files
from costada.evaluators.sandbox.helper_environment import NETWORK, helper_environment
from costada.evaluators.sandbox.interpreter import SYSTEM_PROGRAMS, Interpreter
from costada.evaluators.sandbox.launch import confined_build
from costada.evaluators.shown_paths import unshown_reason
from costada.plugins.folders.installation import CERTIFICATES

SETTING = "prepare"
PRIVATE = ("HOME", "TMPDIR", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", DATA_FOLDER)
"""Variables that name folders of the user; the command has its own."""

IMPORTABLE = (*SOURCE_SUFFIXES, *BYTECODE_SUFFIXES, ".so", ".pth")
"""How the names of files end that Python, of whatever version, imports or executes by name."""

SHOWN_LINES = 12


def fetch(folder: Path, command: str, python: Interpreter) -> list[FetchedFile]:
    """Run a folder's command and put the files that it leaves into the folder.

    Files that an earlier command fetched are fetched again. What is fetched is recorded.

    Args:
        folder: The problem folder.
        command: The command; no shell reads it.
        python: What `python` stands for.

    Raises:
        OSError: If a file cannot be copied.
        RuntimeError: If this machine has no sandbox for it.
        ValueError: If it cannot be run, fails, changes a file of the folder, leaves none, or one
            that Python can import or that would replace another one.
    """
    words = shlex.split(command)
    programs = os.pathsep.join([os.path.dirname(python.program), *SYSTEM_PROGRAMS])
    program = shutil.which(words[0], path=programs) if words else None
    if program is None:
        raise ValueError(f"{SETTING} is {command!r}; found no program for it in {programs}")
    before = {each.path for each in fetched_files(folder)}
    with TemporaryDirectory(prefix="costada-prepare-") as name:
        place = Path(name).resolve()
        work, home = place / "folder", place / "home"
        work.mkdir()
        home.mkdir()
        given = [path for path, _ in content_files(folder, folder) if path not in before]
        for path in given:
            (work / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(folder / path, work / path)
        _run([program, *words[1:]], work, home, programs, python)
        changed = [path for path in given if not _is_same(folder / path, work / path)]
        if changed:
            raise ValueError(
                f"{command} changed {', '.join(changed)}; expected it to leave new files alone"
            )
        found = [path for path, _ in content_files(work, work) if path not in given]
        if not found:
            raise ValueError(f"{command} left no file in its working folder; expected some")
        for path in found:
            _check_delivered(path, folder, before, command)
        for path in found:
            target = folder / path
            if reason := unshown_reason(target.parent, folder):
                raise ValueError(f"{target.parent} {reason}; expected a folder below {folder}")
            target.parent.mkdir(parents=True, exist_ok=True)
            target.unlink(missing_ok=True)
            shutil.copyfile(work / path, target)
    fetched = [FetchedFile.of(path, folder) for path in found]
    record_fetched(folder, fetched)
    return fetched


def _check_delivered(path: str, folder: Path, before: set[str], command: str) -> None:
    """Refuse code, and what would take the place of a file that the command was not given."""
    if path.endswith(IMPORTABLE):
        raise ValueError(
            f"{command} left {path!r}, which Python can import; expected data alone. If the folder"
            f" needs this code, read it and put it into {folder} yourself"
        )
    if os.path.lexists(folder / path) and path not in before:
        raise ValueError(
            f"{command} left {path!r}, and {folder / path} exists, but may not be shown to it;"
            " expected new files alone. Move it away"
        )


def _is_same(old: Path, new: Path) -> bool:
    return new.is_file() and not new.is_symlink() and cmp(old, new, shallow=False)


def _run(words: list[str], work: Path, home: Path, programs: str, python: Interpreter) -> None:
    """Run a command in the sandbox with a network; raises with its last lines if it fails."""
    changes = {"PATH": programs, **dict.fromkeys(PRIVATE, str(home))}
    environment = helper_environment(*NETWORK) | changes
    readable = [*python.program_paths, *python.standard_folders, *python.libraries]
    readable += [path for name in CERTIFICATES if (path := environment.get(name))]
    done = subprocess.run(
        confined_build(words, work, readable, [str(home)], environment.keys()),
        cwd=work,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
    )
    if done.returncode != 0:
        last = "\n".join(done.stdout.strip().splitlines()[-SHOWN_LINES:])
        raise ValueError(f"{shlex.join(words)} failed, exit code {done.returncode}:\n{last}")
