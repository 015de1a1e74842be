"""The files of a gateway: its journal and its address."""

import os
import sqlite3
import stat
from contextlib import closing
from pathlib import Path

import pytest

from costada.plugins.gateway.dispatch import checked_upstream
from costada.plugins.gateway.gateway_protocol import (
    GatewayAddress,
    address_file,
    forwarded_headers,
    hold_address,
    is_held,
    read_address,
    returned_headers,
)
from costada.plugins.gateway.response_journal import (
    Journal,
    JournalEntry,
    RequestKey,
    RequestState,
    Response,
)

KEY = RequestKey("run/1/guide/1", "hash")
ANSWER = Response(RequestState.ANSWERED, 200, (("Content-Type", "application/json"),), b"\x00{}")
ADDRESS = GatewayAddress(port=1234, pid=5678, token="secret", upstream="http://host/v1")


def permissions(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_another_database_is_refused_and_stays_as_it_is(tmp_path: Path):
    path = tmp_path / "purse.sqlite"
    with closing(sqlite3.connect(path)) as other:
        other.execute("CREATE TABLE account (name TEXT)")
    before = path.read_bytes()
    with pytest.raises(ValueError, match="is another database, expected a journal of a gateway"):
        Journal(path)
    assert path.read_bytes() == before


def test_what_hinders_a_journal_and_what_is_none_are_errors_that_name_it(tmp_path: Path):
    path = tmp_path / "j.sqlite"
    path.write_text("no database" * 100)
    with pytest.raises(ValueError, match=f"{path}: file is not a database, expected a journal"):
        Journal(path)
    path.unlink()
    path.with_name("j.sqlite-wal").mkdir()
    with pytest.raises(OSError, match=f"error: '{path}'") as hindered:
        Journal(path)
    assert hindered.value.filename == str(path)


def test_an_answer_is_read_back_as_it_came(tmp_path: Path):
    with closing(Journal(tmp_path / "j.sqlite")) as journal:
        number = journal.begin(KEY)
        journal.finish(number, ANSWER)
        assert journal.history(KEY.call) == [
            JournalEntry(number, KEY.request_hash, RequestState.ANSWERED)
        ]
        assert journal.response(number) == ANSWER


def test_requests_that_were_running_when_the_gateway_died_are_lost(tmp_path: Path):
    with closing(Journal(tmp_path / "j.sqlite")) as journal:
        journal.finish(journal.begin(KEY), ANSWER)
        journal.begin(KEY)
        assert journal.num_lost == 0
    with closing(Journal(tmp_path / "j.sqlite")) as journal:
        assert journal.num_lost == 1
        assert journal.states() == [
            (KEY.call, RequestState.ANSWERED),
            (KEY.call, RequestState.LOST),
        ]
        assert journal.response(2) == Response(RequestState.LOST)


def test_only_the_owner_can_read_the_journal(tmp_path: Path):
    with closing(Journal(tmp_path / "j.sqlite")) as journal:
        journal.begin(KEY)
        assert {permissions(path) for path in tmp_path.iterdir()} == {0o600}


def test_the_journal_of_another_version_is_refused(tmp_path: Path):
    Journal(tmp_path / "j.sqlite").close()
    with closing(sqlite3.connect(tmp_path / "j.sqlite")) as database, database:
        database.execute("UPDATE costada_journal SET version = 1")
    with pytest.raises(ValueError, match=r"journal of version 1, expected 2"):
        Journal(tmp_path / "j.sqlite")


def test_the_address_is_found_while_its_gateway_lives(tmp_path: Path):
    path = address_file(tmp_path / "gateway.sqlite")
    assert read_address(path) is None
    with hold_address(path) as file:
        assert read_address(path) is None
        file.write(ADDRESS)
        assert read_address(path) == ADDRESS
        assert permissions(path) == 0o600
        file.clear()
        assert read_address(path) is None
        assert is_held(path)
    assert not is_held(path)


def test_what_a_dead_gateway_left_is_no_address(tmp_path: Path):
    path = address_file(tmp_path / "gateway.sqlite")
    path.write_text('{"port": 1, "pid": 1, "token": "t", "upstream": "u"}')
    assert read_address(path) is None


def test_a_pipe_in_the_place_of_an_address_file_keeps_no_reader_waiting(tmp_path: Path):
    os.mkfifo(tmp_path / "address")
    assert read_address(tmp_path / "address") is None
    assert not is_held(tmp_path / "address")


def test_a_file_that_others_could_read_is_closed_to_them(tmp_path: Path):
    path = address_file(tmp_path / "gateway.sqlite")
    path.touch(0o644)
    with hold_address(path):
        assert permissions(path) == 0o600


def test_keys_go_upstream_and_headers_of_the_gateway_do_not():
    given = {
        "Authorization": "Bearer key",
        "Content-Type": "application/json",
        "Host": "127.0.0.1",
        "Connection": "close",
        "X-CostAda-Token": "secret",
        "x-costada-call": "run/1/guide/1",
    }
    assert forwarded_headers(given) == (
        ("Authorization", "Bearer key"),
        ("Content-Type", "application/json"),
    )


def test_only_headers_that_clients_act_on_are_kept():
    given = [("Retry-After", "2"), ("Set-Cookie", "id=1"), ("x-ratelimit-limit-tokens", "9")]
    assert returned_headers(given) == (given[0], given[2])


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("host/v1", "got 'host/v1', expected an address such as https://host/v1"),
        ("https://me:key@host/v1", "expected no key in the address"),
        ("https://host/v1?key=secret", "expected no key in the address"),
    ],
)
def test_an_address_that_cannot_be_the_provider_is_refused(url: str, message: str):
    with pytest.raises(ValueError, match=message):
        checked_upstream(url)


def test_a_final_slash_of_the_provider_makes_no_difference():
    assert checked_upstream("https://host/v1/") == "https://host/v1"
