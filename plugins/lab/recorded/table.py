"""The packaged table: what recorded attempts started from, and what came of them."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from functools import lru_cache
from importlib.resources import files
from io import StringIO

from costada.values.usage import Usage

FOLDER = files("costada.plugins.lab.recorded")
TRANSITIONS_FILE = "transitions.csv"
GUIDES_FILE = "guides.csv"

SCORE_DECIMALS = 6
"""Decimals of a score in the table."""

SHOWN_ROUNDING = 0.0001
"""Unit of the last decimal of a score in a recorded prompt."""

ENTRY_POINT_MISSING = "entry_point_missing"
"""Failure of an answer that rewrote only the evolvable block; the parser of this package repairs
such answers, so what they would score is not known."""


@dataclass(frozen=True, slots=True)
class Transition:
    """One recorded attempt.

    Attributes:
        run: The recorded run, `METHOD/DATE`.
        iteration: The iteration that made it.
        is_capped: Whether its answers were cut off after 512 to 2,048 tokens.
        is_logged: Whether every iteration of that run is taken.
        is_stored: Whether its program was kept; those of logged runs are known without it.
        is_guided: Whether a tactic was in the prompt.
        parent_score: Score of the program it started from; None where that is not known.
        best_shown_score: Best score of the other programs in its prompt, with the four decimals
            that the prompt gave; None where there were none or they are not known.
        score: Score of its program; None for a failure.
        failure: Kind of the failure, empty without one.
        tokens: What the call was billed for; None where that was not recorded.
    """

    run: str
    iteration: int
    is_capped: bool
    is_logged: bool
    is_stored: bool
    is_guided: bool
    parent_score: float | None
    best_shown_score: float | None
    score: float | None
    failure: str
    tokens: Usage | None

    @property
    def method(self) -> str:
        """The method that drove the recorded run."""
        return self.run.split("/")[0]

    @property
    def exceeds_shown(self) -> bool:
        """Whether its program scores more than every program in its prompt, beyond rounding."""
        shown = max(self.parent_score or 0.0, self.best_shown_score or 0.0)
        return self.score is not None and self.score > shown + SHOWN_ROUNDING

    @property
    def outcome(self) -> str:
        """`failed`, `improved`, or `valid` for a program that is no better than its parent.

        The one valid program whose parent is not known scores as much as the initial program, so
        it is not an improvement.
        """
        if self.score is None:
            return "failed"
        is_better = self.parent_score is not None and self.score > self.parent_score
        return "improved" if is_better else "valid"


def transitions_text(transitions: Iterable[Transition]) -> str:
    """The table as it is packaged: CSV, empty for what is not known."""
    columns = [each.name for each in fields(Transition)][:-1]
    rows = []
    for each in transitions:
        known = asdict(each)
        tokens = known.pop("tokens") or {"input_tokens": None, "output_tokens": None}
        rows.append([*map(_cell, known.values()), *map(_cell, tokens.values())])
    return _csv_text([*columns, "input_tokens", "output_tokens"], rows)


def guides_text(guides: Iterable[Usage]) -> str:
    """The tokens of guide calls as they are packaged."""
    rows = [[_cell(each.input_tokens), _cell(each.output_tokens)] for each in guides]
    return _csv_text(["input_tokens", "output_tokens"], rows)


def _cell(value: object) -> str:
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, float):
        return f"{value:.{SCORE_DECIMALS}f}"
    return "" if value is None else str(value)


def _csv_text(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    text = StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    return text.getvalue()


@lru_cache(maxsize=1)
def recorded_transitions() -> tuple[Transition, ...]:
    """The packaged transitions."""
    return tuple(
        Transition(
            run=row["run"],
            iteration=int(row["iteration"]),
            is_capped=row["is_capped"] == "1",
            is_logged=row["is_logged"] == "1",
            is_stored=row["is_stored"] == "1",
            is_guided=row["is_guided"] == "1",
            parent_score=float(row["parent_score"]) if row["parent_score"] else None,
            best_shown_score=float(row["best_shown_score"]) if row["best_shown_score"] else None,
            score=float(row["score"]) if row["score"] else None,
            failure=row["failure"],
            tokens=_tokens(row) if row["input_tokens"] else None,
        )
        for row in _rows(TRANSITIONS_FILE)
    )


@lru_cache(maxsize=1)
def recorded_guides() -> tuple[Usage, ...]:
    """The tokens of the recorded guide calls."""
    return tuple(map(_tokens, _rows(GUIDES_FILE)))


def _tokens(row: dict[str, str]) -> Usage:
    return Usage(int(row["input_tokens"]), int(row["output_tokens"]))


def _rows(name: str) -> list[dict[str, str]]:
    text = FOLDER.joinpath(name).read_text(encoding="utf-8")
    return list(csv.DictReader(StringIO(text)))
