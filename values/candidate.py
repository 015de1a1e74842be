"""A program, and a candidate: one program of a run, its verdict and where it came from."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import sha256
from math import isfinite
from typing import Self

from costada.values.evaluation import EVALUATOR_FAULT, SANDBOX_FAULT, Evaluation

MAIN_FILE = "program.py"
"""Path of the one file that a program has today."""


@lru_cache(maxsize=64)
def text_hash(text: str) -> str:
    """Name of a stored text; a step asks for the same few again and again."""
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


@dataclass(frozen=True, slots=True)
class Program(Mapping[str, str]):
    """The files of a candidate (p_t), text by relative path.

    Attributes:
        files: Path and text of each file.
    """

    files: tuple[tuple[str, str], ...]

    @classmethod
    def of(cls, text: str) -> Self:
        """A program of one file."""
        return cls(((MAIN_FILE, text),))

    def __getitem__(self, path: str) -> str:
        return dict(self.files)[path]

    def __iter__(self) -> Iterator[str]:
        return (path for path, _ in self.files)

    def __len__(self) -> int:
        return len(self.files)

    @property
    def text(self) -> str:
        """Text of the program's only file."""
        ((_, text),) = self.files
        return text

    @property
    def hash(self) -> str:
        """Name under which a store keeps the program."""
        return text_hash(self.text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One evaluated program (p_t).

    Attributes:
        id: Unique within a run.
        iteration: Iteration in which it entered its archive, 0 for the seed.
        program: Its files.
        score: Normalised score, higher is better (F); 0 if it is invalid.
        objective: The same in the benchmark's units; None if it is invalid.
        is_valid: Whether it ran and passed every check.
        metrics: Further numbers of the evaluator, by name.
        artifacts: Texts of the evaluator, by name.
        error: Why the evaluator refused it.
        parent_id: Candidate it was edited or copied from, None for the seed.
        generation: Edits that separate it from the seed.
        changes: Summary of the edit.
        is_copy: Whether it migrated to another frontier, with the verdict of the original.
        evaluator: Fingerprint of what judged it; empty if the verdict must not be used again.
        is_cached: Whether the verdict was taken from an earlier candidate with the same program.
        inspirations: Ids of the candidates shown beside its parent.
        label: What a search strategy said of its parent.
        is_trial: Whether the model evaluated it with a tool; trials are not part of the population.

    Raises:
        ValueError: The score is not finite.
    """

    id: str
    iteration: int = 0
    program: Program
    score: float
    objective: float | None = None
    is_valid: bool = True
    metrics: Mapping[str, float] = field(default_factory=dict)
    artifacts: Mapping[str, str] = field(default_factory=dict)
    error: str | None = None
    parent_id: str | None = None
    generation: int = 0
    changes: str = ""
    is_copy: bool = False
    evaluator: str = ""
    is_cached: bool = False
    inspirations: tuple[str, ...] = ()
    label: str = ""
    is_trial: bool = False

    def __post_init__(self) -> None:
        if not isfinite(self.score):
            raise ValueError(f"score: got {self.score}, expected a finite number")

    @classmethod
    def judged(cls, id: str, program: Program, evaluation: Evaluation, evaluator: str) -> Self:
        """A candidate with its verdict.

        Args:
            id: Unique within a run.
            program: What was judged.
            evaluation: The verdict; one that came of a fault is not used again.
            evaluator: Fingerprint of what judged it.
        """
        is_final = not {EVALUATOR_FAULT, SANDBOX_FAULT} & evaluation.artifacts.keys()
        return cls(
            id=id,
            program=program,
            score=evaluation.score,
            objective=evaluation.objective,
            is_valid=evaluation.is_valid,
            metrics=dict(evaluation.metrics),
            artifacts=dict(evaluation.artifacts),
            error=evaluation.error,
            evaluator=evaluator if is_final else "",
        )
