"""The box for ideas of a live page, and the request behind it."""

import json
from http.client import HTTPConnection

import pytest
from page_runs import serving, settings, step, write_steps

from costada.reports.page.page import write_page
from costada.reports.page_server import MAX_BODY
from costada.store.run_store import RunStore
from costada.store.user_inputs import MAX_WAITING, TOO_MANY

pytestmark = pytest.mark.process

JSON_TYPE = "application/json"
HOSTILE = "</li><script>window.hurt = 1</script><img src=x onerror='window.hurt = 1'>"


@pytest.fixture
def run(tmp_path):
    made = settings(tmp_path / "run")
    steered = {"number": 1, "kind": "tactic", "idea": HOSTILE}
    write_steps(made, [step(1), step(2, events=["steered"], steered=steered)])
    return made


@pytest.fixture
def server(run):
    with serving(run) as made:
        yield made


def waiting(run):
    with RunStore(run.database, is_read_only=True) as store:
        return [each.text for each in store.inputs.waiting(store.run_ids()[-1])]


def posted(server, body, path="/ideas", **headers):
    connection = HTTPConnection("127.0.0.1", server.server_port, timeout=60)
    shown = {"Authorization": f"Bearer {server.token}", "Content-Type": JSON_TYPE}
    shown |= {name.replace("_", "-"): text for name, text in headers.items()}
    connection.request("POST", path, body, {name: each for name, each in shown.items() if each})
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.status, text


def test_an_idea_that_is_posted_waits_in_the_run(run, server):
    assert posted(server, json.dumps({"idea": "one"})) == (201, '{"number":1}')
    own = f"http://127.0.0.1:{server.server_port}"
    assert posted(server, json.dumps({"idea": "two"}), Origin=own)[0] == 201
    assert waiting(run) == ["one", "two"]


GOOD = json.dumps({"idea": "one"})


@pytest.mark.parametrize(
    ("body", "headers", "status", "said"),
    [
        (GOOD, {"Authorization": ""}, 401, "it ends with a token"),
        (GOOD, {"Host": "evil.example"}, 421, "not this host"),
        (GOOD, {"Origin": "http://evil.example"}, 403, "not this origin"),
        (GOOD, {"Origin": "null"}, 403, "not this origin"),
        (GOOD, {"Content_Type": "text/plain"}, 415, "expected application/json"),
        (GOOD, {"Content_Length": "many"}, 411, "expected a Content-Length"),
        ("x" * (MAX_BODY + 1), {}, 413, "expected at most 32,768 bytes"),
        ("{", {}, 400, "expected JSON"),
        ("[" * 20_000, {}, 400, "expected JSON"),
        (json.dumps({"idea": "one", "budget": 9}), {}, 400, 'expected {"idea": TEXT}'),
        (json.dumps(["one"]), {}, 400, 'expected {"idea": TEXT}'),
        (json.dumps({"idea": 7}), {}, 400, "idea: got 7, expected a string"),
        (json.dumps({"idea": "\ud800"}), {}, 400, "idea: got the character U+D800"),
        (json.dumps({"idea": "x" * 2001}), {}, 400, "idea: got 2,001 characters"),
    ],
)
def test_a_request_that_is_no_idea_of_the_reader_is_refused(
    run, server, body, headers, status, said
):
    found, text = posted(server, body, **headers)
    assert (found, said in text) == (status, True), text
    assert waiting(run) == []


def test_a_damaged_run_file_is_an_error_of_the_server(run, server):
    run.database.write_bytes(b"no database" * 100)
    status, text = posted(server, GOOD)
    assert (status, "damaged" in text or "not a run file" in text) == (503, True), text


def test_an_idea_is_refused_while_too_many_wait(run, server):
    with RunStore(run.database) as store:
        for number in range(MAX_WAITING):
            store.inputs.put_idea(store.run_ids()[-1], f"idea {number}")
    status, text = posted(server, GOOD)
    assert (status, text) == (409, f"{TOO_MANY}\n")
    assert len(waiting(run)) == MAX_WAITING


def test_the_box_sends_an_idea_and_shows_what_waits_as_text(run, server, page):
    page.goto(server.address)
    page.get_by_label("Your idea for the next iteration").fill(HOSTILE)
    page.keyboard.press("Enter")
    page.get_by_text("Idea 1 added: it waits until the run is resumed.").wait_for()
    assert page.locator("#ideas-waiting li span").first.inner_text() == HOSTILE
    assert waiting(run) == [HOSTILE]
    assert page.evaluate("window.hurt") is None


@pytest.mark.parametrize(("text", "count"), [("", "0"), ("  ", "0"), ("x" * 2500, "2,500")])
def test_the_box_says_why_an_idea_is_refused(run, server, page, text, count):
    page.goto(server.address)
    page.get_by_label("Your idea for the next iteration").fill(text)
    page.get_by_role("button", name="Try it").click()
    said = f"Not added: idea: got {count} characters, expected 1 to 2,000 besides blanks"
    page.get_by_text(said).wait_for()
    assert page.get_by_label("Your idea for the next iteration").input_value() == text
    assert waiting(run) == []


def test_a_long_idea_that_waits_is_shortened_and_opens(run, server, page):
    idea = f"{'try hexagonal rows ' * 100}and stop"
    page.goto(server.address)
    page.get_by_label("Your idea for the next iteration").fill(idea)
    page.keyboard.press("Enter")
    item = page.locator("#ideas-waiting li")
    item.wait_for()
    assert len(item.inner_text()) < 200
    item.locator("summary").click()
    page.wait_for_timeout(3500)  # the list has been read again by then
    assert item.locator("p").inner_text() == idea


def test_an_iteration_that_tried_an_idea_says_so_also_in_a_report(run, page):
    page.goto(f"{write_page(run).as_uri()}#t=2")
    page.locator("#drawer .tag", has_text="steered").wait_for()
    assert f"From the user: {HOSTILE}" in page.locator("#drawer-body").inner_text()
    assert page.locator("#ideas").count() == 0
    assert page.evaluate("window.hurt") is None
