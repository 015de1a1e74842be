"""Our tables in Postgres: those of a run file, in a schema of their own, with their functions."""

import errno
import re
from collections.abc import Collection, Sequence
from typing import Any

import psycopg

from costada.store.address import foreign_error, format_error
from costada.store.earlier_formats import can_migrate
from costada.store.postgres_connections import SCHEMA
from costada.store.postgres_lease import LEASES
from costada.store.postgres_recent_writes import RECOVERY
from costada.store.schema import FORMAT, INDEXES, OWN_TABLES, TABLE, TABLES

# Collation C orders and compares bytes, as SQLite does, whatever the locale of the database is.
TYPES = {
    "INTEGER": "BIGINT",
    "REAL": "DOUBLE PRECISION",
    "BLOB": "BYTEA",
    "TEXT": 'TEXT COLLATE "C"',
}
"""Postgres' types that hold what SQLite's do."""

COLUMN = re.compile(r"(\w+) (?:TEXT|INTEGER|REAL|BLOB)\b")
KEY = re.compile(r"PRIMARY KEY \(([^)]+)\)|(\w+) \w+ PRIMARY KEY")

ENCODING = "UTF8"
CREATION_LOCK = 7_234_861_455
"""Key of the advisory lock under which one client creates the tables."""

# `ORDER BY rowid` walks the table in SQLite; Postgres needs an index. Texts come compressed, so the
# server need not try.
SERVER_INDEXES = """
CREATE INDEX IF NOT EXISTS costada_call_in_order ON costada_call (run_id, rowid);
CREATE INDEX IF NOT EXISTS costada_outcome_in_order ON costada_outcome (run_id, rowid);
ALTER TABLE costada_blob ALTER COLUMN data SET STORAGE EXTERNAL;
"""

FUNCTIONS = r"""
CREATE OR REPLACE FUNCTION instr(place text, part text) RETURNS integer
    LANGUAGE sql IMMUTABLE PARALLEL SAFE AS 'SELECT strpos(place, part)';
CREATE OR REPLACE FUNCTION json_valid(document text) RETURNS boolean
    LANGUAGE plpgsql IMMUTABLE AS $body$
BEGIN
    PERFORM document::json;
    RETURN TRUE;
EXCEPTION WHEN data_exception THEN
    RETURN FALSE;
END $body$;
CREATE OR REPLACE FUNCTION json_extract(document text, path text) RETURNS text
    LANGUAGE plpgsql IMMUTABLE AS $body$
DECLARE
    steps text[] := string_to_array(substr(path, 3), '.');
BEGIN
    RETURN document::json #>> steps;
EXCEPTION WHEN data_exception THEN
    BEGIN
        RETURN regexp_replace(regexp_replace(regexp_replace(document,
            '\\u0000', '\\ufffd', 'g'),
            '\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])', '\\ufffd', 'g'),
            '(?<!\\u[dD][89abAB][0-9a-fA-F]{2})\\u[dD][c-fC-F][0-9a-fA-F]{2}', '\\ufffd', 'g'
        )::json #>> steps;
    EXCEPTION WHEN data_exception THEN
        RETURN NULL;
    END;
END $body$;
"""
"""SQLite's functions that our statements call.

JSON text may hold NUL and half a surrogate pair, which no Postgres text can: another value of the
same document is found all the same. What is not JSON has no values.
"""

# A draw from a purse is one function on the server, in one round trip. The accounts are locked only
# while it runs, so clients of one purse wait neither for each other's network nor for each other's
# disk: a draw commits without waiting for the disk, and then waits until its commit is on disk.
# Commits reach the disk in order, so no transaction that relies on a draw is on disk without it.
DRAWING = """
CREATE OR REPLACE FUNCTION costada_held(account costada_account) RETURNS NUMERIC
LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN account.is_closed = 1 THEN account.spent::numeric
        ELSE greatest(account.budget::numeric, account.spent::numeric) END
$$;
CREATE OR REPLACE FUNCTION costada_draw(
    payer BIGINT, called TEXT, billed TEXT, most TEXT, known TEXT, begins BOOLEAN
) RETURNS BOOLEAN LANGUAGE plpgsql AS $$
DECLARE
    path costada_account[] := ARRAY(
        WITH RECURSIVE above (id, parent) AS (
            SELECT id, parent FROM costada_account WHERE id = payer
            UNION ALL
            SELECT up.id, up.parent FROM costada_account AS up JOIN above ON up.id = above.parent
        )
        SELECT account FROM costada_account AS account WHERE id IN (SELECT id FROM above)
        ORDER BY id FOR UPDATE);
    own costada_account := path[array_length(path, 1)];
    free NUMERIC := own.budget::numeric - own.committed::numeric;
    spent_more NUMERIC := billed::numeric + most::numeric;
    committed_more NUMERIC;
    held NUMERIC;
    recorded NUMERIC := (
        SELECT cost::numeric + bound::numeric FROM costada_entry
        WHERE account = payer AND key = called);
    changed costada_account;
BEGIN
    IF begins AND (own.is_closed = 1 OR recorded IS NOT NULL OR free <= 0
            OR own.policy = 'hard' AND free < spent_more) THEN
        RETURN FALSE;
    END IF;
    INSERT INTO costada_entry (account, key, cost, bound, facts)
        VALUES (payer, called, billed, most, known)
        ON CONFLICT (account, key) DO UPDATE SET cost = EXCLUDED.cost, bound = EXCLUDED.bound,
            facts = EXCLUDED.facts, rowid = EXCLUDED.rowid;
    spent_more := spent_more - coalesce(recorded, 0);
    committed_more := spent_more;
    FOR place IN REVERSE array_length(path, 1)..1 LOOP
        EXIT WHEN spent_more = 0 AND committed_more = 0;
        held := costada_held(path[place]);
        UPDATE costada_account
            SET spent = spent::numeric + spent_more, committed = committed::numeric + committed_more
            WHERE id = path[place].id RETURNING * INTO changed;
        committed_more := costada_held(changed) - held;
    END LOOP;
    RETURN TRUE;
END $$;
"""
"""Writes an entry and books it on the accounts from the payer up, as `Purse` does in a file.

Returns whether it did: nothing is written where a call may not begin.
"""

DRAW = b"SELECT costada_draw($1, $2, $3, $4, $5, $6)"

WAIT_FOR_DISK = b"SELECT pg_logical_emit_message(TRUE, 'costada', '')"
"""A transaction whose commit waits until it and all before it are on disk.

The message makes it one that writes; nothing reads it.
"""

NUMBERS = """
CREATE TABLE IF NOT EXISTS costada_transaction (client TEXT PRIMARY KEY, number BIGINT NOT NULL)
WITH (fillfactor = 50);
"""
"""The number of the last transaction that each client has committed."""

NUMBER = b"""
INSERT INTO costada_transaction VALUES ($1, $2) ON CONFLICT (client) DO UPDATE
SET number = EXCLUDED.number WHERE costada_transaction.number < EXCLUDED.number RETURNING number
"""
"""Writes the number of a transaction; returns no row where that transaction is committed."""

NEXT_NUMBER = b"""
INSERT INTO costada_transaction VALUES ($1, 1) ON CONFLICT (client) DO UPDATE
SET number = costada_transaction.number + 1 RETURNING number
"""
"""Gives a transaction the next number of a client whose threads commit at once, in that order."""

RELATIONS = """
SELECT name, kind FROM (
    SELECT relname AS name, relkind::text AS kind, oid FROM pg_class
    WHERE relnamespace = to_regnamespace(%(schema)s) AND relkind IN ('r', 'p', 'v', 'm', 'f')
    UNION ALL SELECT proname, 'function', oid FROM pg_proc
    WHERE pronamespace = to_regnamespace(%(schema)s) AND proname = 'costada_draw'
) AS known ORDER BY oid
"""
WITHOUT_KEY = """
SELECT relname FROM pg_class WHERE relnamespace = to_regnamespace(%(schema)s)
AND relname = ANY(%(tables)s) AND NOT EXISTS (
    SELECT 1 FROM pg_index WHERE indrelid = pg_class.oid AND indisprimary) ORDER BY relname
"""
EXPECTED = {
    *OWN_TABLES,
    "costada_lease",
    "costada_transaction",
    "costada_recovery",
    "costada_draw",
}


def table_statement(name: str, body: str) -> str:
    """What creates a table; `rowid` counts in the order of insertion, as in SQLite."""
    for old, new in TYPES.items():
        body = re.sub(rf"\b{old}\b", new, body)
    number = "GENERATED BY DEFAULT AS IDENTITY"
    body = body.replace("BIGINT PRIMARY KEY", f"BIGINT {number} PRIMARY KEY")
    columns = body.rstrip().removesuffix(")").rstrip()
    return f"CREATE TABLE IF NOT EXISTS {name} {columns}, rowid BIGINT {number});"


def replacing_statement(name: str, body: str) -> str:
    """What writes a row in place of the one with its key, as the newest one."""
    columns = COLUMN.findall(body)
    found = KEY.search(body)
    key = (found[1] or found[2]).split(", ") if found else []
    marks = ", ".join(f"${number}" for number in range(1, len(columns) + 1))
    changed = [each for each in columns if each not in key] + ["rowid"]
    changes = ", ".join(f"{each} = EXCLUDED.{each}" for each in changed)
    return (
        f"INSERT INTO {name} ({', '.join(columns)}) VALUES ({marks})"  # noqa: S608
        f" ON CONFLICT ({', '.join(key)}) DO UPDATE SET {changes}"
    )


BODIES = dict(TABLE.findall(TABLES))
REPLACING = {
    name: replacing_statement(name, body).encode()
    for name, body in BODIES.items()
    if name != "costada_format"
}
"""The statement that writes a whole row, by table."""


ENTRIES = b"SELECT * FROM unnest($1::bigint[], $2::text[], $3::text[], $4::text[], $5::text[])"
PUT_ENTRIES = REPLACING["costada_entry"].replace(b"VALUES ($1, $2, $3, $4, $5)", ENTRIES)
"""The statement that writes several entries of a purse; its values are columns."""


def prepare(connection: psycopg.Connection[Any], place: str, *, is_read_only: bool) -> None:
    """Check the format, and create schema and tables where they are missing, all at once.

    Raises:
        ValueError: The database cannot hold every text, the schema belongs to another version or
            to something else, or it is missing and nothing may be created.
        PermissionError: The user may not use the schema.
    """
    encoding = connection.info.parameter_status("server_encoding")
    if encoding != ENCODING:
        raise ValueError(
            f"{place}: the encoding of the database is {encoding}, expected {ENCODING}; create one"
            f" by: createdb --encoding {ENCODING} --template template0"
        )
    missing = _missing(connection, place, is_read_only=is_read_only)
    if missing & {*OWN_TABLES} and is_read_only:
        raise ValueError(
            f"{place}: holds no runs of CostAda yet; begin one, or name another database"
        )
    if not missing or is_read_only:
        return
    with connection.transaction():
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (CREATION_LOCK,))
        # Again under the lock: another client may have created them since.
        if not _missing(connection, place):
            return
        # CREATE SCHEMA IF NOT EXISTS needs the right to create one even where it is there.
        found = connection.execute("SELECT 1 FROM pg_namespace WHERE nspname = %s", (SCHEMA,))
        if not found.fetchall():
            connection.execute(f"CREATE SCHEMA {SCHEMA}")
        create(connection)


def create(connection: psycopg.Connection[Any]) -> None:
    """Create what is missing of tables, indexes and functions, within the caller's transaction."""
    tables = [table_statement(*each) for each in BODIES.items()]
    number = f"INSERT INTO costada_format SELECT {FORMAT} WHERE NOT EXISTS"
    number += " (SELECT 1 FROM costada_format);"
    own = (*tables, INDEXES, SERVER_INDEXES, FUNCTIONS, DRAWING, LEASES, NUMBERS, RECOVERY, number)
    script = " ".join(own)
    connection.execute(script.encode())


def _missing(
    connection: psycopg.Connection[Any], place: str, *, is_read_only: bool = False
) -> set[str]:
    """The tables and functions that are not there; raises as `prepare` does."""
    usable = "SELECT has_schema_privilege(oid, 'USAGE') FROM pg_namespace WHERE nspname = %s"
    if connection.execute(usable, (SCHEMA,)).fetchall() == [(False,)]:
        raise PermissionError(
            errno.EACCES, f"the user may not use the schema {SCHEMA!r}; grant it the right", place
        )
    found = dict(connection.execute(RELATIONS, {"schema": SCHEMA}).fetchall())
    for name, kind in found.items():
        if name in OWN_TABLES and kind != "r":
            raise foreign_error(place, f"`{SCHEMA}.{name}` is not a plain table")
    own = [name for name in found if name in OWN_TABLES]
    others = [name for name in found if not name.startswith(("costada_", "checkpoint"))]
    if others:
        raise foreign_error(place, f"its schema {SCHEMA!r} has the table `{others[0]}`")
    if own:
        number = format_in(connection, place, own)
        if number > FORMAT and is_read_only:
            return set()  # read as far as its tables are those of this version
        if number != FORMAT:
            raise format_error(place, number, FORMAT, can_migrate=can_migrate(number))
        check_whole(place, own)
    return EXPECTED - set(found)


def check_whole(place: str, own: Collection[str]) -> None:
    """Raise `ValueError` where some of our tables are missing: empty ones would hide the loss."""
    if lacking := [name for name in OWN_TABLES if name not in own]:
        raise _incomplete(place, f"the tables {', '.join(lacking)}")


def check_keys(connection: psycopg.Connection[Any], place: str) -> None:
    """Raise `ValueError` where tables of ours lack their primary keys."""
    tables = [name for name in OWN_TABLES if name != "costada_format"]
    values = {"schema": SCHEMA, "tables": tables}
    if lacking := [name for (name,) in connection.execute(WITHOUT_KEY, values).fetchall()]:
        raise _incomplete(place, f"the primary keys of {', '.join(lacking)}")


def _incomplete(place: str, what: str) -> ValueError:
    return ValueError(
        f"{place}: its schema {SCHEMA!r} lacks {what}, as after a restore that was not completed;"
        " drop the schema, and restore it from a backup"
    )


def format_in(connection: psycopg.Connection[Any], place: str, own: Sequence[str]) -> int:
    """The format of a schema that has these tables of ours.

    Raises:
        ValueError: The schema has no number, or lacks the table for it.
    """
    numbers: list[Any] = []
    if "costada_format" in own:
        numbers = [each for (each, *_) in connection.execute("SELECT * FROM costada_format")]
    if len(numbers) != 1:
        check_whole(place, own)
        raise foreign_error(
            place, f"it has the table `{own[-1]}`, expected its format in one row of costada_format"
        )
    return int(numbers[0])
