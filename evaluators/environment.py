"""An environment of its own for a problem folder, made by uv, in which its evaluations run.

It is kept with the user's data and not in the folder: its Python is started outside of the sandbox
too, so a folder from somebody else must not bring one along.
"""

import os
import subprocess
import sys
from collections.abc import Sequence
from hashlib import sha256
from importlib.metadata import requires
from pathlib import Path
from shutil import which

from packaging.requirements import Requirement

from costada.evaluators.sandbox.helper_environment import NETWORK, helper_environment
from costada.evaluators.sandbox.layers import PRELOAD

DATA_FOLDER = "XDG_DATA_HOME"
"""Variable that names the folder of the user's data; `~/.local/share` where it does not."""

SANDBOX_PACKAGES = ("landlockpy", "pyseccomp")
"""What the sandbox itself imports, in the versions that this package asks for."""

SHOWN_LINES = 12


def environment_folder(folder: Path) -> Path:
    """Where the environment of a problem folder is, or is to be."""
    path = folder.resolve()
    data = Path(os.environ.get(DATA_FOLDER) or "~/.local/share").expanduser()
    name = f"{path.name}-{sha256(os.fsencode(path)).hexdigest()[:12]}"
    return data / "costada" / "environments" / name


def interpreter_of(folder: Path) -> str | None:
    """Path of the Python of a folder's environment; None if it has no environment.

    Raises:
        ValueError: If the environment has lost its Python.
    """
    environment = environment_folder(folder)
    if not environment.is_dir():
        return None
    program = environment / "bin" / "python"
    if not program.exists():
        raise ValueError(
            f"{environment} has no working Python; remove it, then run costada prepare {folder}"
        )
    return str(program)


def make_environment(folder: Path, requirements: Sequence[Path], packages: Sequence[str]) -> Path:
    """Install packages in the environment of a problem folder, which is made if there is none.

    It gets the Python of this process, and what the sandbox needs. Installing may run code of the
    packages, unconfined, and options in the files of requirements count.

    Args:
        folder: The problem folder; relative paths among the requirements begin there.
        requirements: Files of requirements.
        packages: Further requirements.

    Raises:
        ValueError: If uv is not installed, or cannot install something, with its last lines.
    """
    environment = environment_folder(folder).absolute()
    environment.parent.mkdir(parents=True, exist_ok=True)
    uv = _uv()
    base = getattr(sys, "_base_executable", sys.executable)
    _run([uv, "venv", "--quiet", "--allow-existing", "--python", base, str(environment)], folder)
    wanted = [*_own_requirements(), *(name.partition(".")[0] for name in PRELOAD), *packages]
    files = [word for file in requirements for word in ("--requirement", str(file.resolve()))]
    python = str(environment / "bin" / "python")
    _run([uv, "pip", "install", "--quiet", "--python", python, *files, *wanted], folder)
    return environment


def _uv() -> str:
    beside = Path(sys.executable).with_name("uv")
    found = str(beside) if beside.is_file() else which("uv")
    if found is None:
        raise ValueError("uv is not installed; pip install 'costada[prepare]'")
    return found


def _own_requirements() -> list[str]:
    lines = [line for line in requires("costada") or [] if "extra ==" not in line]
    return [line for line in lines if Requirement(line).name in SANDBOX_PACKAGES]


def _run(command: Sequence[str], folder: Path) -> None:
    """Run uv in a problem folder, from which the paths in its requirements lead on."""
    done = subprocess.run(
        command,
        cwd=folder,
        capture_output=True,
        env=helper_environment(*NETWORK, "UV_*"),
        text=True,
        errors="replace",
        check=False,
    )
    if done.returncode != 0:
        last = "\n".join(done.stderr.strip().splitlines()[-SHOWN_LINES:])
        raise ValueError(f"{Path(command[0]).name} {command[1]} failed:\n{last}")
