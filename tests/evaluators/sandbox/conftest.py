import pytest
from sandbox_runs import CONFINED, ENDS, why_absent

from costada.evaluators.remote import engine as engines
from costada.evaluators.remote import score_processes
from costada.evaluators.sandbox.slot import SHORT_SLOTS, SLOTS


@pytest.fixture(scope="module", autouse=True)
def no_processes_of_other_files():
    """Tests count processes, and an earlier file may have left idle slots and workers."""
    SLOTS.close()
    SHORT_SLOTS.close()
    for engine in engines._engines.values():
        engine.close()
    engines._engines.clear()
    score_processes._end_idle()


@pytest.fixture(scope="session", params=ENDS)
def layer(request):
    """The weakest and the strongest layer that this machine offers: Landlock is inside of that."""
    if reason := why_absent(request.param):
        pytest.skip(reason)
    return request.param


@pytest.fixture(scope="session", params=CONFINED)
def confined(request):
    """Each layer that this machine offers and that keeps candidates from the rest of it."""
    if reason := why_absent(request.param):
        pytest.skip(reason)
    return request.param
