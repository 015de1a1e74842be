import csv
import io
import json
import os
import shutil
import sqlite3
import subprocess
import sys
from decimal import Decimal

import pytest
from pyarrow import parquet
from rows import call_row, trace_row

from costada import load_run
from costada.runs.config import RunConfig
from costada.runs.folder import RunFolder
from costada.store.purse import Purse
from costada.store.run_store import RunStore
from costada.values.candidate import Candidate, Program

pytestmark = pytest.mark.process

FORMULA = '=HYPERLINK("http://attacker.example","x")'


@pytest.fixture
def written(tmp_path):
    """Write a run folder by hand: written(steps=[...], calls=[...], candidates=[...])."""

    def write(steps=(), calls=(), candidates=()):
        folder = tmp_path / "run"
        RunFolder(folder).claim(RunConfig(problem="circle_packing"))
        with RunStore(folder / "run.sqlite") as store:
            store.open_run("id", "costada", "toy")
            for step in steps:
                store.put_step("id", step["iteration"], step)
            for call in calls:
                store.call_log.put_call("id", call)
            for candidate in candidates:
                store.candidates.put("id", candidate)
        return folder

    return write


def exported(invoke, folder, *arguments):
    result = invoke("export", folder, *arguments)
    assert result.exit_code == 0, result.output
    return result.stdout_bytes.decode()


def refusal(invoke, folder, *arguments):
    result = invoke("export", folder, *arguments)
    assert result.exit_code == 2, result.output
    return result.stderr


def cells(text):
    return list(csv.DictReader(io.StringIO(text)))


def test_csv_has_the_rows_of_the_trace_file(invoke, finished):
    trace = [json.loads(line) for line in (finished / "steps.jsonl").read_text().splitlines()]
    rows = cells(exported(invoke, finished, "--to", "csv"))
    for name in ("iteration", "step_cost", "spent", "score", "utility", "best_objective"):
        assert [float(row[name]) for row in rows] == [row[name] for row in trace]
    assert [row["is_cached"] for row in rows] == [str(row["is_cached"]).lower() for row in trace]
    assert all(float(row["seconds"]) > 0 for row in rows)


def test_all_formats_hold_the_same_values(invoke, finished, tmp_path):
    options = ("--table", "candidates", "--programs")
    lines = exported(invoke, finished, "--to", "jsonl", *options).splitlines()
    file = tmp_path / "candidates.parquet"
    assert exported(invoke, finished, "--to", "parquet", *options, "--out", file) == f"{file}\n"
    rows = [json.loads(line) for line in lines]
    assert parquet.read_table(file).to_pylist() == rows
    texts = [row["program"] for row in cells(exported(invoke, finished, "--to", "csv", *options))]
    assert texts == [row["program"] for row in rows]
    assert (finished / "best_program.py").read_text() in texts


def test_requests_have_their_tokens_and_dollars_and_the_iteration_that_is_charged(invoke, written):
    folder = written(
        steps=[trace_row(iteration=1, ticket=2)],
        calls=[call_row(ticket=1), call_row(ticket=2, frontier=0)],
    )
    waiting, landed = map(
        json.loads, exported(invoke, folder, "--to", "jsonl", "--table", "calls").splitlines()
    )
    assert (waiting["ticket"], waiting["iteration"], waiting["frontier"]) == (1, None, None)
    assert (landed["ticket"], landed["iteration"], landed["frontier"]) == (2, 1, 1)
    assert (landed["dollars"], landed["input_tokens"], landed["reasoning_tokens"]) == (
        0.002,
        1000,
        200,
    )
    assert "prompt" not in landed


def test_each_model_of_a_menu_has_a_column_of_dollars(invoke, written):
    model = {"credit": 0.0, "tries": 1, "is_disabled": False, "mean": 0.5, "deviation": 0.1}
    router = [{"name": "a", "dollars": 0.25, **model}, {"name": "b@low", "dollars": 0.5, **model}]
    folder = written([trace_row(), trace_row(iteration=2, models=["a", "b@low"], router=router)])
    first, second = cells(exported(invoke, folder, "--to", "csv"))
    assert (first["dollars.a"], first["models"]) == ("", "")
    assert (second["dollars.a"], second["dollars.b@low"]) == ("0.25", "0.5")
    assert second["models"] == "a b@low"


def test_a_text_that_a_spreadsheet_would_execute_is_defused_in_csv_alone(invoke, written):
    texts = [FORMULA, "+1", "-1", "@x", "\t=1", " =1", "harmless = 1"]
    steps = [trace_row(iteration=place, failure=text) for place, text in enumerate(texts, 1)]
    folder = written(steps)
    shown = [row["failure"] for row in cells(exported(invoke, folder, "--to", "csv"))]
    assert shown == [*(f"'{text}" for text in texts[:-1]), texts[-1]]
    lines = exported(invoke, folder, "--to", "jsonl").splitlines()
    assert [json.loads(line)["failure"] for line in lines] == texts


def test_a_negative_number_stays_a_number(invoke, written):
    folder = written([trace_row(objective=-4.5)])
    (row,) = cells(exported(invoke, folder, "--to", "csv"))
    assert row["objective"] == "-4.5"


def test_half_a_surrogate_pair_is_escaped(invoke, written, tmp_path):
    folder = written([trace_row(failure="a \ud800 b")])
    assert json.loads(exported(invoke, folder, "--to", "jsonl"))["failure"] == "a \\ud800 b"
    exported(invoke, folder, "--to", "parquet", "--out", tmp_path / "steps.parquet")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"score": "high"}, 'row 1 of steps has score "high", expected a number'),
        ({"stagnation": 2**80}, "expected an integer"),
        ({"stagnation": 1.5}, "expected an integer"),
        ({"failure": 3}, "expected a string"),
        ({"is_cached": "no"}, "expected true or false"),
        ({"router": [3]}, "a row in it is damaged"),
    ],
)
def test_a_value_of_another_type_is_refused_by_name(invoke, written, changes, words):
    folder = written([{**trace_row(), **changes}])
    assert words in refusal(invoke, folder, "--to", "csv")


def test_a_run_with_more_metrics_than_columns_is_refused(invoke, written):
    metrics = {f"m{number}": 1.0 for number in range(1001)}
    program = Program.of("x = 1\n")
    folder = written(candidates=[Candidate(id="0.1", program=program, score=0.0, metrics=metrics)])
    message = refusal(invoke, folder, "--to", "csv", "--table", "candidates")
    assert "has more than 1,000 metrics" in message


@pytest.mark.parametrize("name", ["run.sqlite", "run.sqlite-wal", "steps.jsonl", "best_program.py"])
def test_a_file_of_the_run_is_not_overwritten(invoke, finished, name):
    before = (finished / "steps.jsonl").read_bytes()
    assert "is a file of the run" in refusal(
        invoke, finished, "--to", "jsonl", "--out", finished / name
    )
    assert (finished / "steps.jsonl").read_bytes() == before


@pytest.mark.parametrize("words", [("export", "--to", "jsonl"), ("report",)])
@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("run/run.sqlite", "a file of the run"),
        ("run/settings.json", "a file of the run"),
        ("other/run.sqlite", "a file of another run"),
        ("other/settings.json", "a file of another run"),
        ("purse.sqlite", "a database"),
    ],
)
def test_no_run_and_no_purse_is_overwritten(invoke, finished, tmp_path, words, name, kind):
    shutil.copytree(finished, tmp_path / "run")
    shutil.copytree(finished, tmp_path / "other")
    with Purse(1, path=tmp_path / "purse.sqlite"):
        pass
    before = (tmp_path / name).read_bytes()
    command, *options = words
    result = invoke(command, tmp_path / "run", *options, "--out", tmp_path / name)
    assert result.exit_code == 2
    assert kind in " ".join(result.output.split())
    assert (tmp_path / name).read_bytes() == before


def test_a_page_replaces_pages_only(invoke, finished, tmp_path):
    own, page = tmp_path / "evaluator.py", tmp_path / "page.html"
    own.write_text("mine")
    page.write_text("an earlier page")
    assert invoke("report", finished, "--out", own).exit_code == 2
    assert own.read_text() == "mine"
    assert invoke("report", finished, "--out", page).exit_code == 0
    assert page.read_text().startswith("<!DOCTYPE html>")


def test_wrong_options_and_folders_without_a_run_are_refused(invoke, finished, tmp_path):
    assert "expected a file for --to parquet" in refusal(invoke, finished, "--to", "parquet")
    options = ("--to", "csv", "--programs")
    assert "expected --table candidates" in refusal(invoke, finished, *options)
    assert "holds no run" in refusal(invoke, tmp_path, "--to", "csv")
    RunFolder(tmp_path / "new").claim(RunConfig(problem="circle_packing"))
    assert "the run has not started" in refusal(invoke, tmp_path / "new", "--to", "csv")


def test_a_loaded_run_has_its_tables_settings_and_best_program(finished, near):
    import pandas

    run = load_run(finished)
    last = json.loads((finished / "steps.jsonl").read_text().splitlines()[-1])
    assert (run.state, run.iterations, run.spent) == ("finished", 3, last["spent"])
    assert (run.best_score, run.best_objective) == (last["best_score"], last["best_objective"])
    assert run.best_program == (finished / "best_program.py").read_text()
    assert run.settings["problem"] == str(near)
    assert list(pandas.DataFrame(run.steps)["spent"]) == [row["spent"] for row in run.steps]
    assert pandas.DataFrame(run.calls)["dollars"].sum() == pytest.approx(last["spent"])
    assert run.program(run.candidates[0]["id"]) == (near / "initial_program.py").read_text()
    with pytest.raises(ValueError, match=r"candidate_id: got '99\.1'"):
        run.program("99.1")


def test_a_run_before_its_first_iteration_can_be_loaded(written):
    run = load_run(written())
    assert (run.state, run.iterations, run.spent, run.best_score) == ("waiting", 0, 0.0, None)
    assert (run.steps, run.calls, run.candidates) == ([], [], [])


def test_what_a_step_cost_that_has_not_ended_is_in_what_a_run_was_charged(invoke, written):
    folder = written(calls=[call_row(cost=Decimal("18.5"), bound=Decimal("0.25"))])
    run = load_run(folder)
    assert (run.spent, run.charged) == (0.0, 18.75)
    said = invoke("trace", folder).stdout
    assert "$18.750000 are charged to steps that have not ended, of $18.750000 in all." in said


def test_loading_a_run_changes_nothing_in_its_folder(finished):
    def content():
        return {path.name: path.read_bytes() for path in finished.iterdir() if path.is_file()}

    before = content()
    load_run(finished)
    assert content() == before


def test_a_damaged_run_file_is_refused(written):
    folder = written([trace_row()])
    with sqlite3.connect(folder / "run.sqlite") as connection:
        connection.execute("UPDATE costada_timing SET seconds = 'x'")
        connection.execute("INSERT INTO costada_timing VALUES ('id', 1, '[1]')")
    connection.close()
    with pytest.raises(ValueError, match="expected a JSON object"):
        load_run(folder)


def test_a_table_in_a_folder_that_does_not_exist_is_refused_by_the_name_of_the_option(
    invoke, finished, tmp_path
):
    file = tmp_path / "none" / "x.csv"
    result = invoke("export", finished, "--to", "csv", "--out", file)
    assert result.exit_code == 2
    assert f"--out: got {file}, expected a file in a folder" in " ".join(result.stderr.split())


def test_a_file_in_place_of_a_run_folder_is_refused(finished):
    with pytest.raises(ValueError, match=r"run.sqlite: is a file, expected the folder of a run"):
        load_run(finished / "run.sqlite")


def test_a_pipe_that_its_reader_has_closed_ends_the_export_without_a_word(finished):
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "costada.cli.entry", "export", str(finished), "--to", "csv"]
    done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE)
    os.close(writing)
    assert (done.returncode, done.stderr) == (1, b"")
