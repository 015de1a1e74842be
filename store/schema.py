"""The tables of a run file: rows of runs carry their run, so one file can hold several.

A purse has tables of its own beside them.
"""

import sqlite3

TABLES = """
CREATE TABLE IF NOT EXISTS blob (
    hash TEXT PRIMARY KEY, data BLOB NOT NULL
);
CREATE TABLE IF NOT EXISTS run (
    run_id TEXT PRIMARY KEY, name TEXT NOT NULL, problem TEXT NOT NULL,
    sandbox TEXT NOT NULL DEFAULT ''
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

LATER_COLUMNS = (("run", "sandbox"), ("candidate", "evaluator"))
"""Text columns that a file written before they were thought of gets when it is opened."""

INDEXES = """
CREATE INDEX IF NOT EXISTS candidate_by_iteration ON candidate (run_id, iteration);
CREATE INDEX IF NOT EXISTS candidate_by_verdict
    ON candidate (run_id, code_hash, evaluator, iteration);
"""


def prepare(connection: sqlite3.Connection) -> None:
    """Give a run file every table, column and index that it does not have yet."""
    connection.executescript(TABLES)
    for table, column in LATER_COLUMNS:
        known = {row[1] for row in connection.execute(f"PRAGMA table_info({table})")}
        if column not in known:
            connection.execute(f"ALTER TABLE {table} ADD COLUMN {column} TEXT NOT NULL DEFAULT ''")
    _take_over_calls(connection)
    connection.executescript(INDEXES)


def _take_over_calls(connection: sqlite3.Connection) -> None:
    """Move the calls of a file from before calls had a status; each of them had ended."""
    if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'call'").fetchone():
        return
    connection.executescript(
        "BEGIN IMMEDIATE;"
        "INSERT INTO llm_call SELECT run_id, iteration, role, attempt, n,"
        " CASE WHEN json_extract(facts, '$.error') IS NULL THEN 'done' ELSE 'error' END,"
        " '', cost, '0', prompt_hash, answer_hash, facts FROM call;"
        "DROP TABLE call;"
        "COMMIT;"
    )
