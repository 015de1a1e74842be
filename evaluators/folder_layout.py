"""Where a problem folder keeps its parts, and how its evaluator is called.

Our own layout has `problem.md`, and an `evaluator.py` that defines `score(output)` or
`evaluate(program_path)`. Other layouts are plug-ins: entry points of the group `costada.folders`,
each a `FolderFormat`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache
from pathlib import Path
from symtable import symtable
from typing import TYPE_CHECKING

from costada.evaluators.fetched_files import check_fetched
from costada.evaluators.folder_files import EVALUATOR_FILE, EvaluatorFile
from costada.evaluators.folder_settings import SETTINGS_FILE, FolderSettings
from costada.evaluators.initial_program import read_text
from costada.evaluators.sandbox.inside.evaluator_contracts import COMMAND_LINE, PRINTED_JSON
from costada.evaluators.shown_paths import odd_file_reason
from costada.values.plugins import load_plugin, plugins_of
from costada.values.python_syntax import parsed_module

if TYPE_CHECKING:
    from costada.evaluators.folders import ProblemFolder

ENTRY_POINTS = "costada.folders"
"""Group of entry points; each is a `FolderFormat`."""

TASK_FILE = "problem.md"
NATIVE, PER_EXAMPLE, IN_SANDBOX = "score", "score_example", "evaluate"
OWN_FILES = (TASK_FILE, SETTINGS_FILE, EVALUATOR_FILE, "requirements.txt")
"""Patterns of the files that define a problem; candidates never include them."""

MAX_DEPTH = 3
MAX_NAMED = 20


class Contract(StrEnum):
    """How an evaluator is called."""

    SCORE = "score(output)"
    SCORE_EXAMPLE = "score_example(output, example)"
    EVALUATE = "evaluate(program_path)"
    STAGES = "evaluate_stage1(program_path), ..."
    COMMAND_LINE = COMMAND_LINE
    PRINTED_JSON = PRINTED_JSON


IN_RUN = (Contract.SCORE, Contract.SCORE_EXAMPLE)
"""Contracts of evaluators that run in the process of the run, not in the sandbox."""


@dataclass(frozen=True, slots=True)
class FolderConfig:
    """What the configuration of another tool says of a folder; the defaults if there is none.

    Attributes:
        path: The file; None if there is none.
        task: The task in words, empty if it does not say it.
        task_places: Where the task is looked for besides `problem.md`, in words; may be empty.
        language: Name of the program's language; None if it does not say it or is not known here.
        timeout: Wall-clock limit of one evaluation, or of each stage, in seconds.
        thresholds: What the metrics must reach after each stage; empty to evaluate at once.
        evaluations_at_once: How many programs are evaluated at once.
        dimensions: Metrics that describe a program and do not count in the mean of the others.
        own_files: Patterns of further files that define the problem.
        notes: What was taken over and what was not, one line each.
    """

    path: Path | None = None
    task: str = ""
    task_places: str = ""
    language: str | None = None
    timeout: float | None = None
    thresholds: tuple[float, ...] = ()
    evaluations_at_once: int | None = None
    dimensions: tuple[str, ...] = ("complexity", "diversity")
    own_files: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Layout:
    """The parts of a problem folder.

    Attributes:
        folder: The folder.
        evaluator: The file of the evaluator.
        source: Its text.
        contract: How it is called.
        num_stages: How many stages it has; 0 if it is called once.
        config: What another tool's configuration says.
    """

    folder: Path
    evaluator: Path
    source: str
    contract: Contract
    num_stages: int = 0
    config: FolderConfig = field(default_factory=FolderConfig)

    def evaluator_file(self, settings: FolderSettings) -> EvaluatorFile:
        """The evaluator as the sandbox takes it.

        Raises:
            ValueError: If it reads files that are still to be fetched.
        """
        check_fetched(self.folder, settings.prepare, settings.files)
        return EvaluatorFile(
            folder=self.folder,
            path=self.evaluator,
            contract=self.contract.value,
            thresholds=self.config.thresholds if self.num_stages else (),
            num_stages=self.num_stages,
            files=settings.files,
        )

    @property
    def own_files(self) -> tuple[str, ...]:
        """Patterns of the files that define the problem, in this format or another."""
        others = (name for each in formats() for name in (*each.evaluators, *each.own_files))
        return (*OWN_FILES, *others, *self.config.own_files)

    @property
    def task(self) -> str:
        """The task in words: `problem.md`, or what another tool has in its place.

        Raises:
            ValueError: If none of them says it.
        """
        if os.path.lexists(self.folder / TASK_FILE):
            return read_text(self.folder / TASK_FILE, self.folder)
        if self.config.task:
            return self.config.task
        raise ValueError(
            f"{TASK_FILE} is missing in {self.folder}{self.config.task_places or '; expected it'}."
            " costada init makes a problem folder"
        )


@dataclass(frozen=True, slots=True)
class MissingDependencies:
    """What the Python that evaluates a folder lacks.

    Attributes:
        refusal: Why a run of the folder is refused, and what to install; empty if it is not.
        facts: What `costada check` shows of it, by the name of the line.
    """

    refusal: str = ""
    facts: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderFormat:
    """A format of problem folders, registered as an entry point of `costada.folders`.

    Attributes:
        layout: The parts of a folder whose evaluator is given; None if it is of another format.
        evaluators: Paths of evaluators below a folder, besides `evaluator.py`.
        own_files: Patterns of further files that define a problem.
        missing: What any folder, of whatever format, needs that is not installed. It is asked for
            each, as it takes knowledge of packages that core does not have.
    """

    layout: Callable[[Path, Path, FolderSettings], Layout | None]
    evaluators: tuple[str, ...] = ()
    own_files: tuple[str, ...] = ()
    missing: Callable[[ProblemFolder], MissingDependencies] | None = None


def formats() -> Iterator[FolderFormat]:
    """The formats of installed plug-ins, by their names.

    Raises:
        ValueError: One cannot be loaded.
    """
    for plugin in plugins_of(ENTRY_POINTS).values():
        yield load_plugin(plugin, FolderFormat)


def find_layout(folder: Path, settings: FolderSettings) -> Layout:
    """The parts of a problem folder.

    Raises:
        ValueError: If there is no evaluator, naming the problems below the folder, if any; if its
            syntax is wrong; if another tool's configuration is wrong; or if no plug-in reads the
            folder.
    """
    evaluator = evaluator_in(folder)
    if evaluator is None:
        raise ValueError(_no_evaluator(folder))
    _check_syntax(evaluator, folder)
    for each in formats():
        if found := each.layout(folder, evaluator, settings):
            return found
    source = read_text(evaluator, folder)
    names = defined_names(source)
    contract = own_contract(names)
    if contract is not None and settings.config is not None:
        raise ValueError(
            f"{folder / SETTINGS_FILE}: config is {settings.config!r}; expected none beside"
            f" {contract.value}, as it belongs to an evaluator of another tool"
        )
    fault = ""
    if not os.path.lexists(folder / TASK_FILE):
        fault = f"{TASK_FILE} is missing"
    elif settings.config is not None:
        fault = f"config is {settings.config!r} in {SETTINGS_FILE}"
    elif not {NATIVE, PER_EXAMPLE, IN_SANDBOX} & names:
        fault = f"{evaluator.name} defines none of {NATIVE}, {PER_EXAMPLE} and {IN_SANDBOX}"
    if fault:
        raise ValueError(f"{folder}: {fault}; no plug-in that reads such a folder is installed")
    return Layout(folder, evaluator, source, contract or Contract.EVALUATE)


def _check_syntax(evaluator: Path, folder: Path) -> None:
    """Refuse an evaluator that is not Python, as its names say how it is called."""
    source = read_text(evaluator, folder)
    try:
        parsed_module(source)
    except SyntaxError as error:
        line = error.lineno or 1
        raise ValueError(f"{evaluator}, line {line}: SyntaxError: {error.msg}") from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise ValueError(f"{evaluator}: {type(error).__name__}, expected Python") from None


def own_contract(names: Container[str]) -> Contract | None:
    """The contract of an evaluator that runs in the run's process, by the names it defines."""
    if IN_SANDBOX in names:
        return None
    if NATIVE in names:
        return Contract.SCORE
    return Contract.SCORE_EXAMPLE if PER_EXAMPLE in names else None


def _no_evaluator(folder: Path) -> str:
    """Why a folder without an evaluator is refused."""
    if reason := odd_file_reason(folder / EVALUATOR_FILE):
        return f"{folder / EVALUATOR_FILE} {reason}; expected a file"
    names = [str(each.relative_to(folder)) for each in problems_below(folder)]
    if not names:
        *others, last = evaluator_paths()
        expected = f"{', '.join(['it', *others[1:]])} or {last}" if others else "it"
        return (
            f"{EVALUATOR_FILE} is missing in {folder}; expected {expected}. costada init makes a"
            " problem folder"
        )
    shown = ", ".join(names[:MAX_NAMED])
    more = f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
    what = "problem" if len(names) == 1 else "problems"
    return (
        f"{folder} holds {len(names)} {what} ({shown}{more}); expected the path of one, such as"
        f" {folder / names[0]}"
    )


def evaluator_paths() -> tuple[str, ...]:
    """Where a problem folder may have its evaluator, in any format."""
    return (EVALUATOR_FILE, *(name for each in formats() for name in each.evaluators))


def evaluator_in(folder: Path) -> Path | None:
    """The evaluator of a problem folder; None if it has none."""
    return next((folder / name for name in evaluator_paths() if (folder / name).is_file()), None)


def problems_below(folder: Path, depth: int = MAX_DEPTH) -> Iterator[Path]:
    """The problem folders below a folder, in alphabetical order."""
    for path in sorted(folder.iterdir()) if depth else ():
        if not path.is_dir() or path.name.startswith((".", "_")) or path.is_symlink():
            continue
        if evaluator_in(path):
            yield path
        else:
            yield from problems_below(path, depth - 1)


@lru_cache
def defined_names(source: str) -> frozenset[str]:
    """The names that a module defines or imports; none if its text cannot be parsed."""
    try:
        symbols = symtable(source, EVALUATOR_FILE, "exec").get_symbols()
    except (SyntaxError, ValueError, RecursionError):
        return frozenset()
    found = (each for each in symbols if each.is_assigned() or each.is_imported())
    return frozenset(each.get_name() for each in found)
