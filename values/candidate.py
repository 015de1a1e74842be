"""A program, and a candidate: one program of a run, its evaluation and where it came from."""

import json
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import sha256
from math import isfinite
from operator import itemgetter
from statistics import fmean
from typing import Self

from costada.values.evaluation import EVALUATOR_FAULT, SANDBOX_FAULT, Evaluation
from costada.values.example_score import ExampleScore
from costada.values.numbering import START_TICKET, Iteration, TicketNumber

ONLY_FILE = ""
"""Path of the file of a program that is one text; no file of several has it."""

FILES = "files-"
"""Begins the name of a program of several files; the hash of its contents follows."""


@lru_cache(maxsize=64)
def text_hash(text: str) -> str:
    """Name of a stored text; a step asks for the same few again and again."""
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


@dataclass(frozen=True, slots=True)
class Program(Mapping[str, str]):
    """The files of a candidate (p_t), text by relative path.

    Attributes:
        files: Path and text of each file, sorted by path.
    """

    files: tuple[tuple[str, str], ...]
    _joined: list[str] = field(default_factory=list, init=False, repr=False, compare=False)

    @classmethod
    def of(cls, source: str | Mapping[str, str]) -> Self:
        """A program of one text, or of files by path."""
        if isinstance(source, str):
            return cls(((ONLY_FILE, source),))
        return cls(tuple(sorted(source.items())))

    def __getitem__(self, path: str) -> str:
        place = bisect_left(self.files, path, key=itemgetter(0))
        if self.files[place : place + 1] and self.files[place][0] == path:
            return self.files[place][1]
        raise KeyError(path)

    def __iter__(self) -> Iterator[str]:
        return (path for path, _ in self.files)

    def __len__(self) -> int:
        return len(self.files)

    @property
    def is_one_text(self) -> bool:
        """Whether it is a single text without a path."""
        return len(self.files) == 1 and self.files[0][0] == ONLY_FILE

    @property
    def is_empty(self) -> bool:
        """Whether it is what a run without an initial program begins with: an empty text."""
        return not self.text

    @property
    def source(self) -> "str | Program":
        """The text of a program of one text, else the program: what an evaluator is given."""
        return self.files[0][1] if self.is_one_text else self

    @property
    def by_path(self) -> dict[str, str]:
        """The text of each file of a program of several files; empty if it is one text."""
        return {} if self.is_one_text else dict(self.files)

    @property
    def text(self) -> str:
        """The text of a program of one text; else all files, each below a line with its path."""
        if self.is_one_text:
            return self.files[0][1]
        if not self._joined:  # kept, as a step compares the texts of an archive again and again
            whole = "\n".join(f"==> {path} <==\n{text}" for path, text in self.files)
            self._joined.append(whole)
        return self._joined[0]

    @property
    def contents(self) -> str:
        """The hash of each file by its path, as JSON; that of an empty file is empty."""
        return json.dumps({path: text and text_hash(text) for path, text in self.files})

    @property
    def hash(self) -> str:
        """Name under which a store keeps the program; that of an empty one is empty."""
        if self.is_one_text:
            return self.text and text_hash(self.text)
        return FILES + text_hash(self.contents)


def changed_files(program: Mapping[str, str], base: Mapping[str, str]) -> dict[str, str]:
    """The files of a program that another one lacks or has with another text, by path."""
    return {path: text for path, text in program.items() if base.get(path) != text}


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One evaluated program (p_t).

    Attributes:
        id: Unique within a run.
        ticket: That of the step which made it or its original, 0 for the seed.
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
        migrated_in: Iteration in which it migrated to another frontier, as a copy with the
            evaluation of the original; None for an original.
        evaluator: Fingerprint of what evaluated it; empty if that must not be used again.
        is_cached: Whether its evaluation is that of an earlier candidate with the same program.
        inspirations: Ids of the candidates shown beside its parent.
        label: What a search strategy said of its parent.
        is_trial: Whether the model evaluated it with a tool; trials are not part of the population.
        measurements: Objective of each measurement, where it was measured repeatedly.
        confirmation: Those of its second series, where it was better than the incumbent.
        examples: Scores on the examples of a data set that it was judged on; `score` is an estimate
            where these are not all.
        validation: Scores on the validation examples; empty if it was not judged on them.

    Raises:
        ValueError: The score is not finite.
    """

    id: str
    ticket: TicketNumber = START_TICKET
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
    migrated_in: Iteration | None = None
    evaluator: str = ""
    is_cached: bool = False
    inspirations: tuple[str, ...] = ()
    label: str = ""
    is_trial: bool = False
    measurements: tuple[float, ...] = ()
    confirmation: tuple[float, ...] = ()
    examples: tuple[ExampleScore, ...] = ()
    validation: tuple[float, ...] = ()

    @property
    def is_copy(self) -> bool:
        """Whether it migrated to another frontier."""
        return self.migrated_in is not None

    @property
    def validation_score(self) -> float | None:
        """Mean score on the validation examples; None if it was not judged on them."""
        return fmean(self.validation) if self.validation else None

    def __post_init__(self) -> None:
        if not isfinite(self.score):
            raise ValueError(f"score: got {self.score}, expected a finite number")

    @classmethod
    def from_evaluation(
        cls, id: str, program: Program, evaluation: Evaluation, evaluator: str
    ) -> Self:
        """A candidate with its evaluation.

        Args:
            id: Unique within a run.
            program: What was evaluated.
            evaluation: How; one that came of a fault is not used again.
            evaluator: Fingerprint of what evaluated it.
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
            measurements=evaluation.measurements,
            confirmation=evaluation.confirmation,
            examples=evaluation.examples,
            validation=evaluation.validation,
        )


@dataclass(frozen=True, slots=True)
class LandedCandidate:
    """A candidate of a step that has landed, and the iteration as which it did; 0 for the seed."""

    candidate: Candidate
    iteration: Iteration
