"""Candidates of a run and the membership of its archives."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import fields
from functools import lru_cache
from itertools import chain
from typing import Any

from costada.store.database import Database, any_of
from costada.store.rows import MAX_READING, LandedTickets, checking_rows, parse_json
from costada.values.candidate import Candidate, Program
from costada.values.example_score import ExampleScore
from costada.values.numbering import Iteration, TicketNumber

SEED_ID = "0.1"
"""Id of the initial program on the first frontier."""

FRONT = -1
"""Stands in place of a frontier for the Pareto front, which is kept as an archive is.

It is over the objectives of a problem, or over the examples of a data set.
"""

RECENT_ROWS = 512
"""Decoded rows kept in memory: several times what the archives hold."""

AFTER_TICKET = "substr(id, instr(id, '.') + 1)"
ATTEMPT = (
    "CASE WHEN instr(id, '@') = 0 THEN"
    f" CAST(substr({AFTER_TICKET}, 1, instr({AFTER_TICKET} || '.', '.') - 1) AS BIGINT) END"
)
"""The second part of a candidate's id, which is not a copy's: the number of an attempt."""

BEST_OF_BATCH = """
(SELECT MAX(score) FROM costada_candidate WHERE run_id = ? AND ticket IN (
    SELECT CAST(json_extract(row, '$.ticket') AS BIGINT) FROM costada_step
    WHERE run_id = ? AND iteration >= ? AND iteration < ? AND iteration < ? + (
        SELECT iteration FROM costada_step WHERE run_id = ? AND iteration >= ?
        AND CAST(json_extract(row, '$.tactic_uses_left') AS BIGINT) = 0
        ORDER BY iteration LIMIT 1)))
"""
"""The best score of the steps from the one that was given a batch to its last use, and of those in
flight then; the number of the latter is the fifth value."""

FACTS = [each.name for each in fields(Candidate) if each.name not in ("program", "evaluator")]
"""Fields kept as JSON; program and evaluator have columns of their own."""


class CandidateTable:
    """Programs by id, and which of them each archive held after each change."""

    def __init__(self, database: Database) -> None:
        self._db = database
        # By content, so a row that is replaced is read anew and nothing here needs to be forgotten.
        self._row = lru_cache(maxsize=RECENT_ROWS)(self._read_row)
        self._cache: dict[tuple[str, str], Candidate] = {}
        self._archives: dict[tuple[str, int], tuple[int, list[str]]] = {}
        self._size = 0

    def forget(self) -> None:
        """Read again what was kept: the database may hold something else now."""
        self._cache.clear()
        self._archives.clear()

    def put(self, run_id: str, candidate: Candidate) -> None:
        """Store a candidate, replacing one of the same id."""
        facts = {name: getattr(candidate, name) for name in FACTS}
        if not candidate.measurements:
            del facts["measurements"], facts["confirmation"]
        if not candidate.examples:
            del facts["examples"], facts["validation"]
        is_found = candidate.is_valid and not candidate.is_copy and not candidate.is_trial
        # The column has no score of a failure, copy or trial, so queries need not read the facts.
        found = candidate.score if is_found else None
        row = (run_id, candidate.id, candidate.ticket, found)
        text = _dump(facts)
        with self._db.transaction():
            code_hash = self._db.put_program(candidate.program)
            verdict = code_hash, text, candidate.evaluator
            self._db.put_row("costada_candidate", (*row, *verdict, candidate.migrated_in))
        # as it will be read: JSON has no tuples and no numbers of other libraries
        self._keep({(run_id, candidate.id): self._row(code_hash, text, candidate.evaluator)})

    def get(self, run_id: str, candidate_id: str) -> Candidate:
        """One candidate; raises `ValueError` when the run has none of that id."""
        return self.get_many(run_id, [candidate_id])[0]

    def find(self, run_id: str, candidate_id: str) -> Candidate | None:
        """One candidate, `None` when the run has none of that id."""
        found = self._db.rows(
            "SELECT code_hash, facts, evaluator FROM costada_candidate WHERE run_id = ? AND id = ?",
            (run_id, candidate_id),
        )
        return self._row(*found[0]) if found else None

    def get_many(self, run_id: str, ids: Sequence[str]) -> list[Candidate]:
        """The candidates of the ids, in that order."""
        known = {name: row for name in ids if (row := self._cache.get((run_id, name)))}
        known |= self._read(run_id, [name for name in ids if name not in known])
        missing = [name for name in ids if name not in known]
        if missing:
            raise ValueError(
                f"candidates {missing}: not stored for run {run_id}; give"
                " create_discovery_graph the store that the run was started with"
            )
        return [known[name] for name in ids]

    def _read(self, run_id: str, ids: Sequence[str]) -> dict[str, Candidate]:
        if not ids:
            return {}
        stored = self._db.rows(
            "SELECT code_hash, facts, evaluator, id FROM costada_candidate"  # noqa: S608
            f" WHERE run_id = ? AND id IN {any_of(ids)}",
            (run_id, *ids),
        )
        found = dict(zip([each[-1] for each in stored], self._rows(stored), strict=True))
        self._keep({(run_id, name): row for name, row in found.items()})
        return found

    def _keep(self, rows: Mapping[tuple[str, str], Candidate]) -> None:
        """Keep rows for the next node that asks for them."""
        if len(self._cache) > RECENT_ROWS:
            self._cache.clear()
        self._cache.update(rows)

    def population(self, run_id: str, seen: LandedTickets) -> list[Candidate]:
        """The initial program and all valid candidates of landed tickets, in order.

        Copies and trials do not count.
        """
        found = self._db.rows(
            "SELECT code_hash, facts, evaluator FROM costada_candidate"  # noqa: S608
            f" WHERE run_id = ? AND ticket <= ? AND ticket NOT IN {any_of(seen.open)}"
            " AND (score IS NOT NULL OR id = ?) ORDER BY ticket, rowid",
            (run_id, seen.last, *seen.open, SEED_ID),
        )
        return self._rows(found)

    def originals(self, run_id: str) -> list[Candidate]:
        """The initial program and all that were evaluated, in order of their tickets; no copies."""
        found = self._db.rows(
            "SELECT code_hash, facts, evaluator FROM costada_candidate WHERE run_id = ?"
            " AND iteration IS NULL AND (ticket > 0 OR id = ?) ORDER BY ticket, rowid",
            (run_id, SEED_ID),
        )
        return self._rows(found)

    def find_evaluated(
        self,
        run_id: str,
        program: Program,
        evaluator: str,
        ticket: TicketNumber,
        attempt: int,
        seen: LandedTickets,
    ) -> Candidate | None:
        """The first candidate with that program that this evaluator has evaluated, if any.

        Only candidates of tickets that had landed, of earlier attempts and trials of this one
        count, so that an attempt which is executed again finds what it found the first time. Copies
        do not: their original is found in their place. The first two parts of an id are the ticket
        and the attempt, the third is a trial's.
        """
        open = (*seen.open, ticket)
        found = self._db.rows(
            "SELECT code_hash, facts, evaluator FROM costada_candidate"  # noqa: S608
            " WHERE run_id = ? AND code_hash = ? AND evaluator = ? AND iteration IS NULL"
            f" AND (ticket <= ? AND ticket NOT IN {any_of(open)}"
            f" OR ticket = ? AND {ATTEMPT} < ?"
            " OR id LIKE ?) ORDER BY ticket LIMIT 1",
            (
                *(run_id, program.hash, evaluator, seen.last, *open),
                *(ticket, attempt, f"{ticket}.{attempt}.%"),
            ),
        )
        return self._row(*found[0]) if found else None

    def _rows(self, stored: Sequence[tuple[Any, ...]]) -> list[Candidate]:
        """Candidates by their first three columns.

        Raises:
            ValueError: Their programs are larger together than those of any run.
        """
        found, size = [], 0
        for code_hash, facts, evaluator, *_ in stored:
            found.append(self._row(code_hash, facts, evaluator))
            size += sum(len(text) for _, text in found[-1].program.files)
            if size > MAX_READING:
                raise ValueError(
                    f"programs of more than {MAX_READING:,} characters at the same time,"
                    " expected fewer"
                )
        return found

    def _read_row(self, code_hash: str, facts: str, evaluator: str) -> Candidate:
        program = self._db.program(code_hash)
        size = sum(len(text) for _, text in program.files)
        self._size += size
        # A hostile file unpacks to much more than its size, so all that is kept goes at once.
        if self._size > MAX_READING:
            self._row.cache_clear()
            self._cache.clear()
            self._size = size
        with checking_rows(self._db.place):
            known = parse_json(facts)
            for name in ("inspirations", "measurements", "confirmation"):
                known[name] = tuple(known.get(name, ()))
            known["examples"] = tuple(ExampleScore(*each) for each in known.get("examples", ()))
            known["validation"] = tuple(known.get("validation", ()))
            return Candidate(program=program, evaluator=evaluator, **known)

    def evaluators(self, run_id: str) -> list[str]:
        """Fingerprints of the evaluators whose evaluations a run may reuse."""
        found = self._db.rows(
            "SELECT DISTINCT evaluator FROM costada_candidate WHERE run_id = ? AND evaluator != ''",
            (run_id,),
        )
        return [str(row[0]) for row in found]

    def best_of_batches(
        self, run_id: str, given: Sequence[Iteration], *, before: Iteration, parallel: int
    ) -> list[float | None]:
        """The best score found with each batch of tactics, `None` if there is none.

        Failed candidates, copies and trials do not count.

        Args:
            run_id: The run.
            given: The iterations in which the batches were given.
            before: The iteration that is about to begin.
            parallel: How many steps follow the one that took a last use, that one included: those
                in flight then may land after it.
        """
        if not given:
            return []
        values = ((run_id, run_id, each, before, parallel, run_id, each) for each in given)
        (found,) = self._db.rows(
            f"SELECT {', '.join([BEST_OF_BATCH] * len(given))}", [*chain.from_iterable(values)]
        )
        return list(found)

    def put_archive(self, run_id: str, frontier: int, seq: int, members: Sequence[str]) -> None:
        """Store the member ids of a frontier's archive after change number `seq`."""
        self._db.put_row("costada_archive", (run_id, frontier, seq, _dump(list(members))))
        self._archives[run_id, frontier] = (seq, [*members])

    def note_unchanged(self, run_id: str, frontier: int, seq: int) -> None:
        """Note that change number `seq` left a frontier's archive as it was, so nothing is read."""
        known = self._archives.get((run_id, frontier))
        if known and known[0] == seq - 1:
            self._archives[run_id, frontier] = (seq, known[1])

    def archive(self, run_id: str, frontier: int, seq: int) -> list[Candidate]:
        """A frontier's members as they were after change number `seq`, oldest first.

        Several nodes of a step ask for the same ones, so the last answer is kept.
        """
        members = self._members(run_id, frontier, seq)
        if members is None:
            raise ValueError(
                f"run {run_id}, frontier {frontier}: the store holds no archive up to change {seq};"
                " give create_discovery_graph the store that the run was started with"
            )
        return self.get_many(run_id, members)

    def front(self, run_id: str, seq: int) -> list[Candidate]:
        """The Pareto front as it was after change number `seq` of the archives, oldest first.

        Empty for a run of one objective without a data set.
        """
        return self.get_many(run_id, self._members(run_id, FRONT, seq) or [])

    def _members(self, run_id: str, frontier: int, seq: int) -> list[str] | None:
        known = self._archives.get((run_id, frontier))
        if known and known[0] == seq:
            return known[1]
        found = self._db.rows(
            "SELECT members FROM costada_archive WHERE run_id = ? AND frontier = ? AND seq <= ?"
            " ORDER BY seq DESC LIMIT 1",
            (run_id, frontier, seq),
        )
        if not found:
            return None
        members: list[str] = parse_json(found[0][0])
        self._archives[run_id, frontier] = (seq, members)
        return members


def _dump(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))
