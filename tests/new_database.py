"""An empty database on a Postgres server, for a test or a bench."""

from collections.abc import Iterator
from contextlib import contextmanager
from uuid import uuid4

import psycopg
from psycopg.conninfo import make_conninfo


@contextmanager
def new_database(server: str) -> Iterator[str]:
    """The address of an empty database, which is dropped after the block."""
    name = f"costada_{uuid4().hex}"
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
        try:
            yield make_conninfo(server, dbname=name)
        finally:
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)")
