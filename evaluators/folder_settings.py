"""The settings of a problem folder: what `problem.toml` may say."""

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
)
from pydantic_core import ErrorDetails

from costada.evaluators.consent import Needs
from costada.evaluators.declared_names import Hosts, Variables
from costada.evaluators.problem_fields import (
    SETTINGS_OF_PROBLEM,
    Expected,
    Models,
    NonEmptyString,
    ProblemSettings,
    Weights,
)
from costada.evaluators.sandbox.commands import command_words
from costada.evaluators.sandbox.inside.scored_commands import FAILURES
from costada.evaluators.sandbox.limits import (
    MAX_LIMIT,
    MEBIBYTE,
    Limits,
    Memory,
    NumProcesses,
    OptionalSeconds,
    Seconds,
    Size,
)
from costada.evaluators.sandbox.slot_kind import readable_paths
from costada.evaluators.shown_paths import odd_file_reason, read_shown
from costada.values.evaluation import COMBINED_SCORE, Direction
from costada.values.setting import expectation, refusal

SETTINGS_FILE = "problem.toml"
EVALUATOR_PROCESSES = 256
"""How many processes an `evaluate(program_path)` may start where the settings do not say."""

SCRIPT_INTERPRETER = re.compile(r"(?:.*/)?(?:python[\d.]*|sh|bash)")
"""Programs whose first argument is a script."""

MAX_SETTINGS = 2**20
"""Bytes of `problem.toml`."""


def _file_names(given: object) -> object:
    names = given if isinstance(given, list | tuple) else [given]
    if not names or not all(isinstance(name, str) for name in names):
        raise ValueError(f"expected {FILE_NAMES}")
    return given


def _printable(name: str) -> str:
    if not name.isprintable():
        raise ValueError("expected printable characters")
    return name


def _described(models: Mapping[str, Any]) -> Mapping[str, Any]:
    for name, model in models.items():
        if not isinstance(model, str | dict):
            raise ValueError(f"expected 'provider:name' or a table for each name, got {name!r}")
    return models


Name = Annotated[NonEmptyString, AfterValidator(_printable)]
FILE_NAMES = "a file name, or a list of them"
FileNames = Annotated[
    str | Annotated[tuple[str, ...], Field(strict=False)], BeforeValidator(_file_names)
]
DescribedModels = Annotated[Models, AfterValidator(_described)]


class FolderSettings(BaseModel, ProblemSettings):
    """The keys of `problem.toml`; all are optional, but `entry_point` beside a `score`."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=True, allow_inf_nan=False, use_attribute_docstrings=True
    )

    name: Name | None = None
    """Name of the problem; the folder's name if absent."""
    program: FileNames = ""
    """The initial program: a file, a folder, or patterns of files that candidates may change, add
    and delete; `initial_program.*` or the folder `initial_program` if absent."""
    start: Annotated[Literal["none"] | None, Expected("'none'")] = None
    """`none` if there is no initial program: the first attempts write it from `problem.md`, which
    says how it is used. Needs `entry_point`, `language`, or `program`, the name of its file."""
    repository: str | None = None
    """Folder, such as a git repository, of which each candidate is a clean copy; relative to the
    problem folder. The patterns of `program` are below it."""
    command: str | None = None
    """Command that scores a candidate in its copy of the `repository`: its last line is a number or
    JSON, or the file of its `--benchmark-json` or `--export-json` holds measured times."""
    test: str | None = None
    """Command that must succeed in the copy of the `repository` before `command` scores it; a
    candidate on which it fails is rejected."""
    language: NonEmptyString | None = None
    """Language of the program; by the file's ending if absent."""
    config: str | None = None
    """Configuration of another tool to read, such as `config_phase_2.yaml`; `config.yaml`, or else
    the first of the usual names, if absent."""
    examples: str | None = None
    """File of the examples on which `score_example(output, example)` judges candidates, one JSON
    object per line."""
    validation: str | None = None
    """File of further examples, which no model sees, by which the result of a run is chosen."""
    metric: NonEmptyString | None = None
    """Metric that counts as `combined_score`, whatever the evaluator returns as such. Without it,
    if an `evaluate(program_path)` returns none, the mean of its numbers counts, except those named
    like a failure."""
    timeout: Seconds = Limits().wall_seconds
    """Wall-clock limit of one evaluation, in seconds."""
    call_timeout: OptionalSeconds = Limits().call_seconds
    """Wall-clock limit of each of several calls, in seconds."""
    memory_mb: Memory = Limits().memory_mb
    """Memory of one evaluation, in MiB."""
    threads: Size = Limits().threads
    """Threads that a candidate may have at once."""
    processes: NumProcesses = Limits().processes
    """Processes that it may have besides its first. If absent, an evaluator that is given a path
    has 256, and a command of a `repository` 64."""
    scratch_mb: Size = Limits().scratch_mb
    """Size of the files that it may write, in MiB."""
    result_mb: Annotated[Size, Field(le=MAX_LIMIT // MEBIBYTE)] = Limits().result_bytes // MEBIBYTE
    """Size of what it may return, all calls together, in MiB."""
    network: Hosts = ()
    """Hosts, by name or address, that an `evaluate(program_path)`, or the command of a
    `repository`, asks. It gets the whole network, once you have confirmed that: `costada check`
    shows what is opened."""
    keys: Variables = ()
    """Names of the environment variables whose values an `evaluate(program_path)`, or the command
    of a `repository`, gets, once you have confirmed that."""
    gpu_driver: Annotated[Literal["nvidia", "dri"], Expected("'nvidia' or 'dri'")] = "nvidia"
    """Device nodes that `gpus` opens to an `evaluate(program_path)`, or to the command of a
    `repository`: `nvidia` for CUDA, `dri` for `/dev/dri/renderD*`."""
    docker: bool = False
    """Whether an `evaluate(program_path)`, or the command of a `repository`, starts containers. It
    gets the engine's socket, which equals root on the machine, once you have confirmed that."""
    files: Annotated[tuple[str, ...], Field(strict=False)] = ()
    """What an `evaluate(program_path)` may read of the folder, besides what its code imports or
    names: paths or patterns. For a `repository`: ignored files that its copies hold too."""
    prepare: str | None = None
    """Command that downloads what the folder needs, such as `python download.py`, once
    `costada prepare DIR --confirm` runs it in the sandbox; no shell reads it."""
    # pydantic takes no factory of a dataclass
    weights: Weights = Field(default_factory=dict)
    models: DescribedModels = Field(default_factory=dict)
    candidate_models: DescribedModels = Field(default_factory=dict)

    @property
    def needs(self) -> Needs:
        """What the evaluator needs beyond its confinement."""
        readable = tuple(self.readable)
        return Needs(self.network, self.keys, self.gpus, self.gpu_driver, self.docker, readable)

    @property
    def needs_of_score(self) -> Needs:
        """What the candidates of a `score` need beyond their confinement: files alone."""
        return Needs(readable=tuple(self.readable))

    def problem_fields(self) -> dict[str, Any]:
        """The fields of a problem that the settings give."""
        own = {name: getattr(self, name) for name in SETTINGS_OF_PROBLEM}
        return {**own, "limits": self.limits}

    @property
    def data_files(self) -> tuple[str, ...]:
        """The files of the examples."""
        return tuple(name for name in (self.examples, self.validation) if name is not None)

    @property
    def limits_of_evaluator(self) -> Limits:
        """The same for an `evaluate(program_path)`, which may start processes unless it says 0."""
        is_said = "processes" in self.model_fields_set
        return self.limits if is_said else replace(self.limits, processes=EVALUATOR_PROCESSES)

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


KEYS = tuple(sorted(FolderSettings.model_fields, key=SETTINGS_OF_PROBLEM.__contains__))
"""The keys of `problem.toml`; those that are not fields of a problem come first."""
UNKNOWN_KEY = "extra_forbidden"


def read_settings(path: Path) -> FolderSettings:
    """What a `problem.toml` says; the defaults if there is none.

    Raises:
        ValueError: Naming the key that is unknown or wrong, or missing beside another one, or if
            the file may not be shown.
    """
    _check_place(path)
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
            faults += f" (known keys: {', '.join(KEYS)})"
        raise ValueError(f"{path}: {faults}") from None
    for name in ("command", "test"):
        if getattr(settings, name) is not None and settings.repository is None:
            raise ValueError(f"{path}: repository is missing; needed where {name} is given")
    _check_effects(path, settings)
    _check_prepare(path, settings.prepare)
    _check_readable(path, settings.readable)
    if settings.direction is Direction.MINIMIZE and settings.reference is None:
        raise ValueError(f"{path}: reference is missing; needed where direction is 'minimize'")
    if settings.metric in FAILURES and settings.direction is Direction.MAXIMIZE:
        raise ValueError(
            f"{path}: metric is {settings.metric!r}, which names a failure; expected another one to"
            " maximise, or direction = 'minimize'"
        )
    if settings.validation is not None and settings.examples is None:
        raise ValueError(f"{path}: examples is missing; needed where validation is given")
    if settings.metric and settings.examples is not None:
        raise ValueError(
            f"{path}: metric is {settings.metric!r}, but examples is given; expected none, as"
            " score_example returns the score"
        )
    if settings.metric and settings.weights:
        raise ValueError(
            f"{path}: metric is {settings.metric!r} and weights is {settings.weights!r}; expected"
            " one of them"
        )
    return settings


def _check_place(path: Path) -> None:
    """Refuse what is there in place of the file, or is named almost like it."""
    if reason := odd_file_reason(path):
        raise ValueError(f"{path} {reason}; expected a file")
    if path.is_file() or not path.parent.is_dir():
        return
    for other in path.parent.iterdir():
        if other.name.lower() == path.name:
            raise ValueError(f"{other}: a problem folder's settings are in {path.name}; rename it")


def _check_prepare(path: Path, command: str | None) -> None:
    """Refuse a command that needs a shell, or whose script is not in the folder."""
    if command is None:
        return
    match command_words(f"{path}: prepare", command):
        case [program, script, *_] if SCRIPT_INTERPRETER.fullmatch(
            program
        ) and not script.startswith("-"):
            pass
        case [script, *_] if "/" in script:  # a name alone is looked for on the path
            pass
        case _:
            return
    if script.endswith((".py", ".sh")) and not (path.parent / script).is_file():
        raise ValueError(f"{path}: prepare is {command!r}; {script} is missing in {path.parent}")


def _check_effects(path: Path, settings: FolderSettings) -> None:
    """Refuse keys that have no effect without another one."""
    asks_models = settings.models or settings.candidate_models
    needed = (
        ("gpu_driver", settings.gpus, "gpus"),
        ("aggregate", settings.repeats > 1, "repeats of at least 2"),
        ("evaluation_dollars", asks_models, "models or candidate_models"),
    )
    for name, has_effect, other in needed:
        if name in settings.model_fields_set and not has_effect:
            value = getattr(settings, name)
            raise ValueError(f"{path}: {name} is {value!r}; expected none without {other}")
    scores = {COMBINED_SCORE, settings.metric, ""}
    for wrong in scores.intersection(settings.timing_metrics):
        raise ValueError(f"{path}: timing_metrics has {wrong!r}; expected metrics beside the score")


def _check_readable(path: Path, readable: Sequence[str]) -> None:
    """Refuse what names no file, or could not be shown to who confirms it."""
    for name in readable:
        if not name.isprintable():
            raise ValueError(f"{path}: readable has {name!r}; expected printable characters")
    try:
        readable_paths(readable)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def _table_in(path: Path) -> dict[str, object]:
    return tomllib.loads(read_shown(path, path.parent).decode("utf-8-sig"))


def _fault(details: ErrorDetails) -> str:
    key = ".".join(map(str, details["loc"]))
    if details["type"] != UNKNOWN_KEY:
        return refusal(key, details["input"], expectation(details))
    nearest = get_close_matches(key, KEYS, n=1)
    return f"unknown key {key!r}" + (f", did you mean {nearest[0]!r}?" if nearest else "")
