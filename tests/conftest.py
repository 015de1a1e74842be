"""What all tests share, and their order: the longest files first, so that no worker ends alone.

The garbage collector rests while libraries and tests are loaded, since all of that stays.
"""

import gc
from collections.abc import Iterator

import pytest
from billing_server import BillingServer
from hypothesis import settings

gc.disable()
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")

LONGEST_FIRST = (
    "test_hostile_candidates.py",
    "test_docs.py",
    "test_page_in_chromium.py",
    "test_cli_sweep.py",
    "test_kill.py",
    "test_readme.py",
    "test_mcp_server.py",
    "test_cli_run.py",
    "test_sandbox_zygote.py",
    "test_sandbox_bounds.py",
    "test_gateway_process.py",
)


def pytest_collection_modifyitems(items):
    """Put the files that take longest in front; the others keep their order."""
    place = {name: number for number, name in enumerate(LONGEST_FIRST)}
    items.sort(key=lambda item: place.get(item.path.name, len(place)))


def pytest_collection_finish():
    """Let the garbage collector work from now on."""
    gc.enable()


@pytest.fixture(scope="module")
def running_server() -> Iterator[BillingServer]:
    """A server for all tests of a file; each of them has it begin anew."""
    with BillingServer() as running:
        yield running
