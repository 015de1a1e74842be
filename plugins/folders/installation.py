"""Installs the packages that a problem folder needs in an environment of its own, by uv."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from shutil import which
from tempfile import TemporaryDirectory

from costada.evaluators.environment import (
    DATA_FOLDER,
    VENV_SETTINGS,
    environment_folder,
    start_of,
)
from costada.evaluators.sandbox.helper_environment import NETWORK, helper_environment
from costada.evaluators.sandbox.interpreter import SYSTEM_PROGRAMS
from costada.evaluators.sandbox.launch import confined_build
from costada.evaluators.sandbox.slot_kind import PRELOAD
from costada.evaluators.shown_paths import read_shown
from costada.plugins.folders.requirements_file import (
    REQUIREMENTS_FILE,
    RequirementLine,
    check_requirements,
)

ISOLATED = ("--no-config",)
"""Has uv read neither `uv.toml` nor `pyproject.toml`, in whatever folder."""

ONLY_WHEELS = ("--only-binary", ":all:")
NO_WHEELS = "no usable wheels"
WHEELS_HINT = (
    "\nOnly wheels are installed; with --allow-builds, other packages are built in the sandbox."
)
LOCAL_PACKAGES = "UV_FIND_LINKS"
CERTIFICATES = ("SSL_CERT_DIR", "SSL_CERT_FILE")
"""Variables that name what an installer reads beside the system, in lists."""

SHOWN_LINES = 12


def make_environment(
    folder: Path,
    requirements: Sequence[RequirementLine],
    packages: Sequence[str],
    *,
    allow_builds: bool = False,
) -> Path:
    """Install packages in the environment of a problem folder, which is made if there is none.

    It gets the Python of this process. The folder has no say in how: uv runs in an empty one and
    reads no file of settings. Only wheels are installed, which runs no code of theirs, and the
    environment's own Python is not started. An installation that fails leaves no new environment;
    uv changes one that was there only after it has found and built all packages.

    Args:
        folder: The problem folder.
        requirements: What its file of requirements says.
        packages: Further requirements, of the user.
        allow_builds: Whether packages without a wheel may be built, in the sandbox.

    Raises:
        ValueError: If a requirement may not be installed, if uv is not installed, or cannot install
            something, with its last lines, or if a package replaces the environment's Python.
        RuntimeError: If builds are allowed, and this machine has no sandbox for them.
    """
    check_requirements(requirements)
    environment = environment_folder(folder).absolute()
    environment.parent.mkdir(parents=True, exist_ok=True)
    base = getattr(sys, "_base_executable", sys.executable)
    with TemporaryDirectory(prefix="costada-prepare-") as name, ExitStack() as undo:
        if not environment.exists():
            undo.callback(shutil.rmtree, environment, ignore_errors=True)
        place = Path(name).resolve()
        listed = place / REQUIREMENTS_FILE
        listed.write_text("".join(f"{_copied(each, place)}\n" for each in requirements))
        make = [_uv(), "venv", "--quiet", *ISOLATED, "--no-project", "--allow-existing"]
        _run([*make, "--python", base, str(environment)], place)
        install = [_uv(), "pip", "install", "--quiet", *ISOLATED, "--python", base]
        install += ["--prefix", str(environment), "--requirement", str(listed)]
        install += [*(module.partition(".")[0] for module in PRELOAD), *packages]
        made = start_of(environment)
        try:
            if allow_builds:
                _run_confined(install, place, environment)
            else:
                _run([*install, *ONLY_WHEELS], place)
        finally:
            if made is None or start_of(environment) != made:
                shutil.rmtree(environment)
                raise ValueError(
                    f"a package replaced the Python of {environment} or its {VENV_SETTINGS}, so the"
                    " environment was removed; expected packages that do not"
                )
        undo.pop_all()
    return environment


def _copied(line: RequirementLine, place: Path) -> str:
    """A line for uv; a wheel of the folder is copied to a place of our own."""
    if line.wheel is None:
        return str(line)
    copy = place / line.wheel.name
    copy.write_bytes(read_shown(line.wheel, line.wheel.parent))
    return f"{copy.name.partition('-')[0]} @ {copy.as_uri()}"


def _uv() -> str:
    beside = Path(sys.executable).with_name("uv")
    found = str(beside) if beside.is_file() else which("uv")
    if found is None:
        raise ValueError("uv is not installed; pip install 'costada[prepare]'")
    return found


def _run_confined(command: Sequence[str], place: Path, environment: Path) -> None:
    """Run uv with builds in the sandbox; what it caches is its own, as a build could change it."""
    home = place / "home"
    home.mkdir()
    private = ("HOME", "TMPDIR", "UV_CACHE_DIR", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", DATA_FOLDER)
    changes = dict.fromkeys(private, str(home)) | {"PATH": os.pathsep.join(SYSTEM_PROGRAMS)}
    named = [os.environ.get(name, "") for name in (LOCAL_PACKAGES, *CERTIFICATES)]
    readable = [command[0], sys.base_prefix, *filter(None, re.split("[,:]", ",".join(named)))]
    kept = {*_variables(), *changes}
    words = confined_build(command, place, readable, [str(environment)], kept)
    _run(words, place, changes)


def _variables() -> dict[str, str]:
    """Variables for uv: where packages come from, and how the network is reached."""
    found = helper_environment(*NETWORK, "UV_*")
    return {name: value for name, value in found.items() if not name.startswith("UV_PUBLISH_")}


def _run(command: Sequence[str], place: Path, changes: Mapping[str, str] | None = None) -> None:
    """Run uv in a folder, with some of its variables changed."""
    done = subprocess.run(
        command,
        cwd=place,
        env={**_variables(), **(changes or {})},
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    if done.returncode != 0:
        last = "\n".join(done.stderr.strip().splitlines()[-SHOWN_LINES:])
        hint = WHEELS_HINT if NO_WHEELS in last and ONLY_WHEELS[0] in command else ""
        raise ValueError(f"uv failed:\n{last}{hint}")
