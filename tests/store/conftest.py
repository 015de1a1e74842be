"""One contract, several backends: what a store keeps does not depend on where it keeps it."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing

import pytest
from store_backends import BACKENDS

from costada.store.checkpoints import RunSaver
from costada.store.database import Database
from costada.store.postgres_checkpoints import PostgresRunSaver
from costada.store.purse import Purse
from costada.store.run_store import RunStore


@pytest.fixture(params=BACKENDS)
def address(request, tmp_path):
    """Where one test keeps its rows, as `Database` takes it."""
    if request.param == "postgres":
        return request.getfixturevalue("postgres_address")
    return tmp_path / "run.sqlite" if request.param == "sqlite-file" else None


@pytest.fixture
def open_store(address) -> Iterator[Callable[..., RunStore]]:
    """Open a store on the rows of the test; all are closed after it."""
    with ExitStack() as opened:

        def opening(**options) -> RunStore:
            if isinstance(address, str):
                return opened.enter_context(RunStore.postgres(address, **options))
            return opened.enter_context(RunStore(address, **options))

        yield opening


@pytest.fixture
def store(open_store):
    return open_store()


@pytest.fixture
def database(address):
    opened = Database(address)
    yield opened
    opened.close()


@pytest.fixture
def open_purse(address) -> Iterator[Callable[..., Purse]]:
    """Open a purse in the place of the test, a new one in memory; all are closed after it."""
    place = {"dsn": address} if isinstance(address, str) else {"path": address}
    with ExitStack() as opened:

        def opening(budget, **options) -> Purse:
            return opened.enter_context(Purse(budget, **place, **options))

        yield opening


@pytest.fixture
def open_saver(address) -> Iterator[Callable[..., RunSaver | PostgresRunSaver]]:
    """Open a saver of checkpoints beside the rows of the test; all are closed after it."""
    kind = PostgresRunSaver if isinstance(address, str) else RunSaver
    with ExitStack() as opened:
        yield lambda **options: opened.enter_context(closing(kind(address, **options)))
