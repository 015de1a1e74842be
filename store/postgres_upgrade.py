"""Upgrades the schema of a database from an earlier format, in one transaction."""

import json
from collections.abc import Sequence
from contextlib import closing
from typing import Any

import psycopg
from psycopg import RawCursor

from costada.store.address import damage_error, format_error
from costada.store.earlier_formats import can_migrate, migrate_tables, migrated_checkpoint
from costada.store.postgres_checkpoints import UNUSED_BLOBS
from costada.store.postgres_connections import SCHEMA, Connections
from costada.store.postgres_engine import is_query, translate
from costada.store.postgres_lease import HOLDERS
from costada.store.postgres_schema import (
    CREATION_LOCK,
    RELATIONS,
    check_keys,
    check_whole,
    create,
    format_in,
)
from costada.store.schema import FORMAT, OWN_TABLES
from costada.store.state_serializer import StateSerializer

# Newest first: a value is written under the newest version of its checkpoint, which only this one
# and later ones refer to, and those have been changed before.
CHECKPOINTS = """
SELECT thread_id, checkpoint_ns, checkpoint_id FROM checkpoints ORDER BY rowid DESC
"""
OF_CHECKPOINT = "thread_id = %s AND checkpoint_ns = %s AND checkpoint_id = %s"
BLOBS = """
SELECT channel, type, blob FROM checkpoint_blobs WHERE thread_id = %s AND checkpoint_ns = %s
AND (channel, version) IN (SELECT key, value FROM jsonb_each_text(%s::jsonb))
"""
PUT_BLOB = """
INSERT INTO checkpoint_blobs (thread_id, checkpoint_ns, channel, version, type, blob)
VALUES (%s, %s, %s, %s, %s, %s) ON CONFLICT (thread_id, checkpoint_ns, channel, version)
DO UPDATE SET type = EXCLUDED.type, blob = EXCLUDED.blob
"""


def upgrade_database(address: str) -> int | None:
    """Upgrade a database to the format of this version.

    Returns the earlier format, `None` if it had this one. Processes of an earlier version that are
    connected get errors from then on, so none may work on a run.

    Raises:
        ValueError: The schema is not one of CostAda, is damaged, its format is newer or too old, or
            a process works on a run, naming it.
        OSError: The server cannot be reached, or refuses what was asked for.
    """
    with closing(Connections(address, idle_seconds=0.0)) as connections:
        place = connections.name
        with connections.lent() as connection, connection.transaction():
            connection.execute("SELECT pg_advisory_xact_lock(%s)", (CREATION_LOCK,))
            found = dict(connection.execute(RELATIONS, {"schema": SCHEMA}).fetchall())
            own = [name for name in found if name in OWN_TABLES]
            if not own:
                raise ValueError(f"{place}: holds no runs of CostAda, expected some")
            number = format_in(connection, place, own)
            if number != FORMAT and not can_migrate(number):
                raise format_error(place, number, FORMAT)
            check_whole(place, own)
            check_keys(connection, place)
            if number == FORMAT:
                return None
            _migrate(connection, place, number)
            return number


def _migrate(connection: psycopg.Connection[Any], place: str, found: int) -> None:
    with RawCursor(connection) as cursor:

        def execute(statement: str, values: Sequence[object]) -> list[tuple[Any, ...]]:
            translated = translate(statement)
            cursor.execute(translated, values)
            return cursor.fetchall() if is_query(translated) else []

        for name, pid, host, since in execute(HOLDERS, (None,)):
            raise ValueError(
                f"{place}: process {pid} on {host} works on {name} since {since}; stop all runs in"
                " the database before it is upgraded"
            )
        try:
            migrate_tables(found, execute)
            create(connection)
            if execute("SELECT to_regclass('checkpoints') IS NOT NULL", ()) == [(True,)]:
                _migrate_checkpoints(connection, found)
        except (AttributeError, KeyError, TypeError, IndexError, ValueError) as error:
            raise damage_error(
                place, f"cannot be upgraded from format {found} ({error!r})"
            ) from error


def _migrate_checkpoints(connection: psycopg.Connection[Any], found: int) -> None:
    serializer = StateSerializer()
    names = connection.execute(CHECKPOINTS).fetchall()
    for name in names:
        ((checkpoint,),) = connection.execute(
            f"SELECT checkpoint FROM checkpoints WHERE {OF_CHECKPOINT}".encode(),  # noqa: S608
            name,
        ).fetchall()
        versions = json.dumps(checkpoint["channel_versions"])
        values = dict(checkpoint["channel_values"])
        try:
            for channel, kind, packed in connection.execute(BLOBS, (*name[:2], versions)):
                if kind != "empty":
                    values[channel] = serializer.loads_typed((kind, packed))
        except ValueError:
            continue  # of another graph, whose state is not plain
        changed = migrated_checkpoint(found, {**checkpoint, "channel_values": values})
        if changed is None:
            continue
        # As LangGraph keeps them: plain values within the checkpoint, all others as blobs.
        state, inline = changed["channel_values"], {}
        for key, value in state.items():
            if value is None or isinstance(value, str | int | float):
                inline[key] = value
            elif key not in values or value != values[key]:
                version = changed["channel_versions"][key]
                kept = (*name[:2], key, version, *serializer.dumps_typed(value))
                connection.execute(PUT_BLOB, kept)
        text = json.dumps({**changed, "channel_values": inline})
        connection.execute(
            f"UPDATE checkpoints SET checkpoint = %s::jsonb WHERE {OF_CHECKPOINT}".encode(),  # noqa: S608
            (text, *name),
        )
        # Results of nodes that were kept for a crash; the nodes run again. Interrupts stay.
        connection.execute(
            f"DELETE FROM checkpoint_writes WHERE idx >= 0 AND {OF_CHECKPOINT}".encode(),  # noqa: S608
            name,
        )
    for thread in {name[:2] for name in names}:
        connection.execute(UNUSED_BLOBS, (*thread, *thread))
