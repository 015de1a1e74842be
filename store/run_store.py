"""Everything of a run that outlives a checkpoint, read and written by logical keys.

Writes replace what stands under the same key, so a step that is executed again after a crash
overwrites its own rows. Only calls are never replaced: each of them was paid.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from math import inf
from pathlib import Path
from time import time
from typing import Any, Self

from costada.store.accounts import Account, paying_purses
from costada.store.address import POSTGRES, RunAddress, StorePlace
from costada.store.call_log import CallLog
from costada.store.candidates import SEED_ID, CandidateTable
from costada.store.database import Database
from costada.store.lease import LEASE_SECONDS, MIN_SECONDS, Holder, Lease
from costada.store.ledger import Ledger
from costada.store.rows import Origin, RunSetup, amount, checking_rows, record
from costada.store.user_inputs import UserInputTable
from costada.values.candidate import Program
from costada.values.example_score import JudgedExamples
from costada.values.numbering import Iteration, TicketNumber


def run_ids(database: Database, only: str | None = None) -> list[str]:
    """The ids of all runs in a database, oldest first, or the one of a run by its name or id."""
    if only is None:
        found = database.rows("SELECT run_id FROM costada_run ORDER BY rowid")
    else:
        found = database.rows(
            "SELECT run_id FROM costada_run WHERE run_id = COALESCE("
            "(SELECT run_id FROM costada_named WHERE name = ?1), ?1)",
            (only,),
        )
    return [str(run_id) for (run_id,) in found]


@dataclass(frozen=True, slots=True)
class NamedRun:
    """A name in a database: its run, once that has begun, and when the name was taken.

    `run_id` is empty before the run begins; `claimed_at` counts seconds since 1970 UTC. `last` is
    the last iteration that has ended, `in_flight` the number of its requests that have not, and
    `spent` the dollars of its account.
    """

    name: str
    run_id: str
    claimed_at: float
    last: int
    in_flight: int
    spent: str


class NamedRuns:
    """Names that are taken once, and the settings of their runs: in place of a folder."""

    def __init__(self, database: Database) -> None:
        self._db = database

    def claim(self, name: str, settings: str) -> bool:
        """Take a name for a new run with these settings; false if it is taken."""
        with self._db.transaction(is_durable=True):
            return bool(
                self._db.rows(
                    "INSERT INTO costada_named (name, settings, run_id, claimed_at)"
                    " VALUES (?, ?, '', ?) ON CONFLICT (name) DO NOTHING RETURNING name",
                    (name, settings, time()),
                )
            )

    def is_thread(self, name: str) -> bool:
        """Whether a graph has saved checkpoints in a thread of this name."""
        return bool(self._threads("WHERE thread_id = ? LIMIT 1", name))

    def taken(self) -> set[str]:
        """All names that no new run can have: those of runs, and of the threads of graphs."""
        return {each.name for each in self.all()} | self._threads()

    def _threads(self, condition: str = "", *values: str) -> set[str]:
        if self._db.rows("SELECT to_regclass('checkpoints') IS NULL") == [(True,)]:
            return set()  # no saver was ever opened
        found = self._db.rows(f"SELECT DISTINCT thread_id FROM checkpoints {condition}", values)  # noqa: S608
        return {str(thread) for (thread,) in found}

    def settings(self, name: str) -> str | None:
        """The settings of a run, `None` if there is none of that name."""
        found = self._db.rows("SELECT settings FROM costada_named WHERE name = ?", (name,))
        return str(found[0][0]) if found else None

    def save(self, name: str, settings: str) -> None:
        """Replace the settings of a run."""
        self._db.write("UPDATE costada_named SET settings = ?2 WHERE name = ?1", (name, settings))

    def forget(self, name: str) -> None:
        """Let a new run have a name, whose own run nothing finds by it any more."""
        self._db.write("DELETE FROM costada_named WHERE name = ?", (name,))

    def last_row(self, name: str) -> str | None:
        """The trace row of a run's last iteration as JSON, `None` before the first has ended."""
        found = self._db.rows(
            "SELECT row FROM costada_step WHERE run_id ="
            " (SELECT run_id FROM costada_named WHERE name = ?) ORDER BY iteration DESC LIMIT 1",
            (name,),
        )
        return str(found[0][0]) if found else None

    def all(self, name: str | None = None) -> list[NamedRun]:
        """All names in the order in which they were taken, or only one."""
        found = self._db.rows(
            "SELECT name, run_id, claimed_at, COALESCE((SELECT MAX(iteration) FROM costada_step"
            " WHERE costada_step.run_id = costada_named.run_id), 0), (SELECT COUNT(*) FROM"
            " costada_call WHERE costada_call.run_id = costada_named.run_id"
            " AND status = 'started'), COALESCE((SELECT spent FROM costada_charge"
            " WHERE costada_charge.run_id = costada_named.run_id"
            " ORDER BY iteration DESC LIMIT 1), '0') FROM costada_named"
            " WHERE name = COALESCE(?1, name) ORDER BY claimed_at, name",
            (name,),
        )
        return [NamedRun(*row) for row in found]


class TimingTable:
    """Seconds of every node, by iteration.

    They are not part of the trace: two runs that do the same need not take the same time.
    """

    def __init__(self, database: Database) -> None:
        self._db = database

    def put(self, run_id: str, iteration: Iteration, seconds: Mapping[str, float]) -> None:
        """Store the seconds that each node took in an iteration, rounded to microseconds."""
        rounded = {node: round(value, 6) for node, value in seconds.items()}
        line = json.dumps(rounded, separators=(",", ":"))
        self._db.put_row("costada_timing", (run_id, iteration, line))

    def steps(self, run_id: str) -> list[tuple[Iteration, dict[str, float]]]:
        """Iteration and seconds by node, in order; none for a run that was not timed.

        An iteration counts what was bought for it before it began, as its step cost does.
        """
        found = self._db.rows(
            "SELECT iteration, seconds FROM costada_timing WHERE run_id = ? ORDER BY iteration",
            (run_id,),
        )
        return [(iteration, record(seconds)) for iteration, seconds in found]

    def by_node(self, run_id: str) -> dict[str, float]:
        """The seconds that each node took in the whole run; empty if it was not timed."""
        totals: dict[str, float] = {}
        for _, seconds in self.steps(run_id):
            for node, value in seconds.items():
                totals[node] = totals.get(node, 0.0) + value
        return totals


class RunFacts:
    """What a run file says of its runs as a whole."""

    _db: Database

    def setup(self, run_id: str) -> RunSetup | None:
        """What decides the result of a run, `None` if its file does not say.

        Raises `ValueError` if it is malformed.
        """
        text = self._fact("setup", run_id)
        return RunSetup.read(text) if text else None

    def origin(self, run_id: str) -> Origin | None:
        """Where a forked run comes from, `None` for one that is not a fork."""
        text = self._fact("origin", run_id)
        if not text:
            return None
        with checking_rows(self._db.place):
            return Origin(**record(text))

    def sandbox(self, run_id: str) -> str:
        """What confined the candidates when a run began; empty if its file does not say."""
        return self._fact("sandbox", run_id)

    def settled(self, run_id: str, steps: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Trace rows with the dollars that the account has after them.

        A row says what its iteration was charged. A provider's bill may have returned some since.
        """
        if not steps:
            return []
        found = self._db.rows(
            "SELECT iteration, spent FROM costada_charge"
            " WHERE run_id = ? AND iteration >= ? AND iteration <= ?",
            (run_id, steps[0]["iteration"], steps[-1]["iteration"]),
        )
        spent = {iteration: float(amount(dollars)) for iteration, dollars in found}
        return [{**each, "spent": spent.get(each["iteration"], each["spent"])} for each in steps]

    def _fact(self, column: str, run_id: str) -> str:
        found = self._db.rows(
            f"SELECT {column} FROM costada_run WHERE run_id = ?",  # noqa: S608
            (run_id,),
        )
        return str(found[0][0]) if found else ""


class RunStore(RunFacts):
    """The programs, calls, charges and steps of runs: in an SQLite file, in Postgres or in memory.

    `candidates`, `call_log`, `ledger`, `timing`, `inputs` and `named` give access to its parts.
    Raises as `Database` does when the file or server cannot be used, and `ValueError` when a key is
    not there.
    """

    def __init__(self, path: str | Path | None = None, *, is_read_only: bool = False) -> None:
        if str(path).startswith(POSTGRES):
            raise ValueError(
                "path: got the address of a Postgres database, expected a file; use"
                " RunStore.postgres(address)"
            )
        if path == "":
            raise ValueError("path: got an empty string, expected a file, or None for memory")
        self._use(Database(None if path is None else Path(path), is_read_only=is_read_only))

    @classmethod
    def postgres(
        cls,
        address: str,
        run: str | None = None,
        *,
        is_read_only: bool = False,
        lease_seconds: float = LEASE_SECONDS,
    ) -> Self:
        """Open the runs in a Postgres database; the first one to do so creates the tables.

        Needs the extra `postgres`.

        Args:
            address: As `postgresql://user:password@host/database`.
            run: The only run that `run_ids` names, by its name or its id; all of them when not
                given. A run that begins in this store gets the name, if it was claimed.
            is_read_only: Whether nothing may be written or created.
            lease_seconds: Seconds without a heartbeat after which another process may take over
                what this one holds; at least 1.

        Raises:
            ValueError: An argument is invalid, or the database is not one of CostAda.
            OSError: The server cannot be reached.
        """
        is_number = isinstance(lease_seconds, int | float) and not isinstance(lease_seconds, bool)
        if not is_number or not MIN_SECONDS <= lease_seconds < inf:
            raise ValueError(
                f"lease_seconds: got {lease_seconds!r}, expected seconds of at least"
                f" {MIN_SECONDS:g}"
            )
        if isinstance(address, str) and "#" in address:
            raise ValueError(
                "address: got one with a #, expected that of the database alone; run= names a run,"
                " and in a password # is written as %23"
            )
        if not isinstance(address, str) or not address:
            raise ValueError(
                f"address: got a {type(address).__name__} {'' if address else 'that is empty'},"
                " expected postgresql://USER@HOST/DATABASE"
            )
        store = cls.__new__(cls)
        database = Database(address, is_read_only=is_read_only, lease_seconds=lease_seconds)
        store._use(database, run)
        return store

    @classmethod
    def at(cls, place: StorePlace, *, is_read_only: bool = False) -> Self:
        """Open the store of a run: its file, or a Postgres database for this run alone."""
        if isinstance(place, RunAddress):
            return cls.postgres(place.database, place.run, is_read_only=is_read_only)
        return cls(place, is_read_only=is_read_only)

    def _use(self, database: Database, run: str | None = None) -> None:
        self._db = database
        self._only_run = run
        self.candidates = CandidateTable(self._db)
        self.call_log = CallLog(self._db)
        self.ledger = Ledger(self._db, self.call_log)
        self.timing = TimingTable(self._db)
        self.inputs = UserInputTable(self._db, self.candidates)
        self.named = NamedRuns(self._db)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    @property
    def place(self) -> str:
        """What messages call the file or the database, and the run that it was opened for."""
        return f"{self._db.place}#{self._only_run or ''}"

    @property
    def is_in_memory(self) -> bool:
        """Whether what it holds ends with the process."""
        return self._db.place is None

    @property
    def is_shared(self) -> bool:
        """Whether processes of several machines can have the store open."""
        return self._db.engine.is_shared

    def hold(self, name: str) -> Lease | None:
        """Hold a run, or the thread of a graph, until the lease is released.

        `None` for a store of one machine, where nothing has to be held.

        Raises:
            ValueError: Another process holds it, naming that one.
            OSError: The server cannot be reached.
        """
        lease = self._db.engine.hold(name)
        if lease is not None:
            self.candidates.forget()  # another process may have worked on the run since
        return lease

    def holders(self, name: str | None = None) -> dict[str, Holder]:
        """The process that holds each run or thread of a graph, or the one of a name.

        Raises:
            OSError: The server cannot be reached.
        """
        return self._db.engine.holders(name)

    def paying_purses(self) -> list[Account]:
        """The purses here that have an account for a run by its name, as they stand."""
        return paying_purses(self._db)

    def put_text(self, text: str) -> str:
        """Store a text once and return its hash; the empty text is the empty hash."""
        return self._db.put_text(text)

    def text(self, name: str) -> str:
        """The text of a hash."""
        return self._db.text(name)

    def put_program(self, program: Program) -> str:
        """Store the texts of a program and return its name."""
        return self._db.put_program(program)

    def program(self, name: str) -> Program:
        """The program of a name."""
        return self._db.program(name)

    def open_run(
        self, run_id: str, name: str, problem: str, sandbox: str = "", setup: RunSetup | None = None
    ) -> None:
        """Note that a run begins: its id, the graph's name, the problem's, sandbox and setup."""
        known = json.dumps(asdict(setup)) if setup else ""
        with self._db.transaction():
            self._db.put_row("costada_run", (run_id, name, problem, sandbox, known, ""))
            if self._only_run is not None:
                self._db.write(
                    "UPDATE costada_named SET run_id = ?2 WHERE name = ?1", (self._only_run, run_id)
                )

    def put_setup(self, run_id: str, setup: RunSetup) -> None:
        """Replace the setup of a run."""
        known = json.dumps(asdict(setup))
        self._db.write("UPDATE costada_run SET setup = ?2 WHERE run_id = ?1", (run_id, known))

    def run_ids(self) -> list[str]:
        """The ids of all runs, oldest first; only one if the store was opened for it."""
        return run_ids(self._db, self._only_run)

    def last_run(self) -> str:
        """The id of the run that began last, empty if none has begun."""
        return next(reversed(self.run_ids()), "")

    def put_step(self, run_id: str, iteration: Iteration, row: Mapping[str, object]) -> None:
        """Store the trace row of a finished iteration."""
        self._db.put_row("costada_step", (run_id, iteration, json.dumps(row)))

    def steps(self, run_id: str) -> list[dict[str, object]]:
        """The trace rows of a run in order."""
        return [record(line) for line in self.step_lines(run_id)]

    def step_line(self, run_id: str, iteration: Iteration) -> str:
        """The trace row of a finished iteration, as JSON."""
        ((row,),) = self._db.rows(
            "SELECT row FROM costada_step WHERE run_id = ? AND iteration = ?", (run_id, iteration)
        )
        return str(row)

    def step_lines(self, run_id: str) -> list[str]:
        """The trace rows of a run in order, as JSON."""
        found = self._db.rows(
            "SELECT row FROM costada_step WHERE run_id = ? ORDER BY iteration", (run_id,)
        )
        return [str(row) for (row,) in found]

    def step_lines_after(self, run_id: str, iteration: Iteration) -> list[tuple[Iteration, str]]:
        """The iterations after one with their trace rows, as JSON."""
        return [
            (Iteration(number), str(row))
            for number, row in self._db.rows(
                "SELECT iteration, row FROM costada_step WHERE run_id = ? AND iteration > ?"
                " ORDER BY iteration",
                (run_id, iteration),
            )
        ]

    def last_improvement(self, run_id: str) -> str | None:
        """The candidate that last became the incumbent of a run, `None` if none has.

        With validation examples, the one that last became its result.
        """
        found = self._db.rows(
            # CASE, as AND has no order of evaluation, and SQLite raises an error for damaged JSON.
            "SELECT json_extract(row, '$.candidate_id') FROM costada_step WHERE run_id = ?"
            " AND CASE WHEN NOT json_valid(row) THEN FALSE"
            " WHEN json_extract(row, '$.is_result') IS NOT NULL"
            " THEN CAST(json_extract(row, '$.is_result') AS BOOLEAN)"
            " ELSE CAST(json_extract(row, '$.global_gain') AS DOUBLE PRECISION) > 0 END"
            " ORDER BY iteration DESC LIMIT 1",
            (run_id,),
        )
        return None if not found or found[0][0] is None else str(found[0][0])

    def num_cached(self, run_id: str) -> int:
        """How many iterations of a run used the evaluation of a program seen before."""
        ((number,),) = self._db.rows(
            "SELECT COUNT(*) FROM costada_step WHERE run_id = ?"
            " AND CASE WHEN json_valid(row)"
            " THEN CAST(json_extract(row, '$.is_cached') AS BOOLEAN) END",
            (run_id,),
        )
        return int(number)

    def judged_examples(self, run_id: str) -> JudgedExamples:
        """On how many examples the candidates of a run were judged, one in each iteration."""
        seed = self.candidates.find(run_id, SEED_ID)
        ((number, judged),) = self._db.rows(
            "SELECT COUNT(*), SUM(CAST(json_extract(row, '$.examples') AS BIGINT))"
            " FROM costada_step WHERE run_id = ?"
            " AND CASE WHEN json_valid(row) THEN"
            " CAST(json_extract(row, '$.examples') AS BIGINT) > 0"
            " AND NOT CAST(json_extract(row, '$.is_cached') AS BOOLEAN) END",
            (run_id,),
        )
        num_examples = len(seed.examples) if seed else 0
        return JudgedExamples(judged or 0, number * num_examples - (judged or 0))

    def last_step(self, run_id: str) -> Iteration:
        """The last iteration of a run that has a trace row, 0 if none has."""
        ((last,),) = self._db.rows(
            "SELECT COALESCE(MAX(iteration), 0) FROM costada_step WHERE run_id = ?", (run_id,)
        )
        return Iteration(last)

    def iterations(self, run_id: str) -> dict[TicketNumber, Iteration]:
        """The iteration as which each ticket landed whose iteration has ended."""
        found = self._db.rows(
            "SELECT CAST(json_extract(row, '$.ticket') AS BIGINT), iteration FROM costada_step"
            " WHERE run_id = ?",
            (run_id,),
        )
        return {TicketNumber(ticket): Iteration(iteration) for ticket, iteration in found}

    def put_tactics(self, run_id: str, iteration: Iteration, record: Mapping[str, object]) -> None:
        """Store the tactics that the guide gave in an iteration."""
        self._db.put_row("costada_tactics", (run_id, iteration, json.dumps(record)))

    def tactics(self, run_id: str, before: Iteration, count: int) -> list[tuple[Iteration, str]]:
        """The last `count` batches given before an iteration, oldest first.

        Each is the iteration of its guide call and its record as JSON text.
        """
        found = self._db.rows(
            "SELECT iteration, record FROM costada_tactics WHERE run_id = ? AND iteration < ?"
            " ORDER BY iteration DESC LIMIT ?",
            (run_id, before, count),
        )
        return [(row[0], row[1]) for row in reversed(found)]
