"""The texts of a problem folder."""

from pathlib import Path

import yaml

TASK_FILE = "problem.md"
CONFIG_FILE = "config.yaml"
"""Where OpenEvolve and SkyDiscover keep the task: `prompt: {system_message: ...}`."""


def read_task(folder: Path) -> str:
    """Return the task in words, from `problem.md` or else from `config.yaml`.

    Raises:
        ValueError: If neither holds it.
    """
    if (folder / TASK_FILE).is_file() or not (folder / CONFIG_FILE).is_file():
        return read_text(folder / TASK_FILE)
    path = folder / CONFIG_FILE
    try:
        config = yaml.safe_load(read_text(path))
    except yaml.YAMLError as error:
        raise ValueError(f"{path} is not valid YAML: {error}") from None
    match config:
        case {"prompt": {"system_message": str(task)}} if task.strip():
            return task
    raise ValueError(
        f"{TASK_FILE} is missing in {folder}, and {CONFIG_FILE} has no text at"
        " prompt.system_message; a problem folder needs one of them"
    )


def read_text(path: Path) -> str:
    """Return the text of a file that a problem folder needs.

    Raises:
        ValueError: If it is missing, empty or not UTF-8.
    """
    if not path.is_file():
        raise ValueError(f"{path.name} is missing in {path.parent}; a problem folder needs it")
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8 text: {error}") from None
    if not text.strip():
        raise ValueError(f"{path} is empty; a problem folder needs it")
    return text
