"""The pages of `costada watch` while the server of their database is away."""

from contextlib import closing
from http.client import HTTPConnection
from threading import Thread

import pytest
from postgres_server import started_server

from costada.reports.page_server import PageServer
from costada.runs.stored_index import StoredIndex
from costada.store.run_store import RunStore

pytestmark = pytest.mark.process


def asked(server):
    with closing(HTTPConnection("127.0.0.1", server.server_port, timeout=60)) as connection:
        connection.request("GET", "/index/0", headers={"Authorization": f"Bearer {server.token}"})
        answer = connection.getresponse()
        return answer.status, answer.read().decode()


def test_pages_say_since_when_they_wait_and_continue_when_the_server_is_back():
    with started_server() as database:
        RunStore.postgres(database.address).close()
        with closing(StoredIndex(database.address)) as index, PageServer(index) as server:
            serving = Thread(target=server.serve_forever)
            serving.start()
            try:
                assert asked(server)[0] == 200
                database.control("stop", "--mode=fast")
                index._next_scan = 0.0
                (first, words), (second, again) = asked(server), asked(server)
                assert first == second == 503
                assert words.startswith("Waiting for the database, since ")
                assert words.split(" (")[0] == again.split(" (")[0]
                assert "Errno" not in words + again
                database.control("start")
                assert asked(server)[0] == 200
            finally:
                server.shutdown()
                serving.join()
