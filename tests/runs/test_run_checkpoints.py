"""What a run folder keeps of its checkpoints, and what becomes of a run file that is not right."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from fakes import ScriptedModel, hashed_answer, toy_problem

from costada.runs.discovery import discover
from costada.store.database import FORMAT
from costada.store.pruning import KEPT_CHECKPOINTS

Invoke = Callable[..., Any]


def num_checkpoints(folder: Path) -> int:
    with closing(sqlite3.connect(folder / "run.sqlite")) as connection:
        ((count,),) = connection.execute("SELECT COUNT(*) FROM checkpoints").fetchall()
    return int(count)


def test_a_finished_run_keeps_its_latest_checkpoints(tmp_path: Path) -> None:
    model = ScriptedModel(answer=hashed_answer)
    prices = {"price_in": "1", "price_out": "2"}
    discover(toy_problem(), model, budget=0.02, out=tmp_path / "run", **prices)
    assert num_checkpoints(tmp_path / "run") == KEPT_CHECKPOINTS


def test_with_keep_history_every_checkpoint_stays_and_the_result_is_the_same(
    near: Path, finished: Path, invoke: Invoke, tmp_path: Path
) -> None:
    kept = tmp_path / "run"
    result = invoke("run", near, "--max-iterations", 3, "--keep-history", "--out", kept)
    assert result.exit_code == 0, result.output
    for name in ("steps.jsonl", "best_program.py"):
        assert (kept / name).read_bytes() == (finished / name).read_bytes()
    assert num_checkpoints(kept) > 7 * 3


@pytest.mark.parametrize(
    ("statement", "told"),
    [
        (f"PRAGMA user_version = {FORMAT + 1}", "run.sqlite: written by a newer CostAda"),
        (None, "run.sqlite: is no run file, or is damaged"),
    ],
)
def test_a_run_file_that_cannot_be_used_is_told_in_one_line(
    invoke: Invoke, finished: Path, tmp_path: Path, statement: str | None, told: str
) -> None:
    for file in finished.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    path = tmp_path / "run.sqlite"
    if statement is None:
        path.write_bytes(b"not a database " * 100)
    else:
        with closing(sqlite3.connect(path)) as connection:
            connection.execute(statement)
    before = path.read_bytes()
    for command in ("resume", "trace"):
        result = invoke(command, tmp_path)
        assert result.exit_code != 0
        assert told in result.output
        assert "Traceback" not in result.output
    assert path.read_bytes() == before
