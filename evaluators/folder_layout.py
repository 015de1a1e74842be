"""Where a problem folder keeps its parts, and how its evaluator is called.

The layouts are ours, and those of OpenEvolve, SkyDiscover and ShinkaEvolve: `evaluator.py` or
`evaluate.py`, or `evaluator/evaluator.py` with its neighbours.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import lru_cache
from pathlib import Path
from symtable import symtable

from costada.evaluators.folder_config import (
    CONFIGS,
    RUNNER,
    USUAL_THRESHOLDS,
    FolderConfig,
    read_config,
)
from costada.evaluators.folder_files import EVALUATOR_FILE, EvaluatorFile
from costada.evaluators.folder_settings import SETTINGS_FILE, FolderSettings
from costada.evaluators.initial_program import read_text
from costada.evaluators.sandbox.inside.evaluator_contracts import COMMAND_LINE, PRINTED_JSON

TASK_FILE, README = "problem.md", "README.md"
EVALUATORS = (EVALUATOR_FILE, "evaluate.py", f"evaluator/{EVALUATOR_FILE}")
NATIVE, LEGACY, FIRST_STAGE = "score", "evaluate", "evaluate_stage1"
NEXT_STAGES = ("evaluate_stage2", "evaluate_stage3")
SCRIPT = "evaluate.sh"
"""The script next to an evaluator that SkyDiscover runs in a container."""

OWN_FILES = (
    *(TASK_FILE, SETTINGS_FILE, *EVALUATORS, SCRIPT, RUNNER, *CONFIGS),
    "requirements.txt",
)
"""Patterns of the files that define a problem; candidates never include them."""

RESULTS_OPTION = "--results_dir"
MAX_DEPTH = 3
MAX_NAMED = 20


class Contract(StrEnum):
    """How an evaluator is called."""

    SCORE = "score(output)"
    EVALUATE = "evaluate(program_path)"
    STAGES = "evaluate_stage1(program_path), ..."
    COMMAND_LINE = COMMAND_LINE
    PRINTED_JSON = PRINTED_JSON


@dataclass(frozen=True, slots=True)
class Layout:
    """The parts of a problem folder.

    Attributes:
        folder: The folder.
        evaluator: The file that judges.
        source: Its text.
        contract: How it is called.
        num_stages: How many stages it has; 0 if it is called once.
        config: What another tool's configuration says.
    """

    folder: Path
    evaluator: Path
    source: str
    contract: Contract
    num_stages: int
    config: FolderConfig

    def evaluator_file(self, settings: FolderSettings) -> EvaluatorFile:
        """The evaluator as the sandbox takes it."""
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
        """Patterns of the files that define the problem."""
        config = self.config.path
        named = () if config is None else (config.relative_to(self.folder).as_posix(),)
        readme = () if (self.folder / TASK_FILE).is_file() else (README,)
        return (*OWN_FILES, *named, *readme)

    @property
    def task(self) -> str:
        """The task in words: `problem.md`, another tool's configuration, or the README.

        Raises:
            ValueError: If none of them says it.
        """
        if (self.folder / TASK_FILE).is_file():
            return read_text(self.folder / TASK_FILE, self.folder)
        if self.config.task:
            return self.config.task
        if (self.folder / README).is_file():
            return read_text(self.folder / README, self.folder)
        config = self.config.path
        where = f", and {config.name} has no text at prompt.system_message" if config else ""
        raise ValueError(
            f"{TASK_FILE} is missing in {self.folder}{where}; expected it, prompt.system_message in"
            f" config.yaml, or {README}. costada init makes a problem folder"
        )


def find_layout(folder: Path, settings: FolderSettings) -> Layout:
    """The parts of a problem folder.

    Raises:
        ValueError: If there is no evaluator, naming the problems below the folder, if any; or if
            another tool's configuration is wrong.
    """
    evaluator = evaluator_in(folder)
    if evaluator is None:
        names = [str(each.relative_to(folder)) for each in problems_below(folder)]
        if not names:
            raise ValueError(
                f"{EVALUATOR_FILE} is missing in {folder}; expected it, {EVALUATORS[1]} or"
                f" {EVALUATORS[2]}. costada init makes a problem folder"
            )
        shown = ", ".join(names[:MAX_NAMED])
        more = f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
        what = "problem" if len(names) == 1 else "problems"
        raise ValueError(
            f"{folder} holds {len(names)} {what} ({shown}{more}); expected the path of one, such"
            f" as {folder / names[0]}"
        )
    source = read_text(evaluator, folder)
    is_ours = _contract(evaluator, source) is Contract.SCORE and (folder / TASK_FILE).is_file()
    config = FolderConfig() if is_ours else read_config(folder, settings)
    contract = _contract(evaluator, source, config.thresholds)
    if contract is Contract.STAGES and not config.thresholds:
        config = replace(config, thresholds=USUAL_THRESHOLDS)
    num_stages = int(contract is Contract.STAGES)
    for name in NEXT_STAGES[: len(config.thresholds)] if num_stages else ():
        if name not in _defined(source):
            break
        num_stages += 1
    return Layout(folder, evaluator, source, contract, num_stages, config)


def _contract(evaluator: Path, source: str, thresholds: Sequence[float] = ()) -> Contract:
    names, is_program = _defined(source), "__main__" in source
    if RESULTS_OPTION in source and is_program:
        return Contract.COMMAND_LINE
    if LEGACY in names:
        return Contract.STAGES if FIRST_STAGE in names and thresholds else Contract.EVALUATE
    if NATIVE in names:
        return Contract.SCORE
    if FIRST_STAGE in names:
        return Contract.STAGES
    is_command = is_program and evaluator.with_name(SCRIPT).is_file()
    return Contract.PRINTED_JSON if is_command else Contract.EVALUATE


def evaluator_in(folder: Path) -> Path | None:
    """The evaluator of a problem folder; None if it has none."""
    return next((folder / name for name in EVALUATORS if (folder / name).is_file()), None)


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
def _defined(source: str) -> frozenset[str]:
    """The names that a module defines or imports; none if its text cannot be parsed."""
    try:
        symbols = symtable(source, EVALUATOR_FILE, "exec").get_symbols()
    except (SyntaxError, ValueError, RecursionError):
        return frozenset()
    found = (each for each in symbols if each.is_assigned() or each.is_imported())
    return frozenset(each.get_name() for each in found)
