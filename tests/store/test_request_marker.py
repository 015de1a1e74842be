"""The file that counts the requests of a stored run, and what waits for no database."""

from decimal import Decimal

import pytest
from postgres_server import started_server

from costada.store.outage import NO_PATIENCE, DatabaseUnavailable, waiting_for_database
from costada.store.purse import Purse
from costada.store.request_marker import RequestMarker, Requests, noted_requests

FIRST, SECOND = ("run", 1, "generation", 1, 1), ("run", 2, "generation", 1, 1)


def test_a_request_counts_at_its_bound_until_it_has_ended(tmp_path):
    path = tmp_path / "requests.json"
    marker = RequestMarker(path, Requests("", 0, Decimal(0)))
    assert noted_requests(path) is None
    marker.begin(FIRST, Decimal("0.5"))
    marker.begin(SECOND, Decimal("0.25"))
    assert noted_requests(path) == Requests("run", 2, Decimal("0.75"))
    marker.end(FIRST, Decimal("0.125"))
    assert noted_requests(path) == Requests("run", 2, Decimal("0.375"))


def test_a_resumed_run_begins_with_what_its_database_has(tmp_path):
    path = tmp_path / "requests.json"
    RequestMarker(path, Requests("run", 12, Decimal(3)))
    RequestMarker(path, Requests("run", 7, Decimal(2)))  # what was lost has been accepted
    assert noted_requests(path) == Requests("run", 7, Decimal(2))


def test_an_empty_file_notes_nothing_and_a_damaged_one_is_named(tmp_path):
    path = tmp_path / "requests.json"
    path.touch()
    assert noted_requests(path) is None
    path.write_text('{"run_id": "run"}')
    with pytest.raises(ValueError, match=r"requests.json: is damaged .*; remove it"):
        noted_requests(path)


@pytest.mark.process
def test_who_asks_again_soon_waits_for_no_database():
    with started_server() as server, Purse(5, dsn=server.address) as purse:
        assert purse.budget == 5
        server.control("stop", "--mode=immediate")
        with waiting_for_database(NO_PATIENCE), pytest.raises(DatabaseUnavailable):
            _ = purse.budget
        server.control("start")
        assert purse.budget == 5
