"""Who waits for the requests of a call that are in flight."""

from multiprocessing import get_context

import pytest

from costada.store import in_flight_calls as module
from costada.store.in_flight_calls import in_flight_calls

pytestmark = pytest.mark.process


def wait_for_none(place):
    with in_flight_calls(place).none_of("call"):
        pass


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_forked_process_waits_for_no_thread_or_request_of_its_parent(tmp_path):
    place = tmp_path / "run.sqlite"
    calls = in_flight_calls(place)
    child = get_context("fork").Process(target=wait_for_none, args=(place,))
    calls.begin("call")
    with module._LOOKING_UP, calls.none_of("another"):  # as another thread may at the fork
        child.start()
    child.join(100)
    child.kill()
    child.join()
    assert child.exitcode == 0
    assert calls.keys == ["call"]
