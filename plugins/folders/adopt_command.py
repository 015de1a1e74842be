"""`costada adopt`: settings and the skeleton of a native score for another tool's folder."""

from __future__ import annotations

import ast
import os
import re
from typing import TYPE_CHECKING

from costada.cli.command_errors import refusing
from costada.cli.main import OTHERS, PROBLEMS, PluginCommand
from costada.plugins.folders.prepare_command import ProblemPath
from costada.reports.terminal import show
from costada.runs.interruption import ExitCode
from costada.values.path_words import path_word

if TYPE_CHECKING:
    from costada.evaluators.folders import ProblemFolder

SCORE_FILE = "native_evaluator.py"
WORD = re.compile(r"[^\W\d]\w*")
SETTINGS = """\
# Settings of this folder for CostAda. All keys are optional; those behind a # are examples.

{lines}
# direction = "minimize"  # which way combined_score improves; then a reference is needed
# reference = 1.0         # the combined_score of score 1
# memory_mb = 4096        # memory of one evaluation, in MiB
# files = ["data/*.csv"]  # what the evaluator may read besides what its code imports or names
# preload = ["numpy"]     # modules loaded before a candidate starts, which costs it no time
"""
SKELETON = '''\
"""The score of a candidate, computed apart from it: the skeleton of a native evaluator.

Candidates run alone in the sandbox, where `{entry_point}` is called with `ARGUMENTS`; what it
returns is scored here, in a process that no candidate can reach. Complete `score`, set
entry_point = "{entry_point}" in problem.toml, and put this file in the place of {evaluator}.
"""

ARGUMENTS = {{}}
"""What `{entry_point}` is called with: numbers, texts, arrays, lists and dicts by name."""


def score(output):
    """Return `combined_score`; other numbers are metrics, and texts are feedback for the model.

    Raises:
        ValueError: Saying what is wrong with the output; the model reads that as well.
    """
    if not isinstance(output, float):
        raise ValueError(f"{entry_point} returned {{type(output).__name__}}; expected a number")
    return {{"combined_score": output}}
'''


def adopt(folder: ProblemPath) -> None:
    """Write a problem.toml for a folder of another tool, and the skeleton of a native score.

    Existing files are never overwritten.
    """
    with refusing(ExitCode.BAD_INPUT):
        from costada.evaluators.folder_layout import IN_RUN
        from costada.evaluators.folder_settings import SETTINGS_FILE, read_settings
        from costada.evaluators.folders import read_folder

        if repository := read_settings(folder / SETTINGS_FILE).repository:
            raise ValueError(
                f"{folder} is a problem folder of CostAda for the repository {repository}, which"
                " needs no adoption; expected a folder of another tool"
            )
        found = read_folder(folder)
        if found.layout.contract in IN_RUN:
            raise ValueError(f"{folder} has a native evaluator; expected one of another tool")
        texts = {SETTINGS_FILE: _settings(found), SCORE_FILE: _skeleton(found)}
        present = [name for name in texts if os.path.lexists(folder / name)]
        for name in texts.keys() - set(present):
            with (folder / name).open("x", encoding="utf-8") as file:
                file.write(texts[name])
    lines = [f"{'Kept ' if name in present else 'Wrote'} {folder / name}" for name in texts]
    show("\n".join([*lines, f"Next: costada check {path_word(folder)}"]))


def _settings(found: ProblemFolder) -> str:
    """The text of a `problem.toml` that says what holds for a folder now."""
    config, settings = found.layout.config, found.settings
    lines = [f"timeout = {settings.timeout:g}  # seconds of one evaluation"]
    if config.path:
        path = config.path.relative_to(found.layout.folder)
        lines.insert(0, f'config = "{path}"  # where task, language and limits are from')
    names = _entry_points(found)
    sign = "" if len(names) == 1 else "# "
    for name in names:
        lines.append(f'{sign}entry_point = "{name}"  # a function that every candidate defines')
    return SETTINGS.format(lines="\n".join(lines))


def _skeleton(found: ProblemFolder) -> str:
    [entry_point, *_] = [*_entry_points(found), "main"]
    return SKELETON.format(entry_point=entry_point, evaluator=found.layout.evaluator.name)


def _entry_points(found: ProblemFolder) -> list[str]:
    """Functions of the initial program that the evaluator's files name and do not define."""
    if not isinstance(found.program.source, str):
        return []
    sources = _sources(found)
    own = {name for source in sources for name in _functions(source)}
    words = {word for source in sources for word in WORD.findall(source)}
    return [name for name in _functions(found.program.source) if name in words - own]


def _functions(source: str) -> list[str]:
    """Functions that a program defines outside of others, in its order."""
    return [node.name for node in _parsed(source).body if isinstance(node, ast.FunctionDef)]


def _sources(found: ProblemFolder) -> list[str]:
    files = found.layout.evaluator_file(found.settings).shown()
    return [path.read_text("utf-8", "replace") for path in files if path.suffix == ".py"]


def _parsed(source: str) -> ast.Module:
    try:
        return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ast.Module([], [])


COMMAND = PluginCommand(adopt, PROBLEMS, OTHERS)
