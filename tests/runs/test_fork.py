import json
import shutil
import sqlite3
from contextlib import closing
from typing import Any

import pytest

from costada.reports.page.feed import Feed
from costada.runs.folder import RunFolder
from costada.store.checkpoints import KEPT_CHECKPOINTS
from costada.store.run_store import RunStore

pytestmark = pytest.mark.process

AT = 2
LAST = 4


def lines_in(folder):
    return (folder / "steps.jsonl").read_text().splitlines()


def rows_in(folder):
    return [json.loads(line) for line in lines_in(folder)]


def run_id_in(folder):
    with RunStore(folder / "run.sqlite") as store:
        (run_id,) = store.run_ids()
        return run_id


def calls_in(folder):
    with RunStore(folder / "run.sqlite") as store:
        (run_id,) = store.run_ids()
        calls = store.call_log.calls(run_id)
        return [(call.ticket, call.prompt, float(call.cost)) for call in calls]


def table_rows(folder):
    """Return the rows of every table that belongs to runs, without their run ids."""
    with closing(sqlite3.connect(folder / "run.sqlite")) as connection:
        names = [row[0] for row in connection.execute("SELECT name FROM sqlite_master")]
        found = {}
        for name in names:
            columns = [row[1] for row in connection.execute(f"PRAGMA table_info({name})")]
            if "run_id" in columns:
                kept = ", ".join(column for column in columns if column != "run_id")
                found[name] = connection.execute(f"SELECT {kept} FROM {name}").fetchall()
        return found


def files_in(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.suffix != ".png"}


@pytest.fixture(scope="module")
def original(near, invoke, tmp_path_factory):
    """The folder of a finished run that kept all its checkpoints."""
    folder = tmp_path_factory.mktemp("original") / "run"
    options = ("--budget", 1, "--max-iterations", LAST, "--keep-history")
    result = invoke("run", near, *options, "--out", folder)
    assert result.exit_code == 0, result.output
    return folder


@pytest.fixture(scope="module")
def forked(original, invoke, tmp_path_factory):
    """The folder of a fork that has not gone on."""
    folder = tmp_path_factory.mktemp("forked") / "run"
    result = invoke("fork", original, "--at", AT, "--out", folder)
    assert result.exit_code == 0, result.output
    return folder


@pytest.fixture(scope="module")
def continued(forked, invoke, tmp_path_factory):
    """The folder of a fork that has gone on to its end; what that said is beside it."""
    folder = shutil.copytree(forked, tmp_path_factory.mktemp("continued") / "run")
    result = invoke("resume", folder, "--json")
    assert result.exit_code == 0, result.output
    folder.with_name("said.json").write_text(result.stdout)
    return folder


def test_a_fork_holds_what_the_original_held_at_the_end_of_the_iteration(original, forked):
    assert lines_in(forked) == lines_in(original)[:AT]
    assert (forked / "settings.json").read_bytes() == (original / "settings.json").read_bytes()
    assert run_id_in(forked) != run_id_in(original)
    assert calls_in(forked) == [call for call in calls_in(original) if call[0] <= AT]
    spent = sum(cost for _, _, cost in calls_in(forked))
    assert rows_in(forked)[-1]["spent"] == pytest.approx(spent)


def test_a_fork_continues_exactly_like_the_original(original, continued):
    assert lines_in(continued) == lines_in(original)
    best = (original / "best_program.py").read_bytes()
    assert (continued / "best_program.py").read_bytes() == best
    assert calls_in(continued) == calls_in(original)
    facts = json.loads(continued.with_name("said.json").read_text())
    spent = sum(cost for _, _, cost in calls_in(continued))
    assert facts["spent"] == pytest.approx(spent)
    assert sum(role["dollars"] for role in facts["ledger"].values()) == pytest.approx(spent)


@pytest.mark.parametrize("method", ["evox", "adaevolve", "no-intervention-gating"])
def test_a_fork_of_any_method_continues_exactly_like_the_original(method, near, tmp_path, invoke):
    original, new = tmp_path / "original", tmp_path / "new"
    options = ("--budget", 1, "--max-iterations", LAST, "--keep-history", "--method", method)
    assert invoke("run", near, *options, "--out", original).exit_code == 0
    assert invoke("fork", original, "--at", AT, "--out", new).exit_code == 0
    assert invoke("resume", new).exit_code == 0
    assert lines_in(new) == lines_in(original)
    assert calls_in(new) == calls_in(original)


@pytest.mark.parametrize("at", [3, 6])
def test_a_fork_with_steps_in_flight_continues_exactly_like_the_original(
    at, near, tmp_path, invoke
):
    original, new = tmp_path / "original", tmp_path / "new"
    options = ("--budget", 1, "--max-iterations", 10, "--keep-history")
    in_flight = ("--parallel", 4, "--order", "launch")
    assert invoke("run", near, *options, *in_flight, "--out", original).exit_code == 0
    forked = invoke("fork", original, "--at", at, "--out", new)
    assert forked.exit_code == 0
    assert len(lines_in(new)) == at
    landed = {json.loads(line)["ticket"] for line in lines_in(new)}
    dollars = {True: 0.0, False: 0.0}
    for ticket, _, cost in calls_in(new):
        dollars[ticket in landed] += cost
    assert dollars[False] > 0
    words = f"with ${dollars[True]:.6f} spent and ${dollars[False]:.6f} of calls of steps in flight"
    assert words in " ".join(forked.output.split())
    resumed = invoke("resume", new, "--json")
    assert resumed.exit_code == 0, resumed.output
    assert lines_in(new) == lines_in(original)
    assert sorted(calls_in(new)) == sorted(calls_in(original))
    spent = sum(cost for _, _, cost in calls_in(new))
    assert json.loads(resumed.stdout)["spent"] == pytest.approx(spent)


def test_a_fork_at_the_end_of_a_finished_run_can_be_extended_and_the_original_is_only_read(
    original, tmp_path, invoke
):
    before, folder = files_in(original), tmp_path / "end"
    assert invoke("fork", original, "--at", LAST, "--out", folder).exit_code == 0
    assert "this run has finished" in invoke("resume", folder).output
    assert invoke("resume", folder, "--max-iterations", LAST + 1).exit_code == 0
    assert lines_in(folder)[:LAST] == lines_in(original)
    assert len(rows_in(folder)) == LAST + 1
    assert {name: files_in(original)[name] for name in before} == before
    assert invoke("resume", original).exit_code == 0
    assert len(rows_in(original)) == LAST


def test_every_table_of_a_run_says_when_its_rows_came_to_be(original):
    with closing(sqlite3.connect(original / "run.sqlite")) as connection:
        names = [row[0] for row in connection.execute("SELECT name FROM sqlite_master")]
        columns = {
            name: {row[1] for row in connection.execute(f"PRAGMA table_info({name})")}
            for name in names
        }
    of_runs = {name: known for name, known in columns.items() if "run_id" in known}
    undated = {
        name
        for name, known in of_runs.items()
        if not known & {"ticket", "iteration", "seq", "landing"}
    }
    assert undated == {"costada_run", "costada_named"}
    assert "ticket" in of_runs["costada_input"]


def test_no_later_row_is_copied_and_no_earlier_one_lost(original, forked):
    whole, cut = table_rows(original), table_rows(forked)
    assert cut.keys() == whole.keys()
    (began,), (forked_run,) = whole.pop("costada_run"), cut.pop("costada_run")
    assert forked_run[:-1] == began[:-1]
    for table, rows in cut.items():
        assert rows == [row for row in whole[table] if row in rows], table
        assert not rows or len(rows) < len(whole[table]), table


def test_a_fork_of_a_fork_is_a_run_too(original, continued, tmp_path, invoke):
    again = tmp_path / "again"
    assert invoke("fork", continued, "--at", AT + 1, "--out", again).exit_code == 0
    assert invoke("resume", again).exit_code == 0
    assert lines_in(again) == lines_in(original)


def test_another_seed_takes_another_way(original, tmp_path, invoke):
    folder = tmp_path / "seeded"
    assert invoke("fork", original, "--at", AT, "--out", folder, "--seed", 7).exit_code == 0
    assert invoke("resume", folder).exit_code == 0
    assert lines_in(folder)[:AT] == lines_in(original)[:AT]
    assert lines_in(folder)[AT:] != lines_in(original)[AT:]
    assert RunFolder(folder).load().seed == 7


def test_another_budget_may_be_lower_but_not_spent(original, tmp_path, invoke):
    spent = rows_in(original)[AT - 1]["spent"]
    low, enough = tmp_path / "low", tmp_path / "enough"
    result = invoke("fork", original, "--at", AT, "--out", low, "--budget", spent)
    assert result.exit_code == 2
    assert f"dollars spent by iteration {AT}" in result.output
    assert not low.exists()
    options = ("--out", enough, "--budget", spent + 0.0001)
    assert invoke("fork", original, "--at", AT, *options).exit_code == 0
    assert json.loads(invoke("resume", enough, "--json").stdout)["stop_reason"] == "budget"
    assert len(rows_in(enough)) == AT + 1


def test_an_iteration_without_a_checkpoint_is_refused_naming_those_that_have_one(
    near, original, tmp_path, invoke
):
    pruned, new = tmp_path / "pruned", tmp_path / "new"
    last = KEPT_CHECKPOINTS + 2
    invoke("run", near, "--max-iterations", last, "--budget", 1, "--out", pruned)
    result = invoke("fork", pruned, "--at", 2, "--out", new)
    assert result.exit_code == 2
    assert f"iteration 2 of {pruned}: no checkpoint of its end is kept" in result.output
    assert f"expected 3 to {last}; a run with --keep-history keeps all checkpoints" in result.output
    assert not new.exists()
    result = invoke("fork", original, "--at", LAST + 1, "--out", new)
    assert f"expected 1 to {LAST};" in result.output


def test_a_fork_takes_no_folder_that_holds_anything(original, finished, tmp_path, invoke):
    before = files_in(finished)
    result = invoke("fork", original, "--at", AT, "--out", finished)
    assert result.exit_code == 2
    assert f"{finished}: exists, expected a new or an empty folder" in result.output
    assert files_in(finished) == before
    (tmp_path / "empty").mkdir()
    assert invoke("fork", original, "--at", AT, "--out", tmp_path / "empty").exit_code == 0
    assert [path.name for path in tmp_path.iterdir()] == ["empty"]


def test_only_a_run_that_has_begun_can_be_forked(original, tmp_path, invoke):
    result = invoke("fork", tmp_path / "nothing", "--at", 1, "--out", tmp_path / "new")
    assert result.exit_code == 2
    assert "holds no run" in result.output
    (tmp_path / "claimed").mkdir()
    shutil.copy(original / "settings.json", tmp_path / "claimed")
    result = invoke("fork", tmp_path / "claimed", "--at", 1, "--out", tmp_path / "new")
    assert result.exit_code == 2
    assert "its run has not started" in result.output


def test_a_fork_says_where_it_comes_from_also_when_it_has_advance(
    original, forked, continued, tmp_path, invoke
):
    words = f"Forked from {original.resolve()} after iteration {AT} (run {run_id_in(original)})."
    assert invoke("trace", forked).output.splitlines()[0] == words
    assert invoke("trace", continued).output.splitlines()[0] == words
    assert len(json.loads(invoke("trace", continued, "--json").stdout)) == LAST
    again = tmp_path / "again"
    assert invoke("fork", continued, "--at", AT + 1, "--out", again).exit_code == 0
    place, run_id = continued.resolve(), run_id_in(continued)
    first = f"Forked from {place} after iteration {AT + 1} (run {run_id})."
    assert invoke("trace", again).output.splitlines()[0] == first


def test_a_run_that_began_by_itself_comes_from_nowhere(original, invoke):
    assert "Forked" not in invoke("trace", original).output


def test_the_page_of_a_fork_names_its_origin_and_no_path(original, forked):
    found: Any = Feed(RunFolder(forked)).figures()["heading"]
    assert found["origin"] == f"{original.name} after iteration {AT}"
    other: Any = Feed(RunFolder(original)).figures()["heading"]
    assert other["origin"] == ""


def test_a_trace_of_a_finished_run_leaves_no_file_behind(original, invoke):
    before = sorted(path.name for path in original.iterdir())
    assert "run.sqlite-wal" not in before
    assert invoke("trace", original).exit_code == 0
    assert sorted(path.name for path in original.iterdir()) == before


def test_a_damaged_original_is_refused_by_its_own_name(original, tmp_path, invoke):
    damaged, new = tmp_path / "damaged", tmp_path / "new"
    shutil.copytree(original, damaged)
    data = bytearray((damaged / "run.sqlite").read_bytes())
    data[8192:] = bytes(len(data) - 8192)
    (damaged / "run.sqlite").write_bytes(data)
    result = invoke("fork", damaged, "--at", AT, "--out", new)
    assert result.exit_code == 2
    assert f"{damaged / 'run.sqlite'}: is damaged (" in result.output
    assert "restore it from a backup" in result.output
    assert [path.name for path in tmp_path.iterdir()] == ["damaged"]
