"""Folders of OpenEvolve, SkyDiscover and ShinkaEvolve: their evaluators and their configuration.

The evaluator is `evaluator.py` or `evaluate.py`, or `evaluator/evaluator.py` with its neighbours.
OpenEvolve and SkyDiscover read a `config.yaml`, ShinkaEvolve a `shinka.yaml` or a `run_evo.py`.
The task, the language and what concerns evaluations is taken over; models, databases and the
schedule of their searches are not.
"""

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from costada.evaluators.folder_files import EVALUATOR_FILE
from costada.evaluators.folder_layout import (
    IN_RUN,
    IN_SANDBOX,
    TASK_FILE,
    Contract,
    FolderConfig,
    FolderFormat,
    Layout,
    defined_names,
    own_contract,
)
from costada.evaluators.folder_settings import MAX_SETTINGS, SETTINGS_FILE, FolderSettings
from costada.evaluators.initial_program import read_text
from costada.evaluators.shown_paths import read_shown, unshown_reason
from costada.plugins.folders.dependencies import missing_dependencies
from costada.values.program_form import find_language
from costada.values.python_syntax import parsed_module

CONFIGS = ("config.yaml", "config.yml", "config_*.y*ml", "shinka.y*ml", "shinka_*.y*ml")
CONFIG_FOLDER = "configs/*.y*ml"
"""Where folders keep one configuration for each of several tasks, of which one must be chosen."""

RUNNER = "run_evo.py"
TASKS = ("prompt.system_message", "llm.system_message", "evo_config.task_sys_msg")
TASK_NAME = "task_sys_msg"
README = "README.md"
EXPECTED_TASK = f"; expected it, {TASKS[0]} in config.yaml, or {README}"
LANGUAGES = ("language", "evo_config.language")
PARALLEL = ("evaluator.parallel_evaluations", "parallel_evaluations", "max_evaluation_jobs")
TIMEOUT, IN_STAGES = "evaluator.timeout", "evaluator.cascade_evaluation"
THRESHOLDS, DIMENSIONS = "evaluator.cascade_thresholds", "database.feature_dimensions"
OPENED = ("prompt", "evaluator", "evo_config")
"""Sections of which each key is either taken over or named as left."""

MAX_NAMED = 12
"""How many of the keys that are left a note names."""

USUAL_DIMENSIONS = ("complexity", "diversity")
USUAL_THRESHOLDS = (0.5, 0.75, 0.9)
SKYDISCOVER_THRESHOLDS = (0.3, 0.6)
SKYDISCOVER_KEYS = {"diff_based_generation", "max_solution_length", "search"}
"""What only a configuration of SkyDiscover has; its stages are two at most."""


def read_config(folder: Path, settings: FolderSettings) -> FolderConfig:
    """What the configuration in a problem folder says.

    Raises:
        ValueError: Naming the file and the key that is wrong, or the files to choose from.
    """
    found = _config_files(folder, settings)
    readme = () if (folder / TASK_FILE).is_file() else (README,)
    if not found:
        task = _task_of_runner(folder / RUNNER)
        return FolderConfig(
            task=task or _readme(folder, readme),
            task_places=EXPECTED_TASK,
            dimensions=USUAL_DIMENSIONS,
            own_files=readme,
            notes=(f"{RUNNER}: took over {TASK_NAME}, and nothing else",) if task else (),
        )
    path, *others = found
    table = _read_table(path, folder)
    reader = _Reader(path, table)
    language = reader.text(*LANGUAGES)
    known = find_language(language) if language else None
    if known is None:
        reader.taken -= set(LANGUAGES)
    names = ", ".join(str(each.relative_to(folder)) for each in others)
    choice = f"{path.name} was read and not {names}: config = NAME in {SETTINGS_FILE}"
    return FolderConfig(
        path=path,
        task=reader.text(*TASKS) or _task_of_runner(folder / RUNNER) or _readme(folder, readme),
        task_places=f", and {path.name} has no text at {TASKS[0]}{EXPECTED_TASK}",
        language=known.name if known else None,
        timeout=reader.number(TIMEOUT),
        thresholds=reader.thresholds(),
        evaluations_at_once=reader.count(*PARALLEL),
        dimensions=reader.dimensions(),
        own_files=(path.relative_to(folder).as_posix(), *readme),
        notes=(reader.note(), choice) if names else (reader.note(),),
    )


def _readme(folder: Path, readme: tuple[str, ...]) -> str:
    """The text of the README, where it stands in place of the task."""
    return "".join(read_text(folder / each, folder) for each in readme if (folder / each).is_file())


def _config_files(folder: Path, settings: FolderSettings) -> list[Path]:
    """The configuration to read, then those of the same kind that are not."""
    if settings.config is not None:
        chosen = folder / settings.config
        if not chosen.is_file() or unshown_reason(chosen, folder):
            raise ValueError(f"config is {settings.config!r}; expected a file in {folder}")
        return [chosen]
    for pattern in CONFIGS:
        if found := sorted(folder.glob(pattern)):
            return found
    choice = sorted(folder.glob(CONFIG_FOLDER))
    if len(choice) > 1:
        names = ", ".join(str(each.relative_to(folder)) for each in choice)
        raise ValueError(
            f"{folder} holds several configurations ({names}); expected config = NAME in"
            f" {SETTINGS_FILE}"
        )
    return choice


def _read_table(path: Path, folder: Path) -> dict[str, Any]:
    if path.stat().st_size > MAX_SETTINGS:
        raise ValueError(f"{path}: larger than {MAX_SETTINGS:,} bytes, expected settings")
    try:
        table = yaml.safe_load(read_shown(path, folder).decode("utf-8-sig"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not valid YAML: {error}") from None
    if not isinstance(table, dict | None):
        raise ValueError(f"{path} holds a {type(table).__name__}; expected keys with values")
    return table or {}


class _Reader:
    """Reads keys of a configuration, and notes which ones it has taken over."""

    def __init__(self, path: Path, table: Mapping[str, Any]) -> None:
        self._path = path
        self._values = dict(_flat(table))
        self._is_skydiscover = bool(SKYDISCOVER_KEYS & table.keys())
        self.taken: set[str] = set()

    def _of(self, *keys: str) -> tuple[str, Any]:
        """The first of the keys that has a value, and that; the last with None if none has."""
        for key in keys:
            if (value := self._values.get(key)) is not None:
                self.taken.add(key)
                return key, value
        return keys[-1], None

    def text(self, *keys: str) -> str:
        """The text at the first of the keys; empty if there is none."""
        key, value = self._of(*keys)
        if not isinstance(value, str | None):
            raise self._fault(key, value, "a string")
        return (value or "") if (value or "").strip() else ""

    def number(self, key: str) -> float | None:
        """The positive number at a key, if there is one."""
        _, value = self._of(key)
        if value is not None and (not _is_number(value) or not 0 < value < float("inf")):
            raise self._fault(key, value, "a positive number")
        return None if value is None else float(value)

    def count(self, *keys: str) -> int | None:
        """The integer at the first of the keys, if there is one."""
        key, value = self._of(*keys)
        if value is not None and (not _is_number(value) or value != int(value) or value < 1):
            raise self._fault(key, value, "an integer of at least 1")
        return None if value is None else int(value)

    def thresholds(self) -> tuple[float, ...]:
        """The thresholds of the stages; empty if the program is to be evaluated at once."""
        _, is_in_stages = self._of(IN_STAGES)
        if not isinstance(is_in_stages, bool | None):
            raise self._fault(IN_STAGES, is_in_stages, "true or false")
        _, value = self._of(THRESHOLDS)
        usual = SKYDISCOVER_THRESHOLDS if self._is_skydiscover else USUAL_THRESHOLDS
        if is_in_stages and value == []:  # which says nothing, as stages are asked for
            self.taken.discard(THRESHOLDS)
            value = None
        found = usual if value is None else value
        if not isinstance(found, list | tuple) or not all(map(_is_number, found)):
            raise self._fault(THRESHOLDS, found, "a list of numbers")
        num_used = 1 if self._is_skydiscover else len(found)
        return () if is_in_stages is False else tuple(map(float, found[:num_used]))

    def dimensions(self) -> tuple[str, ...]:
        """Metrics that do not count in a mean."""
        key, value = self._of(DIMENSIONS)
        if value is None:
            return () if self._is_skydiscover else USUAL_DIMENSIONS
        if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
            raise self._fault(key, value, "a list of names")
        return tuple(value)

    def note(self) -> str:
        """One line: what was taken over and what was not."""
        left = dict.fromkeys(
            key if key.partition(".")[0] in OPENED else key.partition(".")[0]
            for key in self._values
            if key not in self.taken
        )
        taken = ", ".join(sorted(self.taken)) or "nothing"
        if not left:
            return f"{self._path.name}: took over {taken}"
        shown = ", ".join([*left][:MAX_NAMED])
        more = f" and {len(left) - MAX_NAMED} more" if len(left) > MAX_NAMED else ""
        return f"{self._path.name}: took over {taken}; not: {shown}{more}"

    def _fault(self, key: str, value: object, expected: str) -> ValueError:
        return ValueError(f"{self._path}: {key} is {value!r}; expected {expected}")


def _flat(table: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Keys of a table and of its sections, as `section.key`."""
    for name, value in table.items():
        if not isinstance(value, Mapping):
            yield str(name), value
        for inner in value if isinstance(value, Mapping) else ():
            yield f"{name}.{inner}", value[inner]


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _task_of_runner(path: Path) -> str:
    """The text that a `run_evo.py` assigns to a name that ends in `task_sys_msg`."""
    if not path.is_file() or path.stat().st_size > MAX_SETTINGS:
        return ""
    source = read_shown(path, path.parent).decode("utf-8", "replace")
    try:
        tree = parsed_module(source)
    except (SyntaxError, ValueError, RecursionError):
        return ""
    for node in ast.walk(tree):
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant(value=str(text))):
                if name.lower().endswith(TASK_NAME) and text.strip():
                    return text
            case ast.keyword(arg=name, value=ast.Constant(value=str(text))):
                if name == TASK_NAME and text.strip():
                    return text
    return ""


EVALUATORS = ("evaluate.py", f"evaluator/{EVALUATOR_FILE}")
FIRST_STAGE, NEXT_STAGES = "evaluate_stage1", ("evaluate_stage2", "evaluate_stage3")
SCRIPT = "evaluate.sh"
"""The script next to an evaluator that SkyDiscover runs in a container."""

RESULTS_OPTION = "--results_dir"


def peer_layout(folder: Path, evaluator: Path, settings: FolderSettings) -> Layout | None:
    """The parts of a folder; None if its evaluator has another name, or a `score` beside our task.

    Raises:
        ValueError: If the configuration is wrong.
    """
    if evaluator.relative_to(folder).as_posix() not in (EVALUATOR_FILE, *EVALUATORS):
        return None
    source = read_text(evaluator, folder)
    if _contract(evaluator, source) in IN_RUN and (folder / TASK_FILE).is_file():
        return None
    config = read_config(folder, settings)
    contract = _contract(evaluator, source, config.thresholds)
    if contract is Contract.STAGES and not config.thresholds:
        config = replace(config, thresholds=USUAL_THRESHOLDS)
    num_stages, names = int(contract is Contract.STAGES), defined_names(source)
    for name in NEXT_STAGES[: len(config.thresholds)] if num_stages else ():
        if name not in names:
            break
        num_stages += 1
    if num_stages and (left := [each for each in NEXT_STAGES[num_stages - 1 :] if each in names]):
        reason = f"{THRESHOLDS} are {list(config.thresholds)}"
        if (following := NEXT_STAGES[num_stages - 1]) not in names:
            reason = f"{following} is missing"
        note = f"{left[0]} is never reached: {reason}"
        config = replace(config, notes=(*config.notes, note))
    return Layout(folder, evaluator, source, contract, num_stages, config)


def _contract(evaluator: Path, source: str, thresholds: Sequence[float] = ()) -> Contract:
    names, is_program = defined_names(source), "__main__" in source
    if RESULTS_OPTION in source and is_program:
        return Contract.COMMAND_LINE
    if IN_SANDBOX in names:
        return Contract.STAGES if FIRST_STAGE in names and thresholds else Contract.EVALUATE
    if native := own_contract(names):
        return native
    if FIRST_STAGE in names:
        return Contract.STAGES
    if RESULTS_OPTION in source:
        return Contract.COMMAND_LINE
    is_command = is_program and evaluator.with_name(SCRIPT).is_file()
    return Contract.PRINTED_JSON if is_command else Contract.EVALUATE


FORMAT = FolderFormat(
    layout=peer_layout,
    evaluators=EVALUATORS,
    own_files=(SCRIPT, RUNNER, *CONFIGS),
    missing=missing_dependencies,
)
