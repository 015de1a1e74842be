"""A role in Postgres with the few rights that runs need."""

import os
import subprocess
from contextlib import closing
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from toy_graph import THREAD, discovery

from costada.store.address import shown_address
from costada.store.postgres_checkpoints import PostgresRunSaver
from costada.store.purse import Purse
from costada.store.run_store import RunStore

CONTAINER_SCRIPT = Path(__file__).parents[2] / "deploy" / "postgres_role.sh"
OF_ROLE = "SELECT rolsuper, rolcreaterole, rolcreatedb FROM pg_roles WHERE rolname = 'costada'"


@pytest.fixture
def admin(postgres_address):
    """A connection of a superuser to a database, whose role `costada` is dropped at the end."""
    with psycopg.connect(postgres_address, autocommit=True) as connection:
        yield connection
        connection.execute("DROP OWNED BY costada CASCADE")
        connection.execute("DROP ROLE costada")


def search(address: str) -> None:
    """Run a search whose store, checkpoints and purse are in a database."""
    with (
        RunStore.postgres(address) as store,
        closing(PostgresRunSaver(address)) as saver,
        Purse(1, dsn=address) as purse,
    ):
        graph = discovery(store=store, saver=saver, purse=purse, iterations=3)
        assert graph.invoke({}, THREAD)["iterations"] == 3


def as_costada(address: str) -> str:
    return shown_address(make_conninfo(address, user="costada"))


@pytest.mark.parametrize(
    "grant",
    ["GRANT CREATE ON DATABASE {} TO costada", "CREATE SCHEMA costada AUTHORIZATION costada"],
)
def test_a_role_that_may_create_its_schema_or_owns_it_needs_no_more(admin, postgres_address, grant):
    admin.execute("CREATE ROLE costada LOGIN")
    admin.execute(grant.format(admin.info.dbname))
    search(as_costada(postgres_address))


def test_a_role_without_the_right_is_told_so(admin, postgres_address):
    admin.execute("CREATE ROLE costada LOGIN")
    with pytest.raises(OSError, match="the user may not do this; grant it the right"):
        RunStore.postgres(as_costada(postgres_address))


def test_the_role_of_the_container_is_no_superuser(admin, postgres_address):
    where = conninfo_to_dict(postgres_address)
    given = {"POSTGRES_PASSWORD": "it's one", "POSTGRES_DB": where["dbname"]}
    subprocess.run(
        ["sh", "-e", CONTAINER_SCRIPT],
        env=os.environ | given | {"PGHOST": where["host"]},
        check=True,
    )
    assert admin.execute(OF_ROLE).fetchall() == [(False, False, False)]
    search(as_costada(postgres_address))
