"""The settings of a problem folder: what `problem.toml` may say."""

import tomllib
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails

from costada.evaluators.sandbox.inside.scored_commands import FAILURES
from costada.evaluators.sandbox.layers import Layer
from costada.evaluators.sandbox.limits import MEBIBYTE, Limits
from costada.evaluators.sandbox.slot_kind import PRELOAD
from costada.evaluators.shown_paths import read_shown
from costada.values.evaluation import Direction
from costada.values.setting import expectation, refusal

SETTINGS_FILE = "problem.toml"
MAX_SETTINGS = 2**20
"""Bytes of `problem.toml`."""

Count = Annotated[int, Field(ge=1)]
Seconds = Annotated[float, Field(gt=0)]


class FolderSettings(BaseModel):
    """The keys of `problem.toml`; all are optional, but `entry_point` beside a `score`."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=True, allow_inf_nan=False, use_attribute_docstrings=True
    )

    name: str | None = None
    """Name of the problem; the folder's name if absent."""
    program: str | Annotated[tuple[str, ...], Field(strict=False)] = ""
    """The initial program: a file, a folder, or patterns of files that candidates may change, add
    and delete; `initial_program.*` or the folder `initial_program` if absent."""
    repository: str | None = None
    """Folder, such as a git repository, of which each candidate is a clean copy; relative to the
    problem folder. The patterns of `program` are below it."""
    command: str | None = None
    """Command that scores a candidate in its copy of the `repository`: its last line is a number or
    JSON, or the file of its `--benchmark-json` or `--export-json` holds measured times."""
    language: str | None = None
    """Language of the program; by the file's ending if absent."""
    build: str | None = None
    """Command that builds a candidate, with `{program}` and `{binary}` for paths."""
    run: str | None = None
    """Command that runs a candidate, once for each of `CALLS`."""
    readable: Annotated[tuple[str, ...], Field(strict=False)] = ()
    """Files and folders, beside the system's, that build and run may read."""
    config: str | None = None
    """Configuration of another tool to read, such as `config_phase_2.yaml`; `config.yaml`, or else
    the first of the usual names, if absent."""
    entry_point: str | None = None
    """Function that every candidate in Python defines; required beside a `score`."""
    metric: str | None = None
    """Metric that counts as `combined_score`, whatever the evaluator says of that; without it, and
    if an `evaluate(program_path)` says none, the mean of its numbers counts, none of which is named
    like a failure."""
    direction: Annotated[Direction, Field(strict=False)] = Direction.MAXIMIZE
    """Which way `combined_score` improves; `minimize` needs a reference."""
    reference: Annotated[float, Field(gt=0)] | None = None
    """The `combined_score` that counts as score 1; without it, `combined_score` is the score."""
    timeout: Seconds = Limits().wall_seconds
    """Wall-clock limit of one evaluation, in seconds."""
    call_timeout: Seconds | None = Limits().call_seconds
    """Wall-clock limit of each of several calls, in seconds."""
    memory_mb: Count = Limits().memory_mb
    """Memory of one evaluation, in MiB."""
    cpus: Count = 1
    """Cores of a worker that one evaluation needs, for `--evaluations`."""
    gpus: Annotated[float, Field(ge=0, strict=False)] = 0.0
    """GPUs of the worker that one evaluation needs, a fraction to share one; the sandbox opens none
    to programs."""
    threads: Count = Limits().threads
    """Threads that a candidate may have at once."""
    processes: Annotated[int, Field(ge=0)] = Limits().processes
    """Processes that it may have besides its first."""
    scratch_mb: Count = Limits().scratch_mb
    """Size of the files that it may write, in MiB."""
    result_mb: Count = Limits().result_bytes // MEBIBYTE
    """Size of what it may return, all calls together, in MiB."""
    preload: Annotated[tuple[str, ...], Field(strict=False)] = PRELOAD
    """Modules loaded before a candidate starts; under `landlock`, none of an environment that
    `costada prepare` made."""
    sandbox: Annotated[Layer, Field(strict=False)] = Layer.AUTO
    """What confines the candidate's process."""
    files: Annotated[tuple[str, ...], Field(strict=False)] = ()
    """What an `evaluate(program_path)` may read of the folder, besides what its code imports or
    names: paths or patterns. Of a `repository`, ignored files that its copies hold too."""
    allow_invalid_start: bool = False
    """Whether a run may start although the initial program is rejected."""
    timing_metrics: Annotated[tuple[str, ...], Field(strict=False)] = ()
    """Metrics that hold wall-clock time, which no model sees."""
    repeats: Count = 1
    """Measurements of each program; with several, a new best is measured again."""
    aggregate: Literal["median", "mean", "min", "max"] = "median"
    """What the measurements of a program come to."""
    objectives: Annotated[tuple[str, ...], Field(strict=False)] = ()
    """Metrics of which the best trade-offs are kept, each as `name:max` or `name:min`."""
    weights: dict[str, float] = Field(default_factory=dict)
    """What `combined_score` is made of, by metric; absent if the evaluator says it."""
    human: float | None = None
    """Best `combined_score` known from people, for reports."""
    seed_objective: float | None = None
    """`combined_score` of the initial program, for lists."""
    source: str = ""
    """Where the problem is from."""

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
            result_bytes=self.result_mb * MEBIBYTE,
        )


UNKNOWN_KEY = "extra_forbidden"
PROBLEM_FIELDS = (
    *("entry_point", "limits", "sandbox", "preload", "direction", "reference", "human"),
    *("seed_objective", "allow_invalid_start", "timing_metrics", "source"),
    *("build", "run", "readable", "repeats", "aggregate", "objectives", "weights", "cpus", "gpus"),
)
"""Settings that are fields of a problem too."""


def read_settings(path: Path) -> FolderSettings:
    """What a `problem.toml` says; the defaults if there is none.

    Raises:
        ValueError: Naming the key that is unknown or wrong, or missing beside another one, or if
            the file may not be shown.
    """
    if path.is_file() and path.stat().st_size > MAX_SETTINGS:
        raise ValueError(f"{path}: larger than {MAX_SETTINGS:,} bytes, expected settings")
    try:
        table = _table_in(path) if path.is_file() else {}
        settings = FolderSettings.model_validate(table)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not valid TOML: {error}") from None
    except ValidationError as error:
        found = error.errors()
        faults = "; ".join(map(_fault, found))
        if any(each["type"] == UNKNOWN_KEY for each in found):
            faults += f" (known keys: {', '.join(FolderSettings.model_fields)})"
        raise ValueError(f"{path}: {faults}") from None
    if settings.command is not None and settings.repository is None:
        raise ValueError(f"{path}: repository is missing; needed where command is given")
    if settings.direction is Direction.MINIMIZE and settings.reference is None:
        raise ValueError(f"{path}: reference is missing; needed where direction is 'minimize'")
    if settings.metric in FAILURES and settings.direction is Direction.MAXIMIZE:
        raise ValueError(
            f"{path}: metric is {settings.metric!r}, which names a failure; expected another one to"
            " maximise, or direction = 'minimize'"
        )
    if settings.metric and settings.weights:
        raise ValueError(
            f"{path}: metric is {settings.metric!r} and weights is {settings.weights!r}; expected"
            " one of them"
        )
    return settings


def _table_in(path: Path) -> dict[str, object]:
    return tomllib.loads(read_shown(path, path.parent).decode("utf-8-sig"))


def _fault(details: ErrorDetails) -> str:
    key = ".".join(map(str, details["loc"]))
    if details["type"] != UNKNOWN_KEY:
        return refusal(key, details["input"], expectation(details))
    nearest = get_close_matches(key, FolderSettings.model_fields, n=1)
    return f"unknown key {key!r}" + (f", did you mean {nearest[0]!r}?" if nearest else "")
