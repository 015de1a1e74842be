"""The metrics that `costada watch` and a server offer to Prometheus."""

import json
import re
import subprocess
import sys
from contextlib import closing
from datetime import datetime
from decimal import Decimal
from http.client import HTTPConnection
from time import time
from urllib.request import urlopen

import pytest
import yaml
from billing_server import BillingServer, Refusal
from crash_runs import run_to_end
from doc_blocks import ROOT, blocks_of
from needed_programs import needs
from page_runs import call, candidate, serving_path, settings, step, write_steps
from prometheus_client.parser import text_string_to_metric_families

from costada.reports import run_index
from costada.reports.run_index import RunIndex
from costada.reports.run_metrics import metrics_text
from costada.runs.folder import RunFolder
from costada.runs.folder_lease import hold_lease
from costada.runs.stored_index import StoredIndex
from costada.store.purse import Purse
from costada.store.rows import RunSetup
from costada.store.run_store import RunStore

pytestmark = pytest.mark.process
REQUESTS = "costada_run_requests_total"
MONITOR = ROOT / "docs" / "how-to" / "monitor.md"


OWN_LABELS = ("run", "role", "status", "state", "alert", "sandbox")


def samples(text):
    """Each value by the name of its metric, the run, and the role, state or kind of alert."""
    return {
        (each.name, *(each.labels[name] for name in OWN_LABELS if name in each.labels)): each.value
        for family in text_string_to_metric_families(text)
        for each in family.samples
    }


@pytest.fixture
def runs(tmp_path):
    """A run with a request in flight that gained once, and one that cannot be read."""
    run = settings(tmp_path / "runs" / "first", budget=1.0)
    best = dict.fromkeys(("best_objective", "best_score"), 0.8)
    facts = {"name": "toy", "direction": "maximize"}
    with RunStore(run.database) as store:
        store.open_run("run", "costada", "toy", "bubblewrap", RunSetup(facts, {}, purse="team-a"))
        for number in (1, 2):  # the frontiers share an evaluation
            store.candidates.put("run", candidate(0, id=f"0.{number}", metrics={"eval_time": 4.0}))
    timed = [
        candidate(1, metrics={"eval_time": 1.5}),
        candidate(2, metrics={"eval_time": 0.25}),
        candidate(2, id="2.2", metrics={"eval_time": 64.0}, is_cached=True),
        candidate(2, id="2.3", metrics={}),
        candidate(3, metrics={"eval_time": 32.0}),  # its step has not ended
    ]
    paid = [
        call(1, cost=Decimal("0.1"), ended_at=1_000_100, seconds=100),
        call(2, cost=Decimal("0.3"), ended_at=1_000_720, seconds=10, role="guide"),
        call(3, status="started", cost=Decimal(0), ended_at=1_000_800),
    ]
    write_steps(
        run, [step(1, spent=0.1, **best), step(2, spent=0.4, **best)], calls=paid, candidates=timed
    )
    settings(tmp_path / "runs" / 'a "b"').settings.write_text("{")
    with hold_lease(run.path):
        yield tmp_path / "runs"


def test_a_running_run_has_its_dollars_rate_and_requests_in_flight(runs):
    found = samples(metrics_text(RunIndex(runs, RunFolder)))
    unreadable = "a%20%22b%22"
    assert found.pop(("costada_runs_unread",)) == 0
    assert found.pop(("costada_run_lease_seconds", "first")) >= 0
    assert {key: value for key, value in found.items() if key[1] != unreadable} == {
        ("costada_run_dollars_total", "first", "generation"): pytest.approx(0.1),
        ("costada_run_dollars_total", "first", "guide"): pytest.approx(0.3),
        ("costada_run_requests_total", "first", "done"): 2,
        ("costada_run_state", "first", "running"): 1,
        ("costada_run_requests_in_flight", "first"): 1,
        ("costada_run_iterations_total", "first"): 2,
        ("costada_run_seconds_total", "first"): 720,
        ("costada_run_evaluation_seconds_total", "first"): 5.75,
        ("costada_run_info", "first", "bubblewrap"): 1,
        ("costada_run_budget_dollars", "first"): 1,
        ("costada_run_spent_dollars", "first"): pytest.approx(0.4),
        ("costada_run_dollars_since_gain", "first"): pytest.approx(0.3),
        ("costada_run_dollars_per_hour", "first"): pytest.approx(2),
        ("costada_run_best_objective", "first"): 0.8,
    }
    assert {key[0] for key in found if key[1] == unreadable} == {"costada_run_state"}
    assert found["costada_run_state", unreadable, "unreadable"] == 1


def test_requests_that_a_provider_refuses_are_counted(provider, tmp_path):
    refusals = [Refusal(429), Refusal(500)]
    answer = provider.answer
    with BillingServer(default=lambda body: refusals.pop() if refusals else answer(body)) as busy:
        run_to_end(tmp_path / "run", busy.url, {"max_iterations": 3})
        sent = len(busy.requests)
    found = samples(metrics_text(RunIndex(tmp_path, RunFolder)))
    counted = {key[2]: value for key, value in found.items() if key[0] == REQUESTS}
    assert counted == {"done": sent - 2, "error": 2}


def test_a_server_adds_its_purse(tmp_path):
    with Purse(5.0) as purse:
        purse.child("run", 2.0)
        found = samples(metrics_text(RunIndex(tmp_path, RunFolder), purse))
    assert found == {
        ("costada_purse_budget_dollars",): 5,
        ("costada_purse_spent_dollars",): 0,
        ("costada_purse_left_dollars",): 3,
        ("costada_runs_unread",): 0,
    }


def test_the_lease_of_a_run_has_the_age_that_its_file_says(runs):
    since = json.loads((runs / "first" / "run.lease").read_text())["since"]
    held = datetime.fromisoformat(since).timestamp()
    index, before = RunIndex(runs, RunFolder), time()
    age = samples(metrics_text(index))["costada_run_lease_seconds", "first"]
    assert before - held <= age <= time() - held
    (runs / "first" / "run.lease").write_text("not ours")
    (runs / "first" / "settings.json").touch()
    assert ("costada_run_lease_seconds", "first") not in samples(metrics_text(index))


def purse_of(place):
    """The label that the metrics of the run at a place have."""
    text = metrics_text(RunIndex(place, RunFolder))
    (budget,) = re.findall(r"^costada_run_budget_dollars\{.*", text, re.MULTILINE)
    return re.search(r'purse="(.*?)"', budget)[1]


def test_a_run_names_the_purse_that_pays_for_it(invoke, near, tmp_path):
    place, out = tmp_path / "purses.sqlite", tmp_path / "run"
    for team in ("team-a", "team-b"):
        Purse(5.0, path=place, name=team).close()
    limits = ("--max-iterations", 1, "--budget", 1)
    first = invoke("run", near, "--out", out, "--purse", f"{place}#team-a", *limits)
    assert (first.exit_code, purse_of(out)) == (0, "team-a"), first.output
    again = ("resume", out, "--max-iterations", 2, "--budget", 2)
    assert invoke(*again, "--purse", f"{place}#team-b").exit_code == 0
    assert purse_of(out) == "team-b"
    forked = invoke("fork", out, "--at", 2, "--out", tmp_path / "fork")
    assert forked.exit_code == 0, forked.output
    assert purse_of(tmp_path / "fork") == ""
    assert str(tmp_path) not in metrics_text(RunIndex(out, RunFolder))


@pytest.mark.cluster
def test_the_purses_of_a_database_are_those_of_its_runs(invoke, near, postgres_address, tmp_path):
    for team in ("team-a", "team-b", "idle"):
        Purse(5.0, dsn=postgres_address, name=team).close()
    with Purse.existing("idle", dsn=postgres_address) as idle:
        idle.child("agent", 1.0)
    for team in ("team-a", "team-b"):
        out = ("--store", f"{postgres_address}#of-{team}", "--out", tmp_path / team)
        paid = ("--purse", f"{postgres_address}#{team}", "--max-iterations", 1, "--budget", 1)
        assert invoke("run", near, *out, *paid).exit_code == 0
    with closing(StoredIndex(postgres_address)) as index:
        text = metrics_text(index)
    spent = {
        (each.name, each.labels["purse"]): each.value
        for family in text_string_to_metric_families(text)
        for each in family.samples
        if each.name in ("costada_purse_spent_dollars", "costada_run_spent_dollars")
    }
    assert {purse for _, purse in spent} == {"team-a", "team-b"}
    for team in ("team-a", "team-b"):
        run = spent["costada_run_spent_dollars", team]
        assert spent["costada_purse_spent_dollars", team] == pytest.approx(run)
    with closing(StoredIndex(f"{postgres_address}#of-team-a")) as index:
        found = set(re.findall(r'costada_purse_left_dollars\{purse="(.*?)"', metrics_text(index)))
    assert found == {"team-a"}


@needs("promtool")
def test_promtool_accepts_metrics_rules_and_the_queries_of_the_dashboard(runs, tmp_path):
    with Purse(5.0) as purse:
        text = metrics_text(RunIndex(runs, RunFolder), purse)
    (tmp_path / "rules.yml").write_text(block("rules.yml"))
    queries = [each.replace("$__rate_interval", "1m") for each in asked_by_the_dashboard()]
    rules = [{"record": f"panel_{number}", "expr": each} for number, each in enumerate(queries)]
    (tmp_path / "panels.yml").write_text(json.dumps({"groups": [{"name": "a", "rules": rules}]}))
    files = (tmp_path / "rules.yml", tmp_path / "panels.yml")
    for words in (("metrics",), ("rules", *files)):
        checked = subprocess.run(
            ["promtool", "check", *words], input=text, capture_output=True, text=True, check=False
        )
        assert (checked.returncode, checked.stderr) == (0, "")


def asked_by_the_dashboard():
    """The queries of all panels."""
    panels = json.loads((ROOT / "deploy" / "grafana.json").read_text())["panels"]
    return [target["expr"] for panel in panels for target in panel["targets"]]


def block(name):
    """A file of the page."""
    return next(each.text for each in blocks_of(MONITOR) if each.file == name)


def test_runs_that_have_not_been_read_are_counted_and_left_to_later_answers(runs, monkeypatch):
    index = RunIndex(runs, RunFolder)
    monkeypatch.setattr(run_index, "READING_SECONDS", -1.0)
    assert samples(metrics_text(index)) == {("costada_runs_unread",): 2}
    monkeypatch.setattr(run_index, "READING_SECONDS", 60.0)
    found = samples(metrics_text(index))
    assert (found["costada_runs_unread",], found["costada_run_state", "first", "running"]) == (0, 1)


def test_the_page_of_one_run_has_its_metrics(runs):
    with serving_path(runs / "first") as server:
        connection = HTTPConnection("127.0.0.1", server.server_port, timeout=60)
        connection.request("GET", "/metrics", headers={"Authorization": f"Bearer {server.token}"})
        answer = connection.getresponse()
        assert answer.getheader("Content-Type").startswith("text/plain; version=0.0.4")
        assert samples(answer.read().decode())["costada_run_requests_in_flight", "first"] == 1
        connection.request("GET", "/metrics")
        assert connection.getresponse().status == 401
        connection.close()


def test_purses_in_files_are_shown_as_they_stand(tmp_path):
    files = [tmp_path / "teams.sqlite", tmp_path / "sweep.sqlite"]
    words = [word for file in files for word in ("--purse", str(file))]
    command = [sys.executable, "-m", "costada", "watch", str(tmp_path), *words]
    with (
        Purse(5.0, path=files[0], name="team-a") as purse,
        Purse(7.0, path=files[0], name="team-b"),
        Purse(1.0, path=files[1], name="sweep-out"),
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process,
    ):
        address = process.stdout.readline().split()[0].replace("/?", "/metrics?")
        for left in (5.0, 4.0):
            with urlopen(address) as answer:
                text = answer.read().decode()
            dollars = re.findall(r'^costada_purse_left_dollars\{purse="(.*)"\} (.*)', text, re.M)
            found = {name: float(value) for name, value in dollars}
            assert found == {"team-a": left, "team-b": 7, "sweep-out": 1}
            purse.put("call", cost=1.0)
        process.terminate()


def test_files_without_a_purse_of_its_own_name_are_refused(invoke, tmp_path):
    first, second = tmp_path / "a.sqlite", tmp_path / "b.sqlite"
    for file in (first, second):
        Purse(5.0, path=file).close()
    RunStore(tmp_path / "run.sqlite").close()
    both = ("--purse", first, "--purse", second)
    for words, reason in [
        (("--purse", tmp_path / "c.sqlite"), "--purse: path: got "),
        (("--purse", tmp_path / "run.sqlite"), "run.sqlite, expected the file of a purse"),
        (both, f"both {first} and {second} have a purse 'purse'"),
    ]:
        refused = invoke("watch", tmp_path, *words)
        assert refused.exit_code == 2
        assert reason in " ".join(refused.stderr.split())


def test_the_token_of_the_page_can_be_chosen(tmp_path, monkeypatch):
    token = "chosen-token-of-more-than-32-characters"
    command = [sys.executable, "-m", "costada", "watch", str(tmp_path)]
    monkeypatch.setenv("COSTADA_WATCH_TOKEN", token)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        address = process.stdout.readline().split()[0]
        process.terminate()
    assert address.endswith(f"/?token={token}")
    monkeypatch.setenv("COSTADA_WATCH_TOKEN", "short")
    refused = subprocess.run(command, capture_output=True, text=True, check=False)
    assert refused.returncode == 2
    assert "COSTADA_WATCH_TOKEN: expected at least 32 letters" in refused.stderr


def test_dashboard_and_rules_ask_only_for_metrics_that_there_are(runs, tmp_path):
    with Purse(5.0) as purse:
        known = {key[0] for key in samples(metrics_text(RunIndex(runs, RunFolder), purse))}
    known |= {"costada_run_alert", "costada_jobs"}  # no run has an alert, no folder a queue
    asked = asked_by_the_dashboard()
    (group,) = yaml.safe_load(block("rules.yml"))["groups"]
    asked += [rule["expr"] for rule in group["rules"]]
    names = {word for expr in asked for word in re.findall(r"costada_\w+", expr)}
    assert names == known & names
    assert len(names) >= 8
