import json
import os
import re
import signal
import subprocess
import sys
from base64 import b64decode, b64encode
from gzip import decompress
from hashlib import sha256
from html.parser import HTMLParser
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from typing import Any

import pytest
from page_runs import call, candidate, serving, settings, step, write_steps
from typer.testing import CliRunner

from costada.cli.main import app
from costada.reports.page.feed import Feed
from costada.reports.page.page import ITERATIONS, blocks, embedded, policy, write_page
from costada.reports.page.server import PageServer
from costada.values.program import Program

HOSTILE = "</script><script>alert(1)</script><!--&\u2028\ud800"


class Elements(HTMLParser):
    """Collects start tags, and the text inside script and style elements."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.inside: dict[str, list[str]] = {"script": [], "style": []}
        self.open = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag in self.inside:
            self.open = tag
            self.inside[tag].append("")

    def handle_endtag(self, tag: str) -> None:
        self.open = "" if tag == self.open else self.open

    def handle_data(self, data: str) -> None:
        if self.open:
            self.inside[self.open][-1] += data


def hashed(text: str) -> str:
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"


@pytest.fixture
def hostile(tmp_path):
    """A run in which every text that a model or a problem writes tries to leave its place."""
    run = settings(tmp_path / "run", problem=f"object:{HOSTILE[:-1]}", model=HOSTILE[:-1])
    program = Program.of(HOSTILE)
    write_steps(
        run,
        [step(1, failure=HOSTILE, action=HOSTILE, events=[HOSTILE])],
        calls=[call(1, prompt=HOSTILE, answer=HOSTILE, role=HOSTILE[:-1])],
        candidates=[candidate(1, program=program, changes=HOSTILE, is_valid=False, error=HOSTILE)],
    )
    return run


def test_embedded_json_is_ascii_that_closes_no_element_and_means_the_same():
    text = embedded({HOSTILE: [HOSTILE, 1.5, None]})
    assert text.isascii()
    assert not re.search("[<>&]", text)
    assert json.loads(text) == {HOSTILE: [HOSTILE, 1.5, None]}


def test_a_number_that_is_none_is_refused():
    with pytest.raises(ValueError, match="not JSON compliant"):
        embedded(float("nan"))


def test_hostile_texts_add_no_element_to_the_page(hostile, tmp_path):
    calm = settings(tmp_path / "calm")
    write_steps(calm, [step(1)])
    pages = [write_page(run).read_text("utf-8") for run in (hostile, calm)]
    tags = [[tag for tag, _ in Elements(text).tags] for text in pages]
    assert tags[0] == tags[1]


def test_only_the_page_s_own_script_and_style_are_allowed(hostile):
    elements = Elements(write_page(hostile).read_text("utf-8"))
    (allowed,) = [
        attributes["content"]
        for tag, attributes in elements.tags
        if tag == "meta" and attributes.get("http-equiv") == "Content-Security-Policy"
    ]
    assert allowed == policy(is_live=False)
    (style,) = elements.inside["style"]
    assert f"style-src {hashed(style)};" in allowed
    assert f"script-src {hashed(elements.inside['script'][-1])};" in allowed
    assert "default-src 'none'" in allowed
    assert "connect-src 'none'" in allowed
    assert "require-trusted-types-for 'script'; trusted-types 'none'" in allowed


def test_the_page_names_no_address_outside_itself(hostile):
    elements = Elements(write_page(hostile).read_text("utf-8"))
    for tag, attributes in elements.tags:
        assert not {"src", "srcset", "style", "onclick", "onload"} & set(attributes), tag
        assert (attributes.get("href") or "#").startswith("#")


def test_no_script_turns_text_into_markup():
    folder = Path(__file__).parents[2] / "runs" / "page" / "scripts"
    for script in folder.glob("*.js"):
        text = script.read_text("utf-8")
        assert not re.search(r"innerHTML|outerHTML|insertAdjacent|document\.write|eval\(", text)
        assert len(text.splitlines()) < 300


def test_blocks_hold_the_texts_of_all_iterations_once_and_in_order(tmp_path):
    run = settings(tmp_path / "run", max_iterations=50)
    write_steps(run, [step(number) for number in range(1, 46)])
    packed = list(blocks(Feed(run)))
    assert [block.first for block in packed] == [0, 20, 40]
    told: list[Any] = [
        texts for block in packed for texts in json.loads(decompress(b64decode(block.packed)))
    ]
    assert ITERATIONS == 20
    assert [texts["iteration"] for texts in told] == list(range(46))
    assert told[45]["calls"][0]["prompt"] == "Change the program of iteration 45."


def test_the_same_run_gives_the_same_page_but_for_its_time(tmp_path):
    run = settings(tmp_path / "run")
    write_steps(run, [step(1)])
    texts = [
        re.sub(r'"written":"[^"]+"', "", write_page(run, tmp_path / name).read_text("utf-8"))
        for name in ("one.html", "two.html")
    ]
    assert texts[0] == texts[1]


def test_a_run_that_has_not_begun_has_no_page(tmp_path):
    with pytest.raises(ValueError, match="the run has not begun"):
        write_page(settings(tmp_path / "run"))


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


def invoke(*arguments: object) -> Any:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_report_writes_a_page_beside_the_run_and_prints_its_path(tmp_path):
    run = settings(tmp_path / "run")
    write_steps(run, [step(1)])
    result = invoke("report", run.path)
    assert result.exit_code == 0, result.output
    assert result.output == f"{run.path / 'report.html'}\n"
    assert (run.path / "report.html").read_text("utf-8").startswith("<!DOCTYPE html>")


def test_report_writes_where_it_is_told_to(tmp_path):
    run = settings(tmp_path / "run")
    write_steps(run, [step(1)])
    assert invoke("report", run.path, "--out", tmp_path / "page.html").exit_code == 0
    assert (tmp_path / "page.html").is_file()
    assert not (run.path / "report.html").exists()


def test_a_page_that_cannot_lie_where_it_is_told_to_is_refused_by_that_name(tmp_path):
    run = settings(tmp_path / "run")
    write_steps(run, [step(1)])
    before = sorted(tmp_path.rglob("*"))
    for out in (tmp_path, tmp_path / "missing" / "page.html"):
        result = invoke("report", run.path, "--out", out)
        assert result.exit_code == 2
        assert result.output.startswith(f"costada: {out}: ")
    assert sorted(tmp_path.rglob("*")) == before


def test_a_folder_without_a_run_is_refused_by_both_commands(tmp_path):
    for command in ("report", "watch"):
        result = invoke(command, tmp_path)
        assert result.exit_code == 2
        assert str(tmp_path) in result.output
        assert "Traceback" not in result.output


def test_a_taken_port_is_refused_in_one_line(tmp_path):
    import socket

    run = settings(tmp_path / "run")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        result = invoke("watch", run.path, "--port", taken.getsockname()[1])
    assert result.exit_code == 2
    assert "in use" in result.output
