"""A problem made of one Python function of the caller, which judges texts that nothing runs."""

import ast
import re
from collections.abc import Callable
from dataclasses import dataclass
from inspect import getsource
from pathlib import Path

from costada.evaluators.folder_evaluators import scored_answer
from costada.evaluators.folder_settings import FolderSettings
from costada.evaluators.problem import Problem
from costada.evaluators.problem_checks import check_called_function
from costada.values.evaluation import Evaluation
from costada.values.program_form import TEXT, Language, language_of

QUERIES = "SQL"
TEXTS = "a text that nothing runs, such as a prompt, a configuration or a query"
PROGRAMS = (
    "programs of candidates run in the sandbox: describe them by a problem folder (costada init) or"
    " Problem(entry_point=..., score=...)"
)
CODE = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom)
"""Statements that no text in a human language has by accident."""


@dataclass(frozen=True, slots=True)
class FunctionScore:
    """A function of the caller as a `score`: a text in, a number, dict or evaluation out."""

    function: Callable[[str], object]

    def decided_by(self) -> tuple[object, ...]:
        """What the score depends on."""
        return (self.function,)

    def __call__(self, text: str) -> Evaluation:
        """Evaluation of a text.

        Raises:
            InvalidEvaluation: The function returned nothing of these.
            Exception: Whatever the function raises.
        """
        return scored_answer(self.function(text), FolderSettings(), "evaluate")


def function_problem(
    evaluate: Callable[[str], object], start: str | Path | None, task: str
) -> Problem:
    """The problem whose candidates are texts and whose evaluator is one function.

    Args:
        evaluate: Called with a text, in this process. It returns a number, higher is better, a dict
            with `combined_score`, `(score, side_info)`, or an `Evaluation`. It rejects a text by
            `ValueError`, whose message the model sees, and gives feedback by `costada.log`.
        start: The text to begin with, or the path of a file that holds it; None if the first
            attempts write it from the task.
        task: What the text is for, in words for the model.

    Raises:
        ValueError: Naming the argument, its value and what was expected; also for a program, as
            those run in the sandbox.
        OSError: The file cannot be read.
    """
    if not callable(evaluate):
        raise ValueError(f"evaluate: got {evaluate!r}, expected a function")
    check_called_function("evaluate", evaluate)
    if not isinstance(start, str | Path | None):
        raise ValueError(f"start: got {start!r}, expected {TEXTS}, or the Path of a file with it")
    if not isinstance(task, str) or not task.strip():
        raise ValueError(f"task: got {task!r}, expected what the text is for, in words")
    text, language, name = (None, TEXT, "") if start is None else _read(start)
    is_text = language.is_document or language.name == QUERIES
    if text is not None and (not is_text or _is_python(text, language)):
        found = "Python" if language.is_text else language.name
        raise ValueError(f"start: got a program in {found}, expected {TEXTS}; {PROGRAMS}")
    return Problem(
        name=re.sub(r"\W+", "", getattr(evaluate, "__name__", "")) or "function",
        task=task,
        initial_program=text,
        language=language.name,
        file_name=name,
        score=FunctionScore(evaluate),
        evaluator_source=_source(evaluate),
    )


def _read(start: str | Path) -> tuple[str, Language, str]:
    """The text to begin with, its language and the name of its file."""
    if isinstance(start, Path):
        if not start.is_file():
            raise ValueError(f"start: got {start}, expected a text file")
        return start.read_text("utf-8"), language_of(start.name), start.name
    if "\n" not in start and _is_file(start):
        raise ValueError(f"start: got {start!r}, the name of a file; expected Path({start!r})")
    return start, TEXT, ""


def _is_file(text: str) -> bool:
    try:
        return Path(text).is_file()
    except (OSError, ValueError):  # too long for a name, or with a NUL
        return False


def _is_python(text: str, language: Language) -> bool:
    """Whether a text of no known language is a program in Python."""
    if not language.is_text:
        return False
    try:
        statements = ast.parse(text).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return any(isinstance(each, CODE) for each in statements)


def _source(function: Callable[[str], object]) -> str:
    """The text of the function, which guides are shown; empty if there is none."""
    try:
        return getsource(function)
    except (OSError, TypeError):
        return ""
