"""What a run folder keeps of its checkpoints, and what becomes of a run file that is not right."""

import sqlite3
from contextlib import closing

import pytest
from fakes import ScriptedModel, hashed_answer, toy_problem

from costada.runs.discovery import discover
from costada.store.checkpoints import KEPT_CHECKPOINTS
from costada.store.run_store import RunStore

pytestmark = pytest.mark.process


def num_checkpoints(folder):
    with closing(sqlite3.connect(folder / "run.sqlite")) as connection:
        ((count,),) = connection.execute("SELECT COUNT(*) FROM checkpoints").fetchall()
    return int(count)


def test_a_finished_run_keeps_its_latest_checkpoints(tmp_path):
    model = ScriptedModel(answer=hashed_answer)
    prices = {"price": "1,2"}
    discover(toy_problem(), model, budget=0.02, out=tmp_path / "run", **prices)
    assert num_checkpoints(tmp_path / "run") == KEPT_CHECKPOINTS


def test_with_keep_history_every_checkpoint_stays_and_the_result_is_the_same(
    near, finished, invoke, tmp_path
):
    kept = tmp_path / "run"
    result = invoke("run", near, "--max-iterations", 3, "--keep-history", "--out", kept)
    assert result.exit_code == 0, result.output
    for name in ("steps.jsonl", "best_program.py"):
        assert (kept / name).read_bytes() == (finished / name).read_bytes()
    assert num_checkpoints(kept) > 7 * 3


READING = ["resume", "trace"]


@pytest.mark.parametrize(
    ("statement", "found", "commands"),
    [
        # A newer one can be shown.
        ("UPDATE costada_format SET version = 9", "written by another version of", ["resume"]),
        ("DELETE FROM costada_format", "not a run file of CostAda: it has the table", READING),
        (None, "is not a run file, or is damaged", READING),
    ],
)
def test_a_run_file_that_cannot_be_used_is_reported_in_one_line(
    invoke, finished, tmp_path, statement, found, commands
):
    for file in finished.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    path = tmp_path / "run.sqlite"
    if statement is None:
        path.write_bytes(b"not a database " * 100)
    else:
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute(statement)
    before = path.read_bytes()
    for command in commands:
        result = invoke(command, tmp_path)
        assert result.exit_code != 0
        assert f"run.sqlite: {found}" in result.output
        assert "Traceback" not in result.output
    assert path.read_bytes() == before


def copied(finished, target):
    for file in finished.iterdir():
        (target / file.name).write_bytes(file.read_bytes())
    return target


def unlink(database):
    database.unlink()


def truncate(database):
    database.write_bytes(b"")


def forget_the_run(database):
    database.unlink()
    RunStore(database).close()


@pytest.mark.parametrize("lose", [unlink, truncate, forget_the_run])
def test_a_run_whose_file_is_lost_is_not_started_again(invoke, finished, tmp_path, lose):
    folder = copied(finished, tmp_path)
    lose(folder / "run.sqlite")
    steps = (folder / "steps.jsonl").read_bytes()
    result = invoke("resume", folder)
    assert result.exit_code == 2
    found = f"costada: {folder / 'run.sqlite'}: holds no run, though steps.jsonl shows that one has"
    assert found in result.output
    assert (folder / "steps.jsonl").read_bytes() == steps


def test_a_best_program_alone_shows_that_a_lost_run_had_begun(invoke, finished, tmp_path):
    folder = copied(finished, tmp_path)
    truncate(folder / "run.sqlite")
    truncate(folder / "steps.jsonl")
    result = invoke("resume", folder)
    assert (result.exit_code, "best_program.py shows" in result.output) == (2, True)


def test_a_lost_run_is_not_started_again_from_python_either(tmp_path):
    folder = tmp_path / "run"
    model = ScriptedModel(answer=hashed_answer, prompts=[])
    options = {"budget": 0.02, "out": folder, "price": "1,2"}
    discover(toy_problem(), model, **options)
    unlink(folder / "run.sqlite")
    num_paid = len(model.prompts)
    with pytest.raises(ValueError, match=r"run\.sqlite: holds no run"):
        discover(toy_problem(), model, resume=True, **options)
    assert len(model.prompts) == num_paid


def test_a_run_that_was_stopped_before_its_first_checkpoint_is_resumed(invoke, finished, tmp_path):
    folder = copied(finished, tmp_path)
    forget_the_run(folder / "run.sqlite")
    truncate(folder / "steps.jsonl")
    assert invoke("resume", folder).exit_code == 0
    assert (folder / "steps.jsonl").read_bytes() == (finished / "steps.jsonl").read_bytes()


@pytest.mark.parametrize("command", ["resume", "graph --run"])
def test_a_damaged_checkpoint_is_reported_with_the_file_and_what_to_do(
    invoke, finished, tmp_path, command
):
    folder = copied(finished, tmp_path)
    with closing(sqlite3.connect(folder / "run.sqlite")) as connection, connection:
        connection.execute("UPDATE checkpoints SET checkpoint = x'81a2c8c801'")
        connection.execute("UPDATE costada_timing SET seconds = CAST(x'7bc8' AS TEXT)")
    result = invoke(*command.split(), folder)
    assert result.exit_code == 2
    assert f"costada: {folder / 'run.sqlite'}: " in result.output
    assert "restore it from a backup, or begin another run" in result.output
