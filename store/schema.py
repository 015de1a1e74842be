"""The tables of a run file: rows of runs carry their run, so one file can hold several.

Calls, outcomes, candidates and inputs of users have the `ticket` of their step, which counts the
launches of a run. Charges, steps, tactics and timings have the `iteration`, by the order of
landing; a candidate has one only if it is a copy: the iteration in which it migrated.

A purse has its own tables. The file may belong to a user's `SqliteSaver`, so the name of every
table and index begins with `costada_`, and `costada_format` holds the number of their layout.
"""

import re
import sqlite3
from collections.abc import Iterable

FORMAT = 5
"""Number of the layout of our tables, the only row of `costada_format`."""

TABLES = """
CREATE TABLE IF NOT EXISTS costada_format (version INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS costada_blob (
    hash TEXT PRIMARY KEY, data BLOB NOT NULL
);
CREATE TABLE IF NOT EXISTS costada_run (
    run_id TEXT PRIMARY KEY, name TEXT NOT NULL, problem TEXT NOT NULL,
    sandbox TEXT NOT NULL DEFAULT '', setup TEXT NOT NULL DEFAULT '',
    origin TEXT NOT NULL DEFAULT ''
);
CREATE TABLE IF NOT EXISTS costada_named (
    name TEXT PRIMARY KEY, settings TEXT NOT NULL, run_id TEXT NOT NULL, claimed_at REAL NOT NULL
);
CREATE TABLE IF NOT EXISTS costada_candidate (
    run_id TEXT NOT NULL, id TEXT NOT NULL, ticket INTEGER NOT NULL, score REAL,
    code_hash TEXT NOT NULL, facts TEXT NOT NULL, evaluator TEXT NOT NULL DEFAULT '',
    iteration INTEGER,
    PRIMARY KEY (run_id, id)
);
CREATE TABLE IF NOT EXISTS costada_archive (
    run_id TEXT NOT NULL, frontier INTEGER NOT NULL, seq INTEGER NOT NULL, members TEXT NOT NULL,
    PRIMARY KEY (run_id, frontier, seq)
);
CREATE TABLE IF NOT EXISTS costada_tactics (
    run_id TEXT NOT NULL, iteration INTEGER NOT NULL, record TEXT NOT NULL,
    PRIMARY KEY (run_id, iteration)
);
CREATE TABLE IF NOT EXISTS costada_call (
    run_id TEXT NOT NULL, ticket INTEGER NOT NULL, role TEXT NOT NULL,
    attempt INTEGER NOT NULL, n INTEGER NOT NULL, status TEXT NOT NULL, request_hash TEXT NOT NULL,
    cost TEXT NOT NULL, bound TEXT NOT NULL, prompt_hash TEXT NOT NULL, answer_hash TEXT NOT NULL,
    facts TEXT NOT NULL,
    PRIMARY KEY (run_id, ticket, role, attempt, n)
);
CREATE TABLE IF NOT EXISTS costada_outcome (
    run_id TEXT NOT NULL, ticket INTEGER NOT NULL, role TEXT NOT NULL,
    attempt INTEGER NOT NULL, request_hash TEXT NOT NULL, text_hash TEXT NOT NULL,
    kind TEXT NOT NULL,
    PRIMARY KEY (run_id, ticket, role, attempt)
);
CREATE TABLE IF NOT EXISTS costada_charge (
    run_id TEXT NOT NULL, iteration INTEGER NOT NULL, cost TEXT NOT NULL, spent TEXT NOT NULL,
    PRIMARY KEY (run_id, iteration)
);
CREATE TABLE IF NOT EXISTS costada_landing (
    run_id TEXT NOT NULL, landing INTEGER NOT NULL, ticket INTEGER NOT NULL,
    PRIMARY KEY (run_id, landing)
);
CREATE TABLE IF NOT EXISTS costada_step (
    run_id TEXT NOT NULL, iteration INTEGER NOT NULL, row TEXT NOT NULL,
    PRIMARY KEY (run_id, iteration)
);
CREATE TABLE IF NOT EXISTS costada_input (
    run_id TEXT NOT NULL, number INTEGER NOT NULL, kind TEXT NOT NULL, text_hash TEXT NOT NULL,
    sent_at REAL NOT NULL, ticket INTEGER,
    PRIMARY KEY (run_id, number)
);
CREATE TABLE IF NOT EXISTS costada_timing (
    run_id TEXT NOT NULL, iteration INTEGER NOT NULL, seconds TEXT NOT NULL,
    PRIMARY KEY (run_id, iteration)
);
CREATE TABLE IF NOT EXISTS costada_account (
    id INTEGER PRIMARY KEY, parent INTEGER NOT NULL, name TEXT NOT NULL, policy TEXT NOT NULL,
    budget TEXT NOT NULL, spent TEXT NOT NULL, committed TEXT NOT NULL, is_closed INTEGER NOT NULL,
    UNIQUE (parent, name)
);
CREATE TABLE IF NOT EXISTS costada_entry (
    account INTEGER NOT NULL, key TEXT NOT NULL, cost TEXT NOT NULL, bound TEXT NOT NULL,
    facts TEXT NOT NULL,
    PRIMARY KEY (account, key)
);
"""

TABLE = re.compile(r"CREATE TABLE IF NOT EXISTS (\w+) ([^;]+)")
BODIES = dict(TABLE.findall(TABLES))
OWN_TABLES = tuple(BODIES)

ADDED_LATER = {"costada_input", "costada_named"}
"""Tables that files of this format may lack."""

INDEXES = """
CREATE INDEX IF NOT EXISTS costada_candidate_by_ticket
    ON costada_candidate (run_id, ticket);
CREATE INDEX IF NOT EXISTS costada_candidate_migrated
    ON costada_candidate (run_id, iteration) WHERE iteration IS NOT NULL;
CREATE INDEX IF NOT EXISTS costada_candidate_by_verdict
    ON costada_candidate (run_id, code_hash, evaluator, ticket);
CREATE INDEX IF NOT EXISTS costada_call_in_flight
    ON costada_call (run_id) WHERE status = 'started';
"""

FILE_INDEXES = """
CREATE INDEX IF NOT EXISTS costada_step_steered
    ON costada_step (run_id, iteration) WHERE instr(row, '"steered": ') > 0;
"""
"""Those of a run file alone: in Postgres `instr` is a function of ours."""

LANGGRAPH_TABLES = ("checkpoints", "writes")


class ForeignTables(ValueError):
    """The tables of a file are not those of a run file; the text says what is there instead."""


def _literals(strings: Iterable[str]) -> str:
    return ", ".join("'" + each.replace("'", "''") + "'" for each in strings)


_NAMES = _literals((*OWN_TABLES, *LANGGRAPH_TABLES))
_OWN = _literals(f"CREATE TABLE {name} {body}" for name, body in BODIES.items())
# Types and names can be relied on: SQLite opens no schema that contradicts its statements.
ODD_TABLES = f"""
SELECT name FROM main.sqlite_master WHERE (lower(name) IN ({_NAMES}) AND (
    type = 'view' OR (type = 'table' AND sql NOT IN ({_OWN}) AND (
        sql LIKE 'create virtual%'
        OR EXISTS (SELECT 1 FROM pragma_table_xinfo(sqlite_master.name) WHERE hidden)
    ))
)) OR (type = 'trigger' AND lower(tbl_name) IN ({_NAMES}))
"""  # noqa: S608
"""What invents rows when a table is read, or changes others when it is written."""


def check_plain(connection: sqlite3.Connection) -> None:
    """Refuse views and triggers in place of tables: a few bytes of SQL can yield endless rows.

    Raises:
        ForeignTables: One of our or LangGraph's names is a view, a virtual table, or a table with
            computed columns or a trigger.
    """
    if found := connection.execute(ODD_TABLES).fetchone():
        raise ForeignTables(f"`{found[0]}` is not a plain table, as those of a run file are")


def format_of(connection: sqlite3.Connection) -> int | None:
    """The number of a file's layout, `None` if it has no table of ours.

    Raises:
        ForeignTables: Tables of ours are there, and no number, or one of them is not a plain table.
    """
    check_plain(connection)
    own = [name for name in _tables(connection) if name in OWN_TABLES]
    if not own:
        return None
    if "costada_format" in own:
        rows = connection.execute("SELECT version FROM costada_format").fetchall()
        if len(rows) == 1 and isinstance(rows[0][0], int):
            return int(rows[0][0])
    raise ForeignTables(
        f"it has the table `{own[-1]}`, expected its format in one row of `costada_format`"
    )


def prepare(connection: sqlite3.Connection) -> None:
    """Create our tables and indexes where they are missing, all at once.

    A file of this format may lack tables that only hold what users add to a run.
    """
    # Asked first: the transaction would wait for a run that is being written.
    if format_of(connection) is None or ADDED_LATER - set(_tables(connection)):
        connection.executescript(
            # Where missing, as another process may have created them since.
            f"BEGIN IMMEDIATE; {TABLES} {INDEXES} {FILE_INDEXES} INSERT INTO costada_format"  # noqa: S608
            f" SELECT {FORMAT} WHERE NOT EXISTS (SELECT 1 FROM costada_format); COMMIT;"
        )


def prepare_to_read(connection: sqlite3.Connection) -> int | None:
    """Let a connection write nothing, and show it empty tables where no run has begun.

    Returns the number of the file's layout, as `format_of` does.

    Raises:
        ForeignTables: The file holds tables, and they are neither ours nor LangGraph's.
    """
    known = _tables(connection)
    missing, found = set(OWN_TABLES), format_of(connection)
    if found is not None:
        missing = ADDED_LATER - set(known)
    elif others := [name for name in known if name not in LANGGRAPH_TABLES]:
        raise ForeignTables(f"it has the table `{others[0]}`, expected `costada_format`")
    for table in missing:
        connection.execute(f"CREATE TEMP TABLE {table} {BODIES[table]}")
    # Last, as it refuses temporary tables too.
    connection.execute("PRAGMA query_only = ON")
    return found


def has_table(connection: sqlite3.Connection, name: str) -> bool:
    """Whether a file has a table."""
    return name in _tables(connection)


def _tables(connection: sqlite3.Connection) -> list[str]:
    """The names of the tables in a file, oldest first."""
    found = connection.execute(
        "SELECT name FROM main.sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
    )
    return [name for (name,) in found]
