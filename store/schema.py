"""The tables of a run file: rows of runs carry their run, so one file can hold several.

A purse has tables of its own beside them.
"""

import re
import sqlite3

TABLES = """
CREATE TABLE IF NOT EXISTS blob (
    hash TEXT PRIMARY KEY, data BLOB NOT NULL
);
CREATE TABLE IF NOT EXISTS run (
    run_id TEXT PRIMARY KEY, name TEXT NOT NULL, problem TEXT NOT NULL,
    sandbox TEXT NOT NULL DEFAULT '', origin TEXT NOT NULL DEFAULT ''
);
CREATE TABLE IF NOT EXISTS candidate (
    run_id TEXT NOT NULL, id TEXT NOT NULL, iteration INTEGER NOT NULL, score REAL,
    code_hash TEXT NOT NULL, facts TEXT NOT NULL, evaluator TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (run_id, id)
);
CREATE TABLE IF NOT EXISTS archive (
    run_id TEXT NOT NULL, frontier INTEGER NOT NULL, seq INTEGER NOT NULL, members TEXT NOT NULL,
    PRIMARY KEY (run_id, frontier, seq)
);
CREATE TABLE IF NOT EXISTS tactics (
    run_id TEXT NOT NULL, iteration INTEGER NOT NULL, record TEXT NOT NULL,
    PRIMARY KEY (run_id, iteration)
);
CREATE TABLE IF NOT EXISTS llm_call (
    run_id TEXT NOT NULL, iteration INTEGER NOT NULL, role TEXT NOT NULL,
    attempt INTEGER NOT NULL, n INTEGER NOT NULL, status TEXT NOT NULL, request_hash TEXT NOT NULL,
    cost TEXT NOT NULL, bound TEXT NOT NULL, prompt_hash TEXT NOT NULL, answer_hash TEXT NOT NULL,
    facts TEXT NOT NULL,
    PRIMARY KEY (run_id, iteration, role, attempt, n)
);
CREATE TABLE IF NOT EXISTS outcome (
    run_id TEXT NOT NULL, iteration INTEGER NOT NULL, role TEXT NOT NULL,
    attempt INTEGER NOT NULL, request_hash TEXT NOT NULL, text_hash TEXT NOT NULL,
    kind TEXT NOT NULL,
    PRIMARY KEY (run_id, iteration, role, attempt)
);
CREATE TABLE IF NOT EXISTS charge (
    run_id TEXT NOT NULL, iteration INTEGER NOT NULL, cost TEXT NOT NULL, spent TEXT NOT NULL,
    PRIMARY KEY (run_id, iteration)
);
CREATE TABLE IF NOT EXISTS step (
    run_id TEXT NOT NULL, iteration INTEGER NOT NULL, row TEXT NOT NULL,
    PRIMARY KEY (run_id, iteration)
);
CREATE TABLE IF NOT EXISTS timing (
    run_id TEXT NOT NULL, iteration INTEGER NOT NULL, seconds TEXT NOT NULL,
    PRIMARY KEY (run_id, iteration)
);
CREATE TABLE IF NOT EXISTS account (
    id INTEGER PRIMARY KEY, parent INTEGER NOT NULL, name TEXT NOT NULL, policy TEXT NOT NULL,
    budget TEXT NOT NULL, spent TEXT NOT NULL, committed TEXT NOT NULL, is_closed INTEGER NOT NULL,
    UNIQUE (parent, name)
);
CREATE TABLE IF NOT EXISTS entry (
    account INTEGER NOT NULL, key TEXT NOT NULL, cost TEXT NOT NULL, bound TEXT NOT NULL,
    facts TEXT NOT NULL,
    PRIMARY KEY (account, key)
);
"""

TABLE = re.compile(r"CREATE TABLE IF NOT EXISTS (\w+) ([^;]+)")

LATER_COLUMNS = (("run", "sandbox"), ("run", "origin"), ("candidate", "evaluator"))
"""Text columns that a file written before they were thought of gets when it is opened."""

INDEXES = """
CREATE INDEX IF NOT EXISTS candidate_by_iteration ON candidate (run_id, iteration);
CREATE INDEX IF NOT EXISTS candidate_by_verdict
    ON candidate (run_id, code_hash, evaluator, iteration);
"""


FIRST_CALLS = """
SELECT {more} run_id, iteration, role, attempt, n,
    CASE WHEN json_extract(facts, '$.error') IS NULL THEN 'done' ELSE 'error' END AS status,
    '' AS request_hash, cost, '0' AS bound, prompt_hash, answer_hash, facts
FROM main.call
"""
"""The calls of a file from before calls had a status; each of them had ended."""


def prepare(connection: sqlite3.Connection) -> None:
    """Give a run file every table, column and index that it does not have yet."""
    connection.executescript(TABLES)
    for table, column in LATER_COLUMNS:
        if column not in _columns(connection, table):
            connection.execute(f"ALTER TABLE {table} ADD COLUMN {column} TEXT NOT NULL DEFAULT ''")
    _take_over_calls(connection)
    connection.executescript(INDEXES)


def prepare_to_read(connection: sqlite3.Connection) -> None:
    """Show a run file of any age in today's tables, and let this connection write nothing to it.

    What the file does not have is made up for by tables and views that only the connection knows.
    """
    if _columns(connection, "call"):
        calls = FIRST_CALLS.format(more="rowid AS rowid,")
        connection.execute(f"CREATE TEMP VIEW llm_call AS {calls}")
    for table, body in TABLE.findall(TABLES):
        if not _columns(connection, table):
            connection.execute(f"CREATE TEMP TABLE {table} {body}")
    for table in dict(LATER_COLUMNS):
        _show_later_columns(connection, table)
    connection.execute("PRAGMA query_only = ON")


def _show_later_columns(connection: sqlite3.Connection, table: str) -> None:
    known = _columns(connection, table)
    later = [column for of, column in LATER_COLUMNS if of == table and column not in known]
    if later:
        made_up = ", ".join(f"'' AS {column}" for column in later)
        connection.execute(
            f"CREATE TEMP VIEW {table} AS SELECT rowid AS rowid, *, {made_up}"  # noqa: S608
            f" FROM main.{table}"
        )


def _columns(connection: sqlite3.Connection, table: str) -> set[str]:
    """Return the columns of a table, none if it does not exist."""
    return {row[1] for row in connection.execute(f"PRAGMA table_info({table})")}


def _take_over_calls(connection: sqlite3.Connection) -> None:
    """Move the calls of a file from before calls had a status."""
    if not _columns(connection, "call"):
        return
    connection.executescript(
        f"BEGIN IMMEDIATE; INSERT INTO llm_call {FIRST_CALLS.format(more='')};"
        " DROP TABLE call; COMMIT;"
    )
