"""What `problem.toml` says about the problem in a folder."""

import tomllib
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails

from costada.evaluators.sandbox.layers import PRELOAD, Layer
from costada.evaluators.sandbox.limits import Limits
from costada.values.evaluation import Direction

SETTINGS_FILE = "problem.toml"
LARGEST_SETTINGS = 2**20
"""Bytes of the file."""

Count = Annotated[int, Field(ge=1)]
Seconds = Annotated[float, Field(gt=0)]


class FolderSettings(BaseModel):
    """What `problem.toml` may say; all of it is optional but for `entry_point` beside a `score`.

    Attributes:
        name: Name of the problem; the folder's name if absent.
        timeout: Wall-clock limit of one evaluation, in seconds.
        call_timeout: Wall-clock limit of each call, in seconds.
        memory_mb: Memory of one evaluation, in MiB.
        threads: Threads a candidate may have at once.
        processes: Processes it may have beside its first.
        scratch_mb: Size of what it may write, in MiB.
        files: What an `evaluate(program_path)` may read of the folder, beside what its code
            imports or names: paths or patterns.
        preload: Modules loaded before a candidate starts.
        sandbox: What holds the candidate's process.
        direction: Which way combined_score improves.
        entry_point: Function every candidate must define.
        allow_invalid_start: Whether a run may begin though the initial program is rejected.
        reference: The combined_score that counts as score 1; without it, combined_score is
            the score.
        human: Best combined_score known from people.
        source: Where the problem is from.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)

    name: str | None = None
    timeout: Seconds = Limits().wall_seconds
    call_timeout: Seconds | None = Limits().call_seconds
    memory_mb: Count = Limits().memory_mb
    threads: Count = Limits().threads
    processes: Annotated[int, Field(ge=0)] = Limits().processes
    scratch_mb: Count = Limits().scratch_mb
    files: Annotated[tuple[str, ...], Field(strict=False)] = ()
    preload: Annotated[tuple[str, ...], Field(strict=False)] = PRELOAD
    sandbox: Annotated[Layer, Field(strict=False)] = Layer.AUTO
    direction: Annotated[Direction, Field(strict=False)] = Direction.MAXIMIZE
    entry_point: str | None = None
    allow_invalid_start: bool = False
    reference: Annotated[float, Field(gt=0)] | None = None
    human: float | None = None
    source: str = ""

    @property
    def limits(self) -> Limits:
        """What one evaluation may take."""
        return Limits(
            wall_seconds=self.timeout,
            call_seconds=self.call_timeout,
            memory_mb=self.memory_mb,
            scratch_mb=self.scratch_mb,
            threads=self.threads,
            processes=self.processes,
        )


def read_settings(path: Path) -> FolderSettings:
    """Return what a `problem.toml` says; the defaults if there is none.

    Raises:
        ValueError: Naming the key that is unknown or wrong, or missing beside another one.
    """
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8")) if _is_readable(path) else {}
        settings = FolderSettings.model_validate(table)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not valid TOML: {error}") from None
    except ValidationError as error:
        faults = "; ".join(map(_fault, error.errors()))
        known = ", ".join(FolderSettings.model_fields)
        raise ValueError(f"{path}: {faults} (known keys: {known})") from None
    if settings.direction is Direction.MINIMIZE and settings.reference is None:
        raise ValueError(f"{path}: reference is missing; needed where direction is 'minimize'")
    return settings


def _is_readable(path: Path) -> bool:
    """Return whether there is such a file; what is no file could keep its reader for ever.

    Raises:
        ValueError: If it is larger than settings are.
    """
    if path.is_file() and path.stat().st_size > LARGEST_SETTINGS:
        raise ValueError(f"{path}: larger than {LARGEST_SETTINGS:,} bytes, expected settings")
    return path.is_file()


def _fault(details: ErrorDetails) -> str:
    key = ".".join(map(str, details["loc"]))
    if details["type"] != "extra_forbidden":
        return f"{key}: {details['msg']}"
    nearest = get_close_matches(key, FolderSettings.model_fields, n=1)
    return f"unknown key {key!r}" + (f", did you mean {nearest[0]!r}?" if nearest else "")
