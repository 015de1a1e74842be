"""The settings of a run in its file, settings.json."""

import json
from pathlib import Path

from pydantic import ValidationError

from costada.runs.config import RunConfig
from costada.runs.user_input import explain
from costada.store.address import format_error
from costada.store.files import read_text
from costada.store.schema import FORMAT

MAX_SETTINGS = 2**20
"""Bytes of a settings file."""


def config_text(config: RunConfig) -> str:
    """A configuration as JSON, with the format of the run folder, for its file."""
    known = {"format": FORMAT, **config.model_dump(mode="json")}
    return json.dumps(known, indent=2, ensure_ascii=False) + "\n"


def load_config(path: Path) -> RunConfig:
    """The configuration that was saved when a run started.

    Raises:
        ValueError: If the file does not exist, was written by another version or holds an invalid
            setting.
    """
    try:
        text = read_text(path, MAX_SETTINGS)
    except FileNotFoundError:
        raise ValueError(f"{path.parent}: holds no run (there is no {path.name} in it)") from None
    return read_config(text, path)


def read_config(text: str, place: Path | str) -> RunConfig:
    """The configuration in the saved text of one; `place` names it in messages.

    Raises:
        ValueError: If it was written by another version or holds an invalid setting.
    """
    known = _json_object(text)
    if known and (found := known.pop("format", None)) != FORMAT:
        raise format_error(place, found, FORMAT)
    try:
        return RunConfig.model_validate_json(json.dumps(known) if known else text)
    except ValidationError as error:
        raise ValueError(f"{place}:\n{explain(error, RunConfig.model_fields)}") from None


def _json_object(text: str) -> dict[str, object] | None:
    try:
        known = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return known if isinstance(known, dict) else None
