"""The run that the killed ones have to equal."""

import pytest
from crash_runs import Record, go_on, record_of, serve


@pytest.fixture(scope="session")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Record:
    """What a run leaves behind that nobody disturbs; it makes calls of every kind."""
    folder = tmp_path_factory.mktemp("whole") / "run"
    server, _ = serve()
    with server:
        go_on(folder, server.url, {})
    record = record_of(folder)
    assert {call.role for call in record.calls} == {"generation", "retry", "guide"}
    return record
