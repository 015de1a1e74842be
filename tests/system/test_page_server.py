import json
import os
import re
import signal
import subprocess
import sys
from http.client import HTTPConnection, HTTPResponse
from typing import Any

import pytest
from page_runs import serving, settings, step, write_steps

from costada.reports.page.server import PageServer


@pytest.fixture
def run(tmp_path):
    made = settings(tmp_path / "run")
    write_steps(made, [step(1), step(2)])
    return made


@pytest.fixture
def server(run):
    with serving(run) as made:
        yield made


def asked(
    server: PageServer, path: str, method: str = "GET", **headers: str
) -> tuple[HTTPResponse, str]:
    connection = HTTPConnection("127.0.0.1", server.server_port, timeout=10)
    shown = {"Authorization": f"Bearer {server.token}", **headers}
    connection.request(method, path, headers={name: text for name, text in shown.items() if text})
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer, text


def test_the_server_is_bound_to_the_loopback_address(server):
    assert server.server_address[0] == "127.0.0.1"
    assert server.address == f"http://127.0.0.1:{server.server_port}/?token={server.token}"
    assert len(server.token) >= 43


def test_the_page_comes_with_a_policy_that_allows_asking_its_own_server(server):
    answer, text = asked(server, "/")
    assert answer.status == 200
    assert answer.headers["Content-Type"] == "text/html; charset=utf-8"
    assert "connect-src 'self'" in answer.headers["Content-Security-Policy"]
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert '"is_live":true' in text


def test_figures_after_an_iteration_are_json(server):
    answer, text = asked(server, "/figures/1")
    assert answer.headers["Content-Type"] == "application/json; charset=utf-8"
    assert [row[0] for row in json.loads(text)["steps"]["rows"]] == [2]


def test_texts_of_one_iteration_are_json(server):
    _, text = asked(server, "/texts/2")
    (told,) = json.loads(text)["texts"]
    assert told["calls"][0]["prompt"] == "Change the program of iteration 2."


@pytest.mark.parametrize(
    "path", ["/run.sqlite", "/../run.sqlite", "/figures/", "/figures/-1", "/texts/1/2", "/texts/x"]
)
def test_everything_else_is_not_there(server, path):
    answer, _ = asked(server, path)
    assert answer.status == 404


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS"])
def test_nothing_can_be_sent_to_the_server(server, method):
    answer, _ = asked(server, "/", method)
    assert answer.status == 501


def test_a_request_for_another_host_is_refused(server):
    answer, text = asked(server, "/", Host="evil.example")
    assert (answer.status, text) == (421, "not this host\n")


@pytest.mark.parametrize("origin", ["http://evil.example", "http://127.0.0.1:1", "null"])
def test_a_request_from_another_origin_is_refused(server, origin):
    answer, text = asked(server, "/figures/0", Origin=origin)
    assert (answer.status, text) == (403, "not this origin\n")
    own = f"http://127.0.0.1:{server.server_port}"
    assert asked(server, "/figures/0", Origin=own)[0].status == 200


@pytest.mark.parametrize("path", ["/", "/figures/0", "/texts/1", "/nothing"])
def test_nothing_is_told_without_the_token(server, path):
    nearly = server.token[:-1] + ("a" if server.token[-1] != "a" else "b")
    for shown in ("", "Bearer", "Bearer ", f"Bearer {nearly}", f"Basic {server.token}"):
        answer, text = asked(server, path, Authorization=shown)
        assert answer.status == 401
        assert "it ends with a token" in text
    for query in ("", "?token=", f"?token={nearly}", "?token=%ff%ff", f"?other={server.token}"):
        assert asked(server, path + query, Authorization="")[0].status == 401


def test_the_address_that_is_told_opens_the_page(server):
    path = server.address.removeprefix(f"http://127.0.0.1:{server.server_port}")
    assert asked(server, path, Authorization="")[0].status == 200


def test_asking_for_the_head_brings_no_body(server):
    answer, text = asked(server, "/", "HEAD")
    assert (answer.status, text) == (200, "")


def test_a_damaged_file_is_told_and_the_server_goes_on(run, server):
    kept = run.database.read_bytes()
    run.database.write_bytes(b"no database" * 100)
    answer, text = asked(server, "/figures/0")
    assert answer.status == 503
    assert "is no run file" in text
    run.database.write_bytes(kept)
    assert asked(server, "/figures/0")[0].status == 200


def test_watching_changes_nothing_in_the_folder(run, server):
    before = {path.name: path.stat().st_mtime_ns for path in run.path.iterdir()}
    for path in ("/", "/figures/0", "/texts/1"):
        asked(server, path)
    after = {path.name: path.stat().st_mtime_ns for path in run.path.iterdir()}
    side_files = {"run.sqlite-shm", "run.sqlite-wal"}
    assert {k: v for k, v in after.items() if k not in side_files} == before


def test_the_command_serves_until_it_is_interrupted(run):
    main = "from costada.cli.main import main; main()"
    command = [sys.executable, "-c", main, "watch", str(run.path)]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdout is not None
        said = child.stdout.readline()
        assert re.match(r"http://127\.0\.0\.1:\d+/\?token=[\w-]{43} shows ", said)
        port = int(said.split("/")[2].split(":")[1])
        connection = HTTPConnection("127.0.0.1", port, timeout=10)
        connection.request("GET", f"/figures/0?{said.split()[0].partition('?')[2]}")
        figures: Any = json.loads(connection.getresponse().read())
        connection.close()
        assert figures["run_id"] == "run"
        os.kill(child.pid, signal.SIGINT)
        assert child.wait(10) == 0
    finally:
        child.kill()
        child.communicate()
