"""What steps take: ideas and programs of users, and programs that wait for their evaluation."""

import json
import reprlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from time import time
from typing import Annotated, Any
from unicodedata import bidirectional, category

from pydantic import Field, TypeAdapter

from costada.store.address import damage_error
from costada.store.candidates import SEED_ID, CandidateTable
from costada.store.database import Database
from costada.store.rows import checking_rows, record
from costada.values.candidate import FILES, Program
from costada.values.numbering import Iteration, TicketNumber
from costada.values.program_form import invalid_files_reason

MAX_IDEA = 2000
"""Characters of an idea."""

MAX_PROGRAM = 2**22
"""Bytes of all files of a submitted program."""

MAX_WAITING = 100
"""Inputs that may wait for a step of one run."""

TOO_MANY = (
    f"{MAX_WAITING} ideas and programs wait for a step, expected fewer than {MAX_WAITING} before"
    " another one"
)

MAX_NUMBER = 2**53
"""No input has a number that a browser cannot hold."""

CONTROLS = ("Cc", "Cs")
"""Unicode categories that no idea holds: control characters, and halves of surrogate pairs."""

DIRECTIONS = ("LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI")
"""Bidirectional classes that no idea holds: they change the order in which a text is shown."""


class InputKind(StrEnum):
    """What a step takes: an idea that an attempt carries out, or a finished program.

    `UNJUDGED`: a program that an earlier step made, and had no money left to evaluate.
    """

    TACTIC = "tactic"
    PROGRAM = "program"
    UNJUDGED = "unjudged"


@dataclass(frozen=True, slots=True)
class UserInput:
    """One input of a user.

    Attributes:
        number: Counts the inputs of a run from 1.
        kind: What it is.
        text: An idea, or the name of a stored program; of an unjudged one that of its record, see
            `UserInputTable.unjudged`.
        sent_at: Seconds since 1970 UTC.
        ticket: That of the step that took it; `None` while it waits.
    """

    number: int
    kind: InputKind
    text: str
    sent_at: float
    ticket: TicketNumber | None


@dataclass(frozen=True, slots=True)
class UnjudgedProgram:
    """A program that waits for its evaluation, with what the step that took it in knew of it.

    Whoever goes on with the evaluation is the same work under the same name, so what the problem's
    models have answered is not paid for again.

    Attributes:
        program: Name of the stored program.
        name: What its evaluation is called.
        calls: Ticket and attempt of the calls that have judged it so far, oldest first.
        parent: Id of the candidate that it changes.
        inspirations: Ids of the candidates that were shown beside that.
        label: A search strategy's word for the parent.
        changes: Hash of the summary of its changes.
        log: Hash of what the command of a generator printed; empty: none was run.
    """

    program: str
    name: str
    calls: Annotated[tuple[tuple[TicketNumber, int], ...], Field(min_length=1)]
    parent: str
    inspirations: tuple[str, ...]
    label: str
    changes: str
    log: str


_UNJUDGED = TypeAdapter(UnjudgedProgram)


def checked_idea(text: object) -> str:
    """An idea as one line.

    Raises:
        ValueError: It is not a string, empty, too long, or holds control characters or signs that
            change the direction of text.
    """
    if not isinstance(text, str):
        raise ValueError(f"idea: got {reprlib.repr(text)}, expected a string")
    idea = " ".join(text.split())
    if not 0 < len(idea) <= MAX_IDEA:
        raise ValueError(
            f"idea: got {len(idea):,} characters, expected 1 to {MAX_IDEA:,} besides blanks"
        )
    for sign in idea:
        if category(sign) in CONTROLS or bidirectional(sign) in DIRECTIONS:
            raise ValueError(f"idea: got the character U+{ord(sign):04X}, expected plain text")
    return idea


def checked_program(source: object) -> Program:
    """A program of one text, or of files by path.

    Raises:
        ValueError: It is neither, empty, too large or not UTF-8, or has a path that no program has.
    """
    files = {"": source} if isinstance(source, str) else source
    if not isinstance(files, Mapping):
        raise ValueError(
            f"program: got a {type(source).__name__}, expected a string, or strings by path"
        )
    if not isinstance(source, str) and (fault := invalid_files_reason(files)):
        raise ValueError(f"program: got {fault}")
    size = 0
    for path, text in files.items():
        where = f"program: {path}" if path else "program"
        if not isinstance(text, str):
            raise ValueError(f"{where}: got a {type(text).__name__}, expected a string")
        try:
            size += len(text.encode())
        except UnicodeEncodeError:
            raise ValueError(f"{where}: got half of a surrogate pair, expected UTF-8") from None
        if "\0" in text:
            raise ValueError(f"{where}: got a NUL character, expected text")
    if not any(text.strip() for text in files.values()):
        raise ValueError("program: got an empty one, expected at least one line")
    if size > MAX_PROGRAM:
        raise ValueError(f"program: got {size:,} bytes, expected at most {MAX_PROGRAM:,}")
    return Program.of(source if isinstance(source, str) else {**files})


COLUMNS = "number, kind, text_hash, sent_at, ticket"


class UserInputTable:
    """The inputs of runs, in the order in which they came.

    Any process may add one while another works on the run. The step of a ticket takes the oldest
    that waits, and finds the same one whenever it is executed again.
    """

    def __init__(self, database: Database, candidates: CandidateTable) -> None:
        self._db, self._candidates = database, candidates

    def put_idea(self, run_id: str, text: object) -> int:
        """Add an idea and return its number; raises as `checked_idea` and `put_program` do."""
        return self._put(run_id, InputKind.TACTIC, checked_idea(text))

    def put_program(self, run_id: str, source: object) -> int:
        """Add a program and return its number.

        Raises:
            ValueError: As `checked_program` does; also if the programs of the run are of the other
                form, there is no such run, or too many inputs wait.
        """
        program = checked_program(source)
        seed = self._candidates.find(run_id, SEED_ID)
        if seed is not None and seed.program.is_one_text != program.is_one_text:
            got, expected = "one text", f"a folder with {', '.join(list(seed.program)[:5])}"
            if seed.program.is_one_text:
                got, expected = "several files", "one text, as the programs of the run are"
            raise ValueError(f"program: got {got}, expected {expected}")
        return self._put(run_id, InputKind.PROGRAM, program)

    def _put(self, run_id: str, kind: InputKind, content: str | Program) -> int:
        with self._db.transaction(is_durable=True):
            last, waiting = self._state(run_id)
            if waiting >= MAX_WAITING:
                raise ValueError(TOO_MANY)
            name = (
                self._db.put_program(content)
                if isinstance(content, Program)
                else self._db.put_text(content)
            )
            self._db.write(
                "INSERT INTO costada_input VALUES (?, ?, ?, ?, ?, NULL)",
                (run_id, last + 1, kind.value, name, time()),
            )
            return last + 1

    def _state(self, run_id: str) -> tuple[int, int]:
        """The last number of a run's inputs, and how many of them wait.

        The lock on the run keeps two clients of a server from drawing the same number.
        """
        if not self._db.rows("SELECT 1 FROM costada_run WHERE run_id = ?", (run_id,), locks=True):
            raise ValueError(f"run {run_id!r}: has not started, expected one that has")
        ((last, waiting),) = self._db.rows(
            "SELECT COALESCE(MAX(number), 0), COUNT(*) - COUNT(ticket) FROM costada_input"
            " WHERE run_id = ?",
            (run_id,),
        )
        if not isinstance(last, int) or not 0 <= last < MAX_NUMBER:
            raise damage_error(self._db.place, "the number of a user input in it is damaged")
        return last, waiting

    def put_unjudged(self, run_id: str, waiting: UnjudgedProgram) -> None:
        """Let a stored program wait for its evaluation, before all inputs of users.

        Whoever ends the step again after a crash adds it once only.
        """
        text = json.dumps(asdict(waiting))
        with self._db.transaction(is_durable=True):
            last, _ = self._state(run_id)
            name = self._db.put_text(text)
            self._db.write(
                "INSERT INTO costada_input SELECT ?1, ?2, ?3, ?4, ?5, NULL WHERE NOT EXISTS"
                " (SELECT 1 FROM costada_input WHERE run_id = ?1 AND kind = ?3 AND text_hash = ?4)",
                (run_id, last + 1, InputKind.UNJUDGED.value, name, time()),
            )

    def drop_unjudged(self, run_id: str, ticket: TicketNumber) -> None:
        """Forget that a ticket's step left a program without an evaluation.

        The step is executed again with more money where its end was stored and its checkpoint not.
        Whatever took the program then is executed again as well, and takes another input.
        """
        for each in self.all_unjudged(run_id):
            known = self.unjudged(each.text)
            if known is not None and known.calls[-1][0] == ticket:
                self._db.write(
                    "DELETE FROM costada_input WHERE run_id = ? AND number = ?",
                    (run_id, each.number),
                )

    def all_unjudged(self, run_id: str) -> list[UserInput]:
        """The programs of a run that waited for their evaluation, or still do, oldest first."""
        return self._found(run_id, "kind = ? ORDER BY number", InputKind.UNJUDGED.value)

    def unjudged(self, name: str) -> UnjudgedProgram | None:
        """The program that waits for its evaluation, by the text of its input.

        `None` if nothing more is known of it: run files of this format may name the program itself.

        Raises:
            ValueError: It is damaged.
        """
        if name.startswith(FILES):
            return None
        text = self._db.text(name)
        try:
            is_record = "calls" in record(text)
        except ValueError:
            is_record = False
        if not is_record:
            return None
        try:
            return _UNJUDGED.validate_json(text)
        except ValueError as error:
            raise damage_error(self._db.place, f"an unjudged program is damaged ({error})") from (
                error
            )

    def take(self, run_id: str, ticket: TicketNumber) -> UserInput | None:
        """The input of a ticket's step; if it has none yet, what waits to be judged, or the oldest.

        A step that has sent a request without an input, or for which a guide was bought, takes
        none: it would send another request in place of one that was paid for.
        """
        if not self._db.rows(
            "SELECT 1 FROM costada_input WHERE run_id = ? AND (ticket IS NULL OR ticket = ?)"
            " LIMIT 1",
            (run_id, ticket),
        ):
            return None
        # One statement decides and takes, so no input has two takers and no ticket two inputs. A
        # server that has waited for another taker looks at `ticket` again, and not at the choice.
        self._db.write(
            "UPDATE costada_input SET ticket = ?2 WHERE run_id = ?1 AND number ="
            " (SELECT number FROM costada_input WHERE run_id = ?1 AND ticket IS NULL"
            " ORDER BY kind = ?3 DESC, number LIMIT 1)"
            " AND ticket IS NULL"
            " AND NOT EXISTS (SELECT 1 FROM costada_input WHERE run_id = ?1 AND ticket = ?2)"
            " AND NOT EXISTS (SELECT 1 FROM costada_call WHERE run_id = ?1 AND ticket = ?2)",
            (run_id, ticket, InputKind.UNJUDGED.value),
        )
        return self.taken(run_id, ticket)

    def taken(self, run_id: str, ticket: TicketNumber) -> UserInput | None:
        """The input that a ticket's step has taken, if it has."""
        found = self._found(run_id, "ticket = ? LIMIT 1", ticket)
        return found[0] if found else None

    def release(self, run_id: str, ticket: TicketNumber) -> None:
        """Let an input wait again whose step could not pay for its first attempt."""
        self._db.write(
            "UPDATE costada_input SET ticket = NULL WHERE run_id = ? AND ticket = ?",
            (run_id, ticket),
        )

    def waiting(self, run_id: str) -> list[UserInput]:
        """The inputs that no step has taken, oldest first.

        Raises:
            ValueError: One of them is damaged.
        """
        return self._found(run_id, "ticket IS NULL ORDER BY number LIMIT ?", MAX_WAITING)

    def outcomes(
        self, run_id: str, before: Iteration, count: int
    ) -> list[tuple[Iteration, str, float]]:
        """The last ideas that steps before an iteration carried out, oldest first.

        Each is its iteration, its text, and how far its score lies above the incumbent's before it;
        0 where nothing was evaluated.
        """
        found = self._db.rows(
            "SELECT step.iteration, json_extract(step.row, '$.steered.idea'),"
            " CAST(json_extract(step.row, '$.score') AS DOUBLE PRECISION) - CAST(COALESCE("
            "json_extract(earlier.row, '$.best_score'), json_extract(seed.facts, '$.score'))"
            " AS DOUBLE PRECISION)"
            " FROM costada_step step LEFT JOIN costada_step earlier"
            " ON earlier.run_id = step.run_id AND earlier.iteration = step.iteration - 1"
            " LEFT JOIN costada_candidate seed ON seed.run_id = step.run_id AND seed.id = ?"
            " WHERE step.run_id = ? AND step.iteration < ?"
            " AND instr(step.row, '\"steered\": ') > 0"  # as in the index
            " AND json_extract(step.row, '$.steered.kind') = ?"
            " ORDER BY step.iteration DESC LIMIT ?",
            (SEED_ID, run_id, before, InputKind.TACTIC.value, count),
        )
        with checking_rows(self._db.place):
            return [(step, checked_idea(idea), gain or 0.0) for step, idea, gain in reversed(found)]

    def _found(self, run_id: str, condition: str, *values: object) -> list[UserInput]:
        rows = self._db.rows(
            f"SELECT {COLUMNS} FROM costada_input WHERE run_id = ? AND {condition}",  # noqa: S608
            (run_id, *values),
        )
        return [self._read(*row) for row in rows]

    def _read(self, number: Any, kind: Any, name: Any, sent_at: Any, ticket: Any) -> UserInput:
        is_sound = isinstance(number, int) and isinstance(ticket, int | None)
        if not (is_sound and isinstance(name, str) and isinstance(sent_at, float)):
            raise damage_error(self._db.place, f"user input {json.dumps(str(number))} is damaged")
        try:
            known = InputKind(kind)
            text = checked_idea(self._db.text(name)) if known is InputKind.TACTIC else name
        except ValueError as error:
            raise damage_error(
                self._db.place, f"user input {number} is damaged ({error})"
            ) from error
        return UserInput(number, known, text, sent_at, ticket)
