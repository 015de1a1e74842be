"""The format of OpenEvolve, SkyDiscover and ShinkaEvolve: where their folders keep their parts.

The evaluator is `evaluator.py` or `evaluate.py`, or `evaluator/evaluator.py` with its neighbours.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from costada.evaluators.folder_files import EVALUATOR_FILE
from costada.evaluators.folder_layout import (
    IN_SANDBOX,
    NATIVE,
    TASK_FILE,
    Contract,
    FolderFormat,
    Layout,
    defined_names,
)
from costada.evaluators.folder_settings import FolderSettings
from costada.evaluators.initial_program import read_text
from costada.plugins.folders.dependencies import missing_dependencies
from costada.plugins.folders.peer_config import CONFIGS, RUNNER, USUAL_THRESHOLDS, read_config

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
    if _contract(evaluator, source) is Contract.SCORE and (folder / TASK_FILE).is_file():
        return None
    config = read_config(folder, settings)
    contract = _contract(evaluator, source, config.thresholds)
    if contract is Contract.STAGES and not config.thresholds:
        config = replace(config, thresholds=USUAL_THRESHOLDS)
    num_stages = int(contract is Contract.STAGES)
    for name in NEXT_STAGES[: len(config.thresholds)] if num_stages else ():
        if name not in defined_names(source):
            break
        num_stages += 1
    return Layout(folder, evaluator, source, contract, num_stages, config)


def _contract(evaluator: Path, source: str, thresholds: Sequence[float] = ()) -> Contract:
    names, is_program = defined_names(source), "__main__" in source
    if RESULTS_OPTION in source and is_program:
        return Contract.COMMAND_LINE
    if IN_SANDBOX in names:
        return Contract.STAGES if FIRST_STAGE in names and thresholds else Contract.EVALUATE
    if NATIVE in names:
        return Contract.SCORE
    if FIRST_STAGE in names:
        return Contract.STAGES
    is_command = is_program and evaluator.with_name(SCRIPT).is_file()
    return Contract.PRINTED_JSON if is_command else Contract.EVALUATE


FORMAT = FolderFormat(
    layout=peer_layout,
    evaluators=EVALUATORS,
    own_files=(SCRIPT, RUNNER, *CONFIGS),
    missing=missing_dependencies,
)
