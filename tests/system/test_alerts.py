"""Alerts about runs, and the webhook that hears of them."""

import json
import os
import sys
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from time import monotonic
from types import SimpleNamespace

import pytest
from page_runs import call, settings, step, write_steps
from ports import refusing_port

from costada.reports.alerts import AlertLimits
from costada.reports.run_index import RunIndex
from costada.runs.alert_webhook import TIMEOUT_SECONDS, AlertSender, Webhook
from costada.runs.folder import RunFolder
from costada.runs.folder_lease import hold_lease

pytestmark = pytest.mark.process

SECRET = "/hook/T0P-SECRET"


@contextmanager
def listening(*statuses):
    """A server that answers with these statuses in turn, the last one from then on."""
    heard, left = [], [*statuses]

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            heard.append((self.path, json.loads(body)))
            self.send_response(left.pop(0) if len(left) > 1 else left[0])
            self.end_headers()

        def log_message(self, *_):
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            address = f"http://127.0.0.1:{server.server_port}{SECRET}"
            yield SimpleNamespace(address=address, heard=heard)
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def run(tmp_path):
    """A run that gained at $0.10 last, and has spent $0.40 within 720 seconds."""
    run = settings(tmp_path / "runs" / "a b", budget=1.0)
    best = dict.fromkeys(("best_objective", "best_score"), 0.8)
    paid = [call(1, ended_at=1_000_100, seconds=10), call(2, ended_at=1_000_810, seconds=1)]
    write_steps(run, [step(1, spent=0.1, **best), step(2, spent=0.4, **best)], calls=paid)
    return run


def sender(index, address, said):
    return AlertSender(index, Webhook(address, waits=(0, 0)), said.append)


def test_each_alert_is_sent_once_and_again_only_where_the_server_failed(run):
    index, said = RunIndex(run.path.parent, RunFolder, AlertLimits(no_gain=0.25, hourly=5.0)), []
    with listening(503, 200) as hook:
        alerts = sender(index, hook.address, said)
        with hold_lease(run.path):
            alerts.look()
            alerts.look()
        assert [path for path, _ in hook.heard] == [SECRET, SECRET]  # $2 an hour are below $5
        assert hook.heard[0] == hook.heard[1]
        content = hook.heard[1][1]
        assert content["text"] == "a b: no gain for $0.30"
        assert (content["alert"], content["run"], content["spent"]) == ("no-gain", "a b", 0.4)
        alerts.look()
        alerts.look()
        (failed,) = hook.heard[2:]
        assert failed[1]["alert"] == "failed"
        assert failed[1]["words"].startswith("Stopped; resume with costada resume")
    assert said == []


def test_limits_hold_for_running_runs_only_and_one_that_ended_before_is_not_reported(run):
    index = RunIndex(run.path.parent, RunFolder, AlertLimits(no_gain=0.25, hourly=1.9))
    assert [row["alerts"] for row in index.all_rows()] == [{}]
    with hold_lease(run.path):
        (row,) = index.all_rows()
    assert row["alerts"] == {"no-gain": "no gain for $0.30", "hourly": "$2.00 an hour"}


def test_a_run_at_the_path_itself_has_alerts(run):
    index = RunIndex(run.path, RunFolder, AlertLimits(no_gain=0.3))
    with listening(200) as hook, hold_lease(run.path):
        sender(index, hook.address, []).look()
        assert [content["text"] for _, content in hook.heard] == ["a b: no gain for $0.30"]


def test_a_run_that_begins_while_another_is_read_has_a_row_once_it_is_read(run, monkeypatch):
    index = RunIndex(run.path.parent, RunFolder)
    read = RunFolder.load

    def begin_another(folder):
        if not (run.path.parent / "later").exists():
            settings(run.path.parent / "later")
            index._next_scan = 0.0  # the page asks for its rows meanwhile
            index._scan()
        return read(folder)

    monkeypatch.setattr(RunFolder, "load", begin_another)
    assert [row["id"] for row in index.all_rows()] == ["a%20b"]
    assert [row["id"] for row in index.all_rows()] == ["a%20b", "later"]


@pytest.mark.skipif(sys.platform == "darwin", reason="names of files are Unicode there")
def test_a_folder_whose_name_is_not_utf_8_has_alerts(run):
    path = run.path.parent / os.fsdecode(b"b\xff")
    run.path.rename(path)
    with listening(200) as hook:
        alerts = sender(RunIndex(path.parent, RunFolder), hook.address, [])
        with hold_lease(path):
            alerts.look()
        alerts.look()
    (failed,) = hook.heard
    assert failed[1]["run"] == "b\N{REPLACEMENT CHARACTER}"
    assert os.fsdecode(b"b\xff") in failed[1]["words"]


def test_a_run_that_ends_before_its_first_iteration_has_failed(tmp_path):
    run = settings(tmp_path / "runs" / "early")
    index = RunIndex(run.path.parent, RunFolder)
    assert index.all_rows()[0]["alerts"] == {}
    with hold_lease(run.path):
        assert index.all_rows()[0]["alerts"] == {}
    assert index.all_rows()[0]["alerts"] == {"failed": "ended before its first iteration"}


def test_a_run_that_cannot_be_read_for_a_moment_has_failed_only_once_it_has_ended(run):
    index = RunIndex(run.path.parent, RunFolder, AlertLimits(no_gain=0.25))
    kept = run.settings.read_text()
    with hold_lease(run.path):
        (before,) = index.all_rows()
        run.settings.write_text("{")
        (row,) = index.all_rows()
        assert (row["state"], row["alerts"]) == ("unreadable", before["alerts"])
    assert index.all_rows()[0]["alerts"].keys() == {"failed"}
    run.settings.write_text(kept)
    assert index.all_rows()[0]["alerts"].keys() == {"failed"}


def test_a_second_failure_after_a_resume_is_sent_too(run):
    with listening(200) as hook:
        alerts = sender(RunIndex(run.path.parent, RunFolder), hook.address, [])
        for _ in range(2):
            with hold_lease(run.path):
                alerts.look()
            alerts.look()
            alerts.look()
    assert [content["alert"] for _, content in hook.heard] == ["failed", "failed"]


def test_what_was_not_sent_is_sent_at_the_next_look_and_reported_once(run):
    index, said = RunIndex(run.path.parent, RunFolder, AlertLimits(no_gain=0.25)), []
    with listening(404, 404, 200) as hook, hold_lease(run.path):
        alerts = sender(index, hook.address, said)
        for _ in range(4):
            alerts.look()
    assert (len(hook.heard), len(said)) == (3, 1)


def test_the_end_does_not_wait_for_a_slow_webhook(run):
    index = RunIndex(run.path, RunFolder, AlertLimits(no_gain=0.25))
    asked, released = threading.Event(), threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            asked.set()
            released.wait(60)

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        try:
            with (
                hold_lease(run.path),
                sender(index, f"http://127.0.0.1:{server.server_port}", []),
            ):
                assert asked.wait(60)
                began = monotonic()
            assert monotonic() - began < TIMEOUT_SECONDS / 2
        finally:
            released.set()
            thread.join()


def test_a_webhook_that_fails_is_reported_without_its_secret_and_the_rest_goes_on(run):
    index, said = RunIndex(run.path.parent, RunFolder, AlertLimits(no_gain=0.0, hourly=0.0)), []
    with listening(404) as hook, hold_lease(run.path):
        sender(index, hook.address, said).look()
        assert len(hook.heard) == 2  # a refusal is not tried again: one request for each alert
        with refusing_port() as port:
            sender(index, f"http://127.0.0.1:{port}{SECRET}", said).look()
    refused = "--alert-webhook: http://127.0.0.1 answered 404; not sent: a b: no gain for $0.30"
    assert (said[0], len(said)) == (refused, 4)
    assert "http://127.0.0.1 ConnectError; not sent" in said[2]
    assert not [line for line in said if "SECRET" in line]


@pytest.mark.parametrize("address", ["ftp://h/SECRET", "SECRET", "http://", "http://[SECRET"])
def test_the_command_refuses_an_odd_address_without_showing_it(invoke, run, address):
    result = invoke("watch", run.path, "--alert-webhook", address)
    assert result.exit_code == 2
    assert "--alert-webhook: expected an address http://" in result.output
    assert "SECRET" not in result.output


def test_the_command_takes_limits_of_a_single_run_only_with_a_webhook(invoke, run, monkeypatch):
    result = invoke("watch", run.path, "--alert-no-gain", "5")
    assert result.exit_code == 2
    assert "--alert-no-gain: the page of a single run has no alerts" in result.output
    monkeypatch.setenv("COSTADA_ALERT_WEBHOOK", "ftp://h/SECRET")
    result = invoke("watch", run.path, "--alert-no-gain", "5")
    assert "--alert-webhook: expected an address http://" in result.output
