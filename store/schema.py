"""The tables of a run file. Every row carries its run, so one file can hold several runs."""

SCHEMA = """
CREATE TABLE IF NOT EXISTS blob (
    hash TEXT PRIMARY KEY, data BLOB NOT NULL
);
CREATE TABLE IF NOT EXISTS run (
    run_id TEXT PRIMARY KEY, name TEXT NOT NULL, problem TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS candidate (
    run_id TEXT NOT NULL, id TEXT NOT NULL, iteration INTEGER NOT NULL, score REAL,
    code_hash TEXT NOT NULL, facts TEXT NOT NULL, PRIMARY KEY (run_id, id)
);
CREATE INDEX IF NOT EXISTS candidate_by_iteration ON candidate (run_id, iteration);
CREATE TABLE IF NOT EXISTS archive (
    run_id TEXT NOT NULL, frontier INTEGER NOT NULL, seq INTEGER NOT NULL, members TEXT NOT NULL,
    PRIMARY KEY (run_id, frontier, seq)
);
CREATE TABLE IF NOT EXISTS tactics (
    run_id TEXT NOT NULL, iteration INTEGER NOT NULL, record TEXT NOT NULL,
    PRIMARY KEY (run_id, iteration)
);
CREATE TABLE IF NOT EXISTS call (
    run_id TEXT NOT NULL, iteration INTEGER NOT NULL, role TEXT NOT NULL,
    attempt INTEGER NOT NULL, n INTEGER NOT NULL, cost TEXT NOT NULL, prompt_hash TEXT NOT NULL,
    answer_hash TEXT NOT NULL, facts TEXT NOT NULL,
    PRIMARY KEY (run_id, iteration, role, attempt, n)
);
CREATE TABLE IF NOT EXISTS charge (
    run_id TEXT NOT NULL, iteration INTEGER NOT NULL, cost TEXT NOT NULL, spent TEXT NOT NULL,
    PRIMARY KEY (run_id, iteration)
);
CREATE TABLE IF NOT EXISTS step (
    run_id TEXT NOT NULL, iteration INTEGER NOT NULL, row TEXT NOT NULL,
    PRIMARY KEY (run_id, iteration)
);
"""
