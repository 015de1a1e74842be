"""The environment of a problem folder, in which its evaluations run; `costada prepare` makes it.

It is kept with the user's data and not in the folder: its Python is started outside of the sandbox
too, so a folder from somebody else must not bring one along.
"""

import os
from hashlib import sha256
from pathlib import Path

from costada.values.path_words import path_word

DATA_FOLDER = "XDG_DATA_HOME"
"""Variable that names the folder of the user's data; `~/.local/share` where it does not."""

PROGRAM, VENV_SETTINGS = Path("bin", "python"), "pyvenv.cfg"


def environment_folder(folder: Path) -> Path:
    """Where the environment of a problem folder is, or is to be."""
    return user_place(folder, "environments")


def user_place(folder: Path, kind: str) -> Path:
    """Where something of a kind is kept with the user's data for a problem folder."""
    path = folder.resolve()
    data = Path(os.environ.get(DATA_FOLDER) or "~/.local/share").expanduser()
    name = f"{path.name}-{sha256(os.fsencode(path)).hexdigest()[:12]}"
    return data / "costada" / kind / name


def interpreter_of(folder: Path) -> str | None:
    """Path of the Python of a folder's environment; None if it has no environment.

    Raises:
        ValueError: If the environment has lost its Python, or a package has replaced it.
    """
    environment = environment_folder(folder)
    if not environment.is_dir():
        return None
    if start_of(environment) is None:
        raise ValueError(
            f"{environment} has no working Python; remove it, then run costada prepare"
            f" {path_word(folder)}"
        )
    return str(environment / PROGRAM)


def start_of(environment: Path) -> tuple[str, str] | None:
    """What decides which Python starts in an environment: its link, and the settings beside it.

    None if that is not one elsewhere, in which no package can put files.
    """
    program, settings = environment / PROGRAM, environment / VENV_SETTINGS
    is_link = program.is_symlink() and program.exists() and not program.parent.is_symlink()
    if not is_link or settings.is_symlink() or not settings.is_file():
        return None
    base, text = os.readlink(program), settings.read_text("utf-8", "replace")
    pairs = [[word.strip() for word in line.split("=", 1)] for line in text.splitlines()]
    homes = [pair[-1] for pair in pairs if pair[0].lower() == "home"]
    is_inside = Path(os.path.realpath(program)).is_relative_to(environment.resolve())
    return None if is_inside or homes != [os.path.dirname(base)] else (base, text)
