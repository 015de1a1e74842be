"""The trusted side of a native folder: its `evaluator.py`, loaded once into this process."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from inspect import signature
from numbers import Real
from pathlib import Path
from symtable import symtable
from types import FunctionType, ModuleType
from typing import Any

from costada.evaluators.folder_module import load_trusted, own_imports
from costada.evaluators.folder_settings import FolderSettings
from costada.evaluators.folder_verdict import sort_values, verdict
from costada.evaluators.object_hash import Unknown
from costada.evaluators.shown_files import reads_elsewhere
from costada.values.evaluation import COMBINED_SCORE, Evaluation

NATIVE, LEGACY = "score", "evaluate"


@dataclass(frozen=True, slots=True)
class FolderScore:
    """A folder's `score(output)`, whose answer may also be a dict with a `combined_score`.

    Attributes:
        score: The function that `evaluator.py` defines.
        settings: The folder's settings, which say what a combined_score is worth.
        folder: Where `evaluator.py` lies.
        imports: Modules of other places that it uses, except those of installed packages.
    """

    score: Callable[[Any], object]
    settings: FolderSettings
    folder: Path
    imports: tuple[ModuleType, ...]

    def decided_by(self) -> tuple[object, ...]:
        """Return what the verdicts depend on: every file of the folder, `imports`, and the rest."""
        rest = Unknown("what it reads elsewhere") if reads_elsewhere(self.folder) else None
        return (self.folder, self.imports, rest)

    def __call__(self, output: object) -> Evaluation:
        """Return the verdict on what a candidate returned; may raise whatever `score` raises."""
        answer = self.score(output)
        if isinstance(answer, Evaluation):
            return answer
        if not isinstance(answer, Mapping):
            given = type(answer).__name__
            raise TypeError(
                f"score returned {given}; expected an Evaluation or a dict with {COMBINED_SCORE}"
            )
        return verdict(*sort_values({str(k): _plain(v) for k, v in answer.items()}), self.settings)


@dataclass(frozen=True, slots=True)
class TrustedEvaluator:
    """What the `evaluator.py` of a native folder defines.

    Attributes:
        score: Judges what a candidate returned.
        arguments: Keyword arguments of the one call.
        calls: Keyword arguments of each of several calls; None if there is one call.
    """

    score: FolderScore
    arguments: Mapping[str, object]
    calls: Sequence[Mapping[str, object]] | None


def is_native(source: str) -> bool:
    """Return whether an `evaluator.py` defines `score(output)` and no `evaluate(program_path)`.

    A text that cannot be parsed is not native: the sandbox says what is wrong with it.
    """
    try:
        symbols = symtable(source, "evaluator.py", "exec").get_symbols()
    except (SyntaxError, ValueError, RecursionError):
        return False
    names = {each.get_name() for each in symbols if each.is_assigned() or each.is_imported()}
    return NATIVE in names and LEGACY not in names


def read_trusted(path: Path, settings: FolderSettings) -> TrustedEvaluator:
    """Return what an `evaluator.py` defines, which is run for that in this process.

    Raises:
        ValueError: Naming file and line of an error in it, or what is not as it should be.
    """
    module = load_trusted(path)
    score = module.score
    if not callable(score) or not _takes_one(score):
        raise ValueError(f"{path}: score is {score!r}; expected a function of one argument")
    return TrustedEvaluator(
        score=FolderScore(score, settings, path.parent, own_imports(module)),
        arguments=getattr(module, "ARGUMENTS", {}),
        calls=getattr(module, "CALLS", None),
    )


def _takes_one(function: Callable[[Any], object]) -> bool:
    if not isinstance(function, FunctionType):
        return True
    try:
        signature(function).bind(None)
    except TypeError:
        return False
    return True


def _plain(value: object) -> object:
    """Return a number of any kind as a float, and anything else as it is."""
    if isinstance(value, Real) or getattr(value, "shape", None) == ():
        return float(value)  # type: ignore[arg-type]
    return value
