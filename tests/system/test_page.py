import json
import os
import re
import signal
import socket
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

from costada.reports.page import page
from costada.reports.page.page import PageWriter, embedded_json, policy, write_page
from costada.reports.page_server import PageServer
from costada.store.run_store import RunStore
from costada.values.candidate import Program

pytestmark = pytest.mark.process

HOSTILE = "</script><script>alert(1)</script><!--&\u2028\ud800"
SCRIPTS = Path(page.__file__).parent / "scripts"


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


def written(run, out=None):
    return write_page(run, *([out] if out else [])).read_text("utf-8")


@pytest.fixture
def run(tmp_path):
    made = settings(tmp_path / "run")
    write_steps(made, [step(1), step(2)])
    return made


@pytest.fixture
def hostile(tmp_path):
    """A run in which every text that a model or a problem writes tries to leave its place."""
    run = settings(tmp_path / "hostile", problem=f"object:{HOSTILE[:-1]}", model=HOSTILE[:-1])
    program, bad = Program.of(HOSTILE), {"is_valid": False, "error": HOSTILE}
    write_steps(
        run,
        [step(1, failure=HOSTILE, action=HOSTILE, events=[HOSTILE]), step(2)],
        calls=[call(1, prompt=HOSTILE, answer=HOSTILE, role=HOSTILE[:-1])],
        candidates=[candidate(1, program=program, changes=HOSTILE, **bad)],
    )
    return run


def test_embedded_json_is_ascii_closes_no_element_and_means_the_same():
    text = embedded_json({HOSTILE: [HOSTILE, 1.5, None]})
    assert text.isascii()
    assert not re.search("[<>&]", text)
    assert json.loads(text) == {HOSTILE: [HOSTILE, 1.5, None]}
    with pytest.raises(ValueError, match="not JSON compliant"):
        embedded_json(float("nan"))


def test_hostile_texts_add_no_element_and_no_address_to_the_page(hostile, run):
    tags = [Elements(written(each)).tags for each in (hostile, run)]
    assert [tag for tag, _ in tags[0]] == [tag for tag, _ in tags[1]]
    for tag, attributes in tags[0]:
        assert not {"src", "srcset", "style", "onclick", "onload"} & set(attributes), tag
        assert (attributes.get("href") or "#").startswith("#") or attributes["href"] == "data:,"


def test_only_the_page_s_own_script_and_style_are_allowed(hostile):
    elements = Elements(written(hostile))
    (allowed,) = [
        attributes["content"]
        for tag, attributes in elements.tags
        if tag == "meta" and attributes.get("http-equiv") == "Content-Security-Policy"
    ]
    assert allowed == policy(is_live=False)
    (style,) = elements.inside["style"]
    for kind, text in (("style", style), ("script", elements.inside["script"][-1])):
        digest = b64encode(sha256(text.encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}';" in allowed
    assert "default-src 'none'" in allowed
    assert "connect-src 'none'" in allowed
    assert "require-trusted-types-for 'script'; trusted-types 'none'" in allowed


def test_no_script_turns_text_into_markup():
    scripts = [path.read_text("utf-8") for path in SCRIPTS.glob("*.js")]
    assert scripts
    for text in scripts:
        assert not re.search(r"innerHTML|outerHTML|insertAdjacent|document\.write|eval\(", text)


def held_by(file: Path) -> tuple[dict[str, Any], list[dict[str, Any]], list[Any]]:
    """The figures that a page opens with, those of its parts, and its texts by first iteration."""
    elements = Elements(file.read_text("utf-8"))
    scripts = [attributes for tag, attributes in elements.tags if tag == "script"]
    inside = list(zip(scripts, elements.inside["script"], strict=True))
    (data,) = [text for attributes, text in inside if attributes.get("id") == "data"]
    parts = [text for attributes, text in inside if attributes.get("class") == "rows"]
    blocks = [
        (int(attributes["data-first"] or 0), json.loads(decompress(b64decode(text))))
        for attributes, text in inside
        if attributes.get("class") == "block"
    ]
    return json.loads(data), [json.loads(part) for part in parts], blocks


def test_a_page_holds_all_iterations_once_and_in_order(tmp_path):
    run = settings(tmp_path / "run", max_iterations=50)
    write_steps(run, [step(number) for number in range(1, 46)])
    data, parts, blocks = held_by(write_page(run))
    assert [first for first, _ in blocks] == [0, 20, 40]
    texts = [each for _, found in blocks for each in found]
    assert [each["iteration"] for each in texts] == list(range(46))
    assert texts[45]["calls"][0]["prompt"] == "Change the program of iteration 45."
    assert data["after"] == 39
    for table, first in (("steps", 1), ("calls", 1), ("candidates", 0)):
        tables = [each[table] for each in (*parts, data)]
        rows = [
            dict(zip(each["columns"], row, strict=True)) for each in tables for row in each["rows"]
        ]
        assert [row["iteration"] for row in rows] == list(range(first, 46)), table
    assert data["best"]["id"] == "0.1"
    assert None not in (data["task"], data["settings"], data["facts"])


@pytest.mark.parametrize("parallel", [1, 4])
def test_a_page_that_grew_with_its_run_is_the_page_of_the_whole_run(tmp_path, parallel):
    """With four in flight, a guide is charged to an iteration that ends after its own part."""
    run = settings(tmp_path / "run", max_iterations=70, parallel=parallel)
    with PageWriter(run) as writer:
        for number in range(1, 67):
            write_steps(run, [step(number, events=["guide_charged"] if number in (22, 43) else [])])
            if number in (18, 39):
                with RunStore(run.database) as store:
                    store.put_tactics("run", number, {"tactics": [{"idea": "rows"}], "mode": "m"})
            writer.add_parts()
        grown = held_by(writer.write())
    whole = held_by(write_page(run, tmp_path / "whole.html"))
    for each in (grown, whole):
        del each[0]["written"]
    assert grown == whole
    assert len(whole[1]) == 3


@pytest.mark.parametrize("length", [19, 20, 39, 59])
def test_a_run_may_end_with_the_last_iteration_of_a_part(tmp_path, length):
    run = settings(tmp_path / "run", max_iterations=length)
    write_steps(run, [step(number) for number in range(1, length + 1)])
    data, parts, _ = held_by(write_page(run))
    tables = [each["steps"] for each in (*parts, data)]
    numbers = [row[each["columns"].index("iteration")] for each in tables for row in each["rows"]]
    assert numbers == list(range(1, length + 1))
    assert len(parts) == length // 20


def test_nothing_of_a_page_that_lies_there_is_taken_over(tmp_path):
    """It may come from anybody, with a program and dollars that the run does not have."""
    run = settings(tmp_path / "run", max_iterations=50)
    write_steps(run, [step(number) for number in range(1, 46)])
    file = write_page(run)
    whole = held_by(file)
    file.write_bytes(file.read_bytes().replace(b'"columns":', b'"columns" :'))
    again = held_by(write_page(run))
    assert again[1:] == whole[1:]
    assert b'"columns" :' not in file.read_bytes()


def test_the_same_run_gives_the_same_page_but_for_its_time(run, tmp_path):
    files = [tmp_path / name for name in ("one.html", "two.html")]
    one, two = (re.sub(r'"written":"[^"]+"', "", written(run, file)) for file in files)
    assert one == two


def test_a_run_that_has_not_begun_has_no_page(tmp_path):
    with pytest.raises(ValueError, match="the run has not started"):
        write_page(settings(tmp_path / "run"))


@pytest.fixture
def server(run):
    with serving(run) as made:
        yield made


def asked(
    server: PageServer, path: str, method: str = "GET", **headers: str
) -> tuple[HTTPResponse, str]:
    connection = HTTPConnection("127.0.0.1", server.server_port, timeout=60)
    shown = {"Authorization": f"Bearer {server.token}", **headers}
    connection.request(method, path, headers={name: text for name, text in shown.items() if text})
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer, text


def test_the_server_is_bound_to_the_loopback_address_and_opens_with_its_token(server):
    own = f"http://127.0.0.1:{server.server_port}"
    assert server.server_address[0] == "127.0.0.1"
    assert server.address == f"{own}/?token={server.token}"
    assert len(server.token) >= 43
    assert asked(server, server.address.removeprefix(own), Authorization="")[0].status == 200


def test_the_page_comes_with_a_policy_that_allows_requests_to_its_own_server(server):
    answer, text = asked(server, "/")
    assert answer.status == 200
    assert answer.headers["Content-Type"] == "text/html; charset=utf-8"
    assert "connect-src 'self'" in answer.headers["Content-Security-Policy"]
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert '"is_live":true' in text


def test_figures_after_an_iteration_and_texts_of_one_are_json(server):
    answer, text = asked(server, "/figures/1")
    assert answer.headers["Content-Type"] == "application/json; charset=utf-8"
    assert [row[0] for row in json.loads(text)["steps"]["rows"]] == [2]
    (texts,) = json.loads(asked(server, "/texts/2")[1])["texts"]
    assert texts["calls"][0]["prompt"] == "Change the program of iteration 2."
    several = json.loads(asked(server, "/texts/1-100")[1])["texts"]
    assert [each["iteration"] for each in several] == [1, 2]


@pytest.mark.parametrize(
    ("path", "method", "headers", "status", "text"),
    [
        *(
            (path, "GET", {}, 404, None)
            for path in ("/run.sqlite", "/../run.sqlite", "/figures/", "/figures/-1")
        ),
        *((path, "GET", {}, 404, None) for path in ("/texts/1/2", "/texts/x", "/texts/1-101")),
        *(("/", method, {}, 501, None) for method in ("PUT", "DELETE", "OPTIONS")),
        ("/", "POST", {}, 404, "not found\n"),
        ("/", "HEAD", {}, 200, ""),
        ("/", "GET", {"Host": "evil.example"}, 421, "not this host\n"),
        *(
            ("/figures/0", "GET", {"Origin": origin}, 403, "not this origin\n")
            for origin in ("http://evil.example", "http://127.0.0.1:1", "null")
        ),
    ],
)
def test_other_paths_methods_hosts_and_origins_are_refused(
    server, path, method, headers, status, text
):
    answer, body = asked(server, path, method, **headers)
    assert answer.status == status
    assert text is None or body == text
    own = f"http://127.0.0.1:{server.server_port}"
    assert asked(server, "/figures/0", Origin=own)[0].status == 200


@pytest.mark.parametrize("path", ["/", "/figures/0", "/texts/1", "/nothing"])
def test_nothing_is_served_without_the_token(server, path):
    nearly = server.token[:-1] + ("a" if server.token[-1] != "a" else "b")
    for shown in ("", "Bearer", "Bearer ", f"Bearer {nearly}", f"Basic {server.token}"):
        answer, text = asked(server, path, Authorization=shown)
        assert answer.status == 401
        assert "it ends with a token" in text
    for query in ("", "?token=", f"?token={nearly}", "?token=%ff%ff", f"?other={server.token}"):
        assert asked(server, path + query, Authorization="")[0].status == 401


def test_a_damaged_file_is_reported_and_the_server_continues(run, server):
    kept = run.database.read_bytes()
    run.database.write_bytes(b"no database" * 100)
    answer, text = asked(server, "/figures/0")
    assert answer.status == 503
    assert "is not a run file" in text
    run.database.write_bytes(kept)
    assert asked(server, "/figures/0")[0].status == 200


def test_watching_changes_nothing_in_the_folder(run, server):
    def times():
        files = [file for file in run.path.iterdir() if not file.name.endswith(("-shm", "-wal"))]
        return {file.name: file.stat().st_mtime_ns for file in files}

    before = times()
    for path in ("/", "/figures/0", "/texts/1"):
        asked(server, path)
    assert times() == before


def test_the_command_serves_until_it_is_interrupted(run):
    main = "from costada.cli.main import main; main()"
    command = [sys.executable, "-c", main, "watch", str(run.path)]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdout is not None
        said = child.stdout.readline()
        assert re.match(r"http://127\.0\.0\.1:\d+/\?token=[\w-]{43} shows ", said)
        port = int(said.split("/")[2].split(":")[1])
        connection = HTTPConnection("127.0.0.1", port, timeout=60)
        connection.request("GET", f"/figures/0?{said.split()[0].partition('?')[2]}")
        figures: Any = json.loads(connection.getresponse().read())
        connection.close()
        assert figures["run_id"] == "run"
        os.kill(child.pid, signal.SIGINT)
        assert child.wait(60) == 0
    finally:
        child.kill()
        child.communicate()


def test_report_writes_a_page_to_the_folder_or_to_a_file_and_prints_its_path(invoke, run, tmp_path):
    for out, words in ((run.path / "report.html", ()), (tmp_path / "page.html", ("--out",))):
        result = invoke("report", run.path, *words, *([out] if words else []))
        assert result.exit_code == 0, result.output
        assert result.output == f"{out}\n"
        assert out.read_text("utf-8").startswith("<!DOCTYPE html>")


def test_a_path_that_cannot_be_written_is_refused_by_name(invoke, run, tmp_path):
    before = sorted(tmp_path.rglob("*"))
    for out in (tmp_path, tmp_path / "missing" / "page.html"):
        result = invoke("report", run.path, "--out", out)
        assert result.exit_code == 2
        assert result.output.startswith(f"costada: {out}: ")
    assert sorted(tmp_path.rglob("*")) == before


def test_a_folder_without_a_run_has_no_report(invoke, tmp_path):
    for folder in (tmp_path, tmp_path / "missing"):
        result = invoke("report", folder)
        assert result.exit_code == 2
        assert f"{folder}: holds no run" in result.output
        assert "Traceback" not in result.output
    assert not any(tmp_path.iterdir())


def test_a_port_in_use_is_refused(invoke, run):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        result = invoke("watch", run.path, "--port", taken.getsockname()[1])
    assert result.exit_code == 2
    assert "in use" in result.output
