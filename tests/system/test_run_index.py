import json
import os
import re
import shutil
import signal
import subprocess
import sys
from decimal import Decimal
from http.client import HTTPConnection
from pathlib import Path
from time import thread_time
from typing import Any

import pytest
from page_runs import call, candidate, serving_path, settings, step, write_steps
from waiting import within

from costada import discover
from costada.reports import run_index
from costada.reports.kept_row import file_states, keep_row
from costada.reports.page_server import PageServer
from costada.reports.run_index import RunIndex
from costada.runs.folder import RunFolder
from costada.runs.folder_lease import hold_lease
from costada.store.run_store import RunStore

pytestmark = pytest.mark.process


def asked(server: PageServer, path: str, **headers: str) -> tuple[int, str]:
    connection = HTTPConnection("127.0.0.1", server.server_port, timeout=60)
    shown = {"Authorization": f"Bearer {server.token}", **headers}
    connection.request("GET", path, headers={name: text for name, text in shown.items() if text})
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.status, text


def by_id(found: Any) -> dict[str, Any]:
    return {row["id"]: row for row in found["rows"]}


@pytest.fixture
def root(tmp_path):
    """Two runs at different depths, the first of them finished."""
    first = settings(tmp_path / "runs" / "first", max_iterations=2, budget=0.5, seed=7)
    rises = {"objective": 0.8, "best_objective": 0.8, "best_score": 0.8, "global_gain": 0.3}
    write_steps(first, [step(1), step(2, **rises)])
    write_steps(settings(tmp_path / "runs" / "sweep" / "100% <b>"), [step(1)])
    return tmp_path / "runs"


def test_a_row_says_problem_method_model_best_dollars_and_state(root):
    found = RunIndex(root, RunFolder).rows()
    rows = by_id(found)
    assert found["kind"] == "runs"
    assert rows.keys() == {"first", "sweep/100%25%20%3Cb%3E"}
    row = rows["first"]
    names = ("problem", "method", "model", "seed", "budget", "spent", "iterations", "best")
    expected = ["toy", "costada", "scripted", 7, 0.5, pytest.approx(0.004), 2, 0.8]
    assert [row[name] for name in names] == expected
    assert row["state"] == "finished"
    # dollars, objective, score: the start, the new best, the end
    assert row["curve"] == [
        (0.0, 0.5, 0.5),
        (pytest.approx(0.004), 0.8, 0.8),
        (pytest.approx(0.004), 0.8, 0.8),
    ]
    assert rows["sweep/100%25%20%3Cb%3E"]["state"] == "stopped"


def test_a_row_says_where_dollars_and_time_went_and_when_the_budget_ends(tmp_path):
    run = settings(tmp_path / "run", budget=1.0)
    best = dict.fromkeys(("best_objective", "best_score"), 0.8)
    steps = [step(1, spent=0.1, **best), step(2, spent=0.4, **best)]
    paid = [  # the first is sent 90 s after 1,000,000, the last ends 810 s after it
        call(1, cost=Decimal("0.1"), ended_at=1_000_100, seconds=10),
        call(2, cost=Decimal("0.1"), ended_at=1_000_500, seconds=10),
        call(2, cost=Decimal("0.2"), ended_at=1_000_810, seconds=100, role="guide"),
        call(3, cost=Decimal("0.5"), ended_at=1_000_900, seconds=10),  # of a step in flight
    ]
    write_steps(run, steps, calls=paid)
    index = RunIndex(tmp_path, RunFolder)
    with hold_lease(run.path):
        (row,) = index.rows()["rows"]
    assert row["roles"] == [("generation", pytest.approx(0.2)), ("guide", pytest.approx(0.2))]
    assert row["since_gain"] == pytest.approx(0.3)
    assert row["seconds"] == 720
    assert row["hourly"] == pytest.approx(2.0)  # $0.40 in a fifth of an hour
    assert row["ends"] == 1_000_810 + 3 * 360  # $0.60 last three more steps at $0.20 each
    (row,) = index.rows()["rows"]
    assert (row["ends"], row["over"]) == (None, "")
    with RunStore(run.database) as store:  # the nodes worked a minute: the rest was a pause
        store.timing.put("run", 1, {"evaluate": 20.0})
        store.timing.put("run", 2, {"evaluate": 30.0, "generate": 10.0})
    write_steps(run, [step(3, spent=1.25, **best)], calls=[])
    (row,) = index.rows()["rows"]
    assert (row["seconds"], row["hourly"]) == (60, pytest.approx(75))
    assert row["roles"] == [("generation", pytest.approx(0.7)), ("guide", pytest.approx(0.2))]
    assert row["over"] == "$0.25 over the budget: the step that crossed it completed"


def test_only_changed_rows_are_sent_again(root):
    index = RunIndex(root, RunFolder)
    before = index.rows()
    assert index.rows(before["revision"])["rows"] == []
    other = RunFolder(root / "sweep" / "100% <b>")
    write_steps(other, [step(2, spent=0.25)])
    with hold_lease(other.path):
        (row,) = index.rows(before["revision"])["rows"]
        assert (row["state"], row["spent"], row["iterations"]) == ("running", 0.25, 2)
    (row,) = index.rows(before["revision"])["rows"]
    assert row["state"] == "stopped"
    assert len(index.rows()["rows"]) == 2


def test_runs_that_begin_are_added_and_a_removed_one_makes_the_client_start_again(root):
    index = RunIndex(root, RunFolder)
    before = index.rows()
    settings(root / "later")
    while not (found := index.rows(before["revision"])["rows"]):  # folders are scanned at intervals
        pass
    (row,) = found
    assert (row["id"], row["state"], row["best"]) == ("later", "waiting", None)
    shutil.rmtree(root / "first")
    while index.rows(before["revision"])["after"]:
        pass
    assert by_id(index.rows(before["revision"])).keys() == {"later", "sweep/100%25%20%3Cb%3E"}


def test_a_hundred_finished_runs_are_not_read_again(tmp_path):
    first = settings(tmp_path / "runs" / "0", max_iterations=2)
    write_steps(first, [step(1), step(2)])
    for number in range(1, 100):
        shutil.copytree(first.path, tmp_path / "runs" / str(number))
    index = RunIndex(tmp_path / "runs", RunFolder)
    found = index.rows()
    while found["unread"]:
        found = index.rows()
    assert len(by_id(found)) == 100
    began = thread_time()
    again = index.rows(found["revision"])
    assert thread_time() - began < 0.2
    assert again["rows"] == []  # one that is read again is among them
    assert {row["state"] for row in index.rows()["rows"]} == {"finished"}


def test_many_unknown_runs_are_read_in_several_parts(root, monkeypatch):
    monkeypatch.setattr(run_index, "READING_SECONDS", -1.0)
    index = RunIndex(root, RunFolder)
    first = index.rows()
    assert (first["rows"], first["unread"]) == ([], 2)
    monkeypatch.setattr(run_index, "READING_SECONDS", 60.0)
    assert by_id(index.rows(first["revision"])).keys() == {"first", "sweep/100%25%20%3Cb%3E"}


def read_row(path: Path) -> dict[str, Any]:
    return json.loads(json.dumps(made_row(path)))


def made_row(path: Path) -> Any:
    (row,) = RunIndex(path, RunFolder).all_rows()
    return row


def change_row(run: RunFolder, **facts: Any) -> None:
    known = json.loads(run.row.read_text())
    known["row"] |= facts
    run.row.write_text(json.dumps(known))


@pytest.fixture
def kept(root):
    """A finished run that has kept its row, and that row."""
    run = RunFolder(root / "first")
    states, row = file_states(run), made_row(run.path)
    keep_row(run, row, states)
    return run, json.loads(json.dumps(row))


def test_a_finished_run_is_listed_from_the_row_that_it_keeps(kept):
    run, row = kept
    change_row(run, words="Finished: as it keeps")
    assert read_row(run.path) == row | {"words": "Finished: as it keeps"}


def test_a_run_keeps_its_row_when_nothing_changes_its_files_any_more(tmp_path):
    discover("circle_packing", "offline", budget=1.0, max_iterations=2, out=tmp_path / "run")
    change_row(RunFolder(tmp_path / "run"), words="Finished: as it keeps")
    assert read_row(tmp_path / "run")["words"] == "Finished: as it keeps"


def test_a_row_that_came_with_a_copy_is_not_believed(kept, tmp_path):
    run, row = kept
    change_row(run, best=9.0, spent=0.001, budget=7.0, method="other")
    copy = tmp_path / "copy" / "first"
    shutil.copytree(run.path, copy)  # keeps sizes and times
    assert copy.joinpath("row.json").exists()
    assert read_row(copy) == row


def test_a_row_is_not_believed_after_a_change_that_leaves_size_and_time(kept):
    run, _ = kept
    known = run.run_file.stat()
    run.run_file.write_bytes(b"x" * known.st_size)

    def restore_time() -> bool:
        os.utime(run.run_file, ns=(known.st_atime_ns, known.st_mtime_ns))
        return run.run_file.stat().st_ctime_ns != known.st_ctime_ns

    within(60, restore_time)  # the system's clock of files has ticks
    assert run.run_file.stat().st_mtime_ns == known.st_mtime_ns
    assert read_row(run.path)["state"] == "unreadable"


def test_a_kept_row_does_not_outlast_what_happens_to_its_run(kept):
    run, _ = kept
    with hold_lease(run.path):
        assert read_row(run.path)["state"] == "running"
    write_steps(run, [step(3, spent=0.125)])
    assert read_row(run.path)["iterations"] == 3


def test_a_row_that_was_made_before_another_process_resumed_the_run_is_not_believed(root):
    run = RunFolder(root / "first")
    states, row = file_states(run), made_row(run.path)
    write_steps(run, [step(3, spent=0.125)])
    keep_row(run, row, states)
    assert read_row(run.path)["iterations"] == 3


@pytest.mark.parametrize(
    "forged",
    [
        *({"spent": float("inf")}, {"spent": "0.1"}, {"words": "x" * 301}, {"state": "stopped"}),
        *({"curve": [[0, 0, 0]] * 303}, {"roles": [["judge", None]]}, {"html": "<b>"}),
        *({"iterations": 10**400}, {"iterations": -1}, {"seed": 2**63}),
    ],
)
def test_a_malformed_row_is_not_believed(kept, forged):
    run, row = kept
    change_row(run, problem="forged")
    assert read_row(run.path)["problem"] == "forged"
    change_row(run, **forged)
    assert read_row(run.path) == row


def test_a_stopped_run_keeps_no_row(root):
    run = RunFolder(root / "sweep" / "100% <b>")
    states = file_states(run)
    keep_row(run, made_row(run.path), states)
    assert not run.row.exists()


def test_links_are_not_followed_and_damaged_runs_are_rows_that_say_so(root, tmp_path):
    outside = settings(tmp_path / "outside")
    write_steps(outside, [step(1)])
    (root / "linked").symlink_to(outside.path)
    bare = root / "bare"
    bare.mkdir()
    (bare / "settings.json").symlink_to(outside.settings)
    inner = settings(root / "inner")
    inner.database.symlink_to(outside.database)
    (settings(root / "broken").database).write_bytes(b"no database" * 100)
    settings(root / "cut").settings.write_text("{")
    odd = settings(root / "odd")
    write_steps(odd, [step(1, spent="much")])
    rows = by_id(RunIndex(root, RunFolder).rows())
    assert not {"linked", "bare"} & rows.keys()
    said = {
        "inner": "is a link",
        "broken": "not a run file",
        "odd": "finite",
        "cut": "Invalid JSON",
    }
    for name, words in said.items():
        assert rows[name]["state"] == "unreadable"
        assert words in rows[name]["words"]


def test_a_long_curve_keeps_its_ends_and_is_bounded(tmp_path):
    run = settings(tmp_path / "run", max_iterations=1000)
    rises = [
        step(t, best_objective=t / 1000, best_score=t / 1000, spent=t / 1000)
        for t in range(1, 1001)
    ]
    start = candidate(0, objective=0.0, score=0.0)
    write_steps(run, rises, calls=[], candidates=[start])
    (row,) = RunIndex(tmp_path, RunFolder).rows()["rows"]
    assert 250 <= len(row["curve"]) <= 302
    assert (row["curve"][0], row["curve"][-1]) == ((0.0, 0.0, 0.0), (1.0, 1.0, 1.0))


def test_each_run_has_its_page_and_figures_below_its_name(root):
    with serving_path(root) as server:
        name = "/runs/sweep/100%25%20%3Cb%3E"
        assert "<title>toy, costada, scripted</title>" in asked(server, f"{name}/")[1]
        assert json.loads(asked(server, f"{name}/figures/0")[1])["heading"]["folder"] == "100% <b>"
        assert len(json.loads(asked(server, f"{name}/texts/1")[1])["texts"]) == 1
        assert json.loads(asked(server, "/index/0")[1])["kind"] == "runs"
        for path in ("/figures/0", "/runs/", "/runs/first", "/runs/none/", "/runs/../first/"):
            assert asked(server, path)[0] == 404
        for path in ("/runs/sweep/", "/runs/first/settings.json", "/runs/first/../../secret/"):
            assert asked(server, path)[0] == 404


@pytest.mark.parametrize("path", ["/", "/index/0", "/runs/first/", "/runs/first/figures/0"])
def test_every_path_needs_token_host_and_own_origin(root, path):
    with serving_path(root) as server:
        assert asked(server, path)[0] == 200
        assert asked(server, path, Authorization="")[0] == 401
        assert asked(server, path, Host="evil.example")[0] == 421
        assert asked(server, path, Origin="http://evil.example")[0] == 403


def test_an_idea_goes_into_the_run_that_the_path_names(root):
    def posted(server: PageServer, path: str) -> int:
        connection = HTTPConnection("127.0.0.1", server.server_port, timeout=60)
        shown = {"Authorization": f"Bearer {server.token}", "Content-Type": "application/json"}
        connection.request("POST", path, json.dumps({"idea": "try hexagons"}), shown)
        status = connection.getresponse().status
        connection.close()
        return status

    with serving_path(root) as server:
        assert posted(server, "/runs/first/ideas") == 201
        assert [posted(server, path) for path in ("/ideas", "/runs/none/ideas")] == [404, 404]
        waiting = json.loads(asked(server, "/runs/first/ideas")[1])["waiting"]
        assert [each["idea"] for each in waiting] == ["try hexagons"]
        other = asked(server, "/runs/sweep/100%25%20%3Cb%3E/ideas")[1]
        assert json.loads(other)["waiting"] == []


def test_a_file_and_damaged_settings_are_refused(invoke, tmp_path):
    (tmp_path / "file").write_text("")
    run = settings(tmp_path / "run")
    run.settings.write_text("{}")
    for path, words in (("file", "is a file, expected the folder"), ("run", "settings.json")):
        result = invoke("watch", tmp_path / path)
        assert result.exit_code == 2
        assert words in result.output


def test_the_command_waits_for_a_run_and_says_when_it_has_begun(tmp_path):
    main = "from costada.cli.main import main; main()"
    path = tmp_path / "runs" / "new"
    command = [sys.executable, "-c", main, "watch", str(path)]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdout is not None
        address = child.stdout.readline().split()[0]
        assert "no run yet" in child.stdout.readline()
        port, token = re.search(r":(\d+)/\?(token=.+)", address).groups()

        def kind() -> str:
            connection = HTTPConnection("127.0.0.1", int(port), timeout=60)
            connection.request("GET", f"/index/0?{token}")
            found = json.loads(connection.getresponse().read())
            connection.close()
            return str(found["kind"])

        assert kind() == "waiting"
        write_steps(settings(path), [step(1)])
        assert child.stdout.readline() == f"{path}: the run has begun\n"
        assert kind() == "run"
        os.kill(child.pid, signal.SIGINT)
        assert child.wait(60) == 0
    finally:
        child.kill()
        child.communicate()


@pytest.mark.parametrize("field", ["events", "attempts"])
def test_a_run_with_odd_rows_is_one_unreadable_row_of_the_index(root, field):
    odd = {"failure": "no program", field: "many" if field == "attempts" else 5}
    write_steps(settings(root / "odd"), [step(1) | odd])
    rows = by_id(RunIndex(root, RunFolder).rows())
    assert (rows["odd"]["state"], rows["first"]["state"]) == ("unreadable", "finished")


def test_an_older_copy_of_a_run_file_is_read_anew(tmp_path):
    run = settings(tmp_path / "run")
    write_steps(run, [step(1)])
    older = shutil.copy(run.database, tmp_path / "older")
    write_steps(run, [step(2), step(3)])
    index = RunIndex(tmp_path, RunFolder)
    index.rows()
    shutil.copy(older, run.database)
    (row,) = index.rows()["rows"]
    (expected,) = RunIndex(tmp_path, RunFolder).rows()["rows"]
    assert (row["iterations"], row["spent"]) == (1, pytest.approx(0.002))
    assert row == expected
