"""The file that notes the requests of a run, and what waits for no database."""

from decimal import Decimal

import pytest
from postgres_server import started_server

from costada.store.outage import NO_PATIENCE, DatabaseUnavailable, waiting_for_database
from costada.store.purse import Purse
from costada.store.request_marker import Request, RequestMarker, RequestNote, noted_requests

FIRST, SECOND = Request("run", 1, "generation", 1, 1), Request("run", 2, "generation", 1, 1)


def sent(dollars):
    return RequestNote(Decimal(dollars), True, "")


def ended(dollars):
    return RequestNote(Decimal(dollars), False, "journal")


@pytest.fixture
def path(tmp_path):
    return tmp_path / "requests.jsonl"


def test_a_request_counts_at_its_bound_until_it_has_ended(path):
    marker = RequestMarker(path, {})
    assert noted_requests(path) == {}
    marker.note(FIRST, sent("0.5"))
    marker.note(SECOND, sent("0.25"))
    assert noted_requests(path) == {FIRST: sent("0.5"), SECOND: sent("0.25")}
    marker.note(FIRST, ended("0.125"))
    assert noted_requests(path) == {FIRST: ended("0.125"), SECOND: sent("0.25")}


def test_a_request_takes_the_place_of_the_one_that_it_repeats(path):
    marker, repeated = RequestMarker(path, {}), FIRST._replace(number=3)
    marker.note(FIRST, sent("0.5"))
    marker.note(repeated, sent("0.5"), replaced=1)
    assert noted_requests(path) == {repeated: sent("0.5")}


def test_a_resumed_run_begins_with_what_it_has(path):
    RequestMarker(path, {FIRST: ended(3), SECOND: sent(1)})
    RequestMarker(path, {FIRST: ended(2)})  # what was lost has been accepted
    assert noted_requests(path) == {FIRST: ended(2)}


def test_only_the_requests_of_the_last_run_are_known(path):
    marker, other = RequestMarker(path, {FIRST: ended(3)}), FIRST._replace(run_id="other")
    marker.note(other, sent(1))
    assert noted_requests(path) == {other: sent(1)}


def test_a_cut_line_notes_nothing_and_a_damaged_one_is_named(path):
    path.touch()
    assert noted_requests(path) == {}
    RequestMarker(path, {FIRST: ended(3)})
    whole = path.read_text()
    path.write_text(whole + '["run", 2, "gen')
    assert noted_requests(path) == {FIRST: ended(3)}
    path.write_text('["run", 2, "gen\n' + whole)
    with pytest.raises(ValueError, match=r"requests.jsonl: is damaged .*; remove it"):
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
