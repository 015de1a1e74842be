"""What happened in a run, read without writing, also while the run is active."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

from costada.store.database import Database
from costada.store.file_errors import checking_rows
from costada.store.rows import LARGEST_READING, CallStatus, OutcomeKind, amount, record
from costada.store.run_store import RunFacts

EVERYTHING = 2**62
"""An iteration that no run reaches."""


class Span(NamedTuple):
    """Iterations of one run: those above `after`, up to and with `until`."""

    run_id: str
    after: int = -1
    until: int = EVERYTHING


@dataclass(frozen=True, slots=True)
class PastCall:
    """A model request: as in `CallRow`, with the names of its texts in place of the texts.

    `number` counts the requests of one logical call from 1; `facts` are tokens, model, seconds and
    whatever else its row holds.
    """

    iteration: int
    role: str
    attempt: int
    number: int
    status: CallStatus
    cost: Decimal
    bound: Decimal
    prompt: str
    answer: str
    facts: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class PastCandidate:
    """A candidate: `facts` as in `Candidate`, with the name of its program in its place."""

    id: str
    iteration: int
    program: str
    facts: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class PastFailure:
    """A logical call that came to no answer: `kind` says whether it was refused, `text` why."""

    iteration: int
    role: str
    attempt: int
    kind: OutcomeKind
    text: str


class RunHistory(RunFacts):
    """The runs in a file as they were when it was opened, read-only.

    Opening and every use raise as `Database` does.
    """

    def __init__(self, path: Path) -> None:
        self._db = Database(path, is_read_only=True)
        self._size = 0

    @classmethod
    @contextmanager
    def of(cls, path: Path) -> Iterator["RunHistory"]:
        """Open the history of a file as it is now; later writes are not seen."""
        history = cls(path)
        try:
            history._db.rows("BEGIN")
            yield history
        finally:
            history._db.close()

    def last_run(self) -> str:
        """The id of the run that began last, empty if none has begun."""
        found = self._db.rows("SELECT run_id FROM costada_run ORDER BY rowid DESC LIMIT 1")
        return str(found[0][0]) if found else ""

    def steps(self, span: Span) -> list[dict[str, Any]]:
        """The trace rows in order."""
        return [_read(row) for (row,) in self._in_order("row", "step", span)]

    def calls(self, span: Span) -> list[PastCall]:
        """The requests in the order in which they were sent."""
        columns = "iteration, role, attempt, n, status, cost, bound, prompt_hash, answer_hash"
        with checking_rows(self._db.path):
            return [
                PastCall(
                    *(iteration, role, attempt, number, CallStatus(status)),
                    *(amount(cost), amount(bound), prompt, answer, _read(facts)),
                )
                for (
                    iteration,
                    role,
                    attempt,
                    number,
                    status,
                    cost,
                    bound,
                    prompt,
                    answer,
                    facts,
                ) in self._in_order(f"{columns}, facts", "call", span)
            ]

    def candidates(self, span: Span) -> list[PastCandidate]:
        """The candidates in the order in which they were judged, copies included."""
        return [
            PastCandidate(name, iteration, program, _read(facts))
            for name, iteration, program, facts in self._in_order(
                "id, iteration, code_hash, facts", "candidate", span
            )
        ]

    def program_of(self, run_id: str, candidate_id: str) -> str | None:
        """The text of a candidate's program, `None` if the run has no such candidate."""
        found = self._db.rows(
            "SELECT code_hash FROM costada_candidate WHERE run_id = ? AND id = ?",
            (run_id, candidate_id),
        )
        return self.text(found[0][0]) if found else None

    def failures(self, span: Span) -> list[PastFailure]:
        """The logical calls that came to no answer."""
        return [
            PastFailure(iteration, role, attempt, OutcomeKind(kind), self.text(name))
            for iteration, role, attempt, kind, name in self._in_order(
                "iteration, role, attempt, kind, text_hash", "outcome", span
            )
            if kind != OutcomeKind.ANSWER
        ]

    def tactics(self, span: Span) -> list[tuple[int, dict[str, Any]]]:
        """What each guide gave, with the iteration that paid for it."""
        found = self._in_order("iteration, record", "tactics", span)
        return [(iteration, _read(record)) for iteration, record in found]

    def iterations(self, run_id: str) -> list[int]:
        """The iterations that anything was sent or judged in, in order."""
        found = self._db.rows(
            "SELECT iteration FROM costada_call WHERE run_id = ?1 UNION"
            " SELECT iteration FROM costada_candidate WHERE run_id = ?1 ORDER BY iteration",
            (run_id,),
        )
        return [each for (each,) in found if isinstance(each, int) and 0 <= each < EVERYTHING]

    def text(self, name: str) -> str:
        """The text of a name; the empty name is that of the empty text.

        Raises:
            ValueError: All texts that were asked for are larger together than those of any run.
        """
        text = self._db.text(name)
        self._size += len(text)
        if self._size > LARGEST_READING:
            raise ValueError(
                f"{self._db.path}: texts of more than {LARGEST_READING:,} characters in one part of"
                " it, expected fewer"
            )
        return text

    def _in_order(self, columns: str, table: str, span: Span) -> list[tuple[Any, ...]]:
        return self._db.rows(
            f"SELECT {columns} FROM costada_{table}"  # noqa: S608
            " WHERE run_id = ? AND iteration > ? AND iteration <= ? ORDER BY iteration, rowid",
            span,
        )


def _read(text: str) -> dict[str, Any]:
    """The object that a row holds; what is no number in JSON counts as absent."""
    return record(text, has_constants=False)
