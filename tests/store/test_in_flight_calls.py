"""Requests that a process has under way, and who waits for them."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import pytest

from costada.store.call_log import CallKey, InFlightCalls
from costada.store.run_store import RunStore

KEY = CallKey("run", 1, "generation", 1)
MOMENT = 0.05


def is_awaited(calls: InFlightCalls, until: Callable[[], None]) -> bool:
    passed = Event()

    def need_its_end() -> None:
        with calls.none_of(KEY):
            passed.set()

    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(need_its_end)
        came_early = passed.wait(MOMENT)
        until()
        waiting.result(timeout=10)
    return not came_early


def test_a_call_is_awaited_until_its_last_request_has_ended() -> None:
    calls = InFlightCalls()
    calls.begin(KEY)
    calls.begin(KEY)
    calls.end(KEY)
    assert is_awaited(calls, until=lambda: calls.end(KEY))
    assert not is_awaited(calls, until=lambda: None)


def test_another_call_is_not_awaited() -> None:
    calls = InFlightCalls()
    calls.begin(KEY._replace(attempt=2))
    assert not is_awaited(calls, until=lambda: None)


@pytest.mark.parametrize("is_shared", [True, False])
def test_all_who_have_a_file_open_share_what_is_under_way(tmp_path: Path, is_shared: bool) -> None:
    paths = (tmp_path / "run.sqlite", tmp_path / "." / "run.sqlite") if is_shared else (None, None)
    with RunStore(paths[0]) as one, RunStore(paths[1]) as other:
        assert (one.call_log.in_flight is other.call_log.in_flight) is is_shared
