"""Run folders that are made to take a reader's memory, or to keep it busy for ever."""

import json
import os
import resource
import shutil
import sqlite3
import zlib
from collections.abc import Callable
from contextlib import closing
from hashlib import sha256
from pathlib import Path

import pytest
from typer.testing import CliRunner
from warm import PATIENCE_SECONDS, PROCESSES

from costada.cli.main import app
from costada.store.rows import MAX_TEXT

pytestmark = pytest.mark.process

ADDRESS_BYTES = 4 * 2**30
"""Address space of a process; numerical libraries reserve much of it, and use little."""

HELD_BYTES = 2**30
COMMANDS = (
    *(["trace"], ["report"], ["compare"], ["graph", "--run"]),
    ["resume", "--max-iterations", "4"],
)


def change(folder, statement, *values):
    with closing(sqlite3.connect(folder / "run.sqlite")) as connection, connection:
        connection.execute(statement, values)


def bomb(folder, size=2**29):
    """Put half a gigabyte of zeros, in half a megabyte, in the place of each text."""
    packer = zlib.compressobj(9)
    piece = bytes(2**24)
    packed = b"".join([packer.compress(piece) for _ in range(size // len(piece))])
    change(folder, "UPDATE costada_blob SET data = ?", packed + packer.flush())


def bomb_against_another(folder):
    base = b"b" * 4096
    packer = zlib.compressobj(9, zdict=base)
    packed = b"".join([packer.compress(bytes(2**24)) for _ in range(16)]) + packer.flush()
    digest = sha256(base).digest()
    change(folder, "UPDATE costada_blob SET data = ?", b"\0" + digest + packed)
    change(folder, "INSERT INTO costada_blob VALUES (?, ?)", digest.hex(), zlib.compress(base))


def texts_in_a_circle(folder):
    with closing(sqlite3.connect(folder / "run.sqlite")) as connection:
        ((name,), *_) = connection.execute("SELECT hash FROM costada_blob").fetchall()
    circle = b"\0" + bytes.fromhex(name) + b"x"
    change(folder, "UPDATE costada_blob SET data = ?", circle)


def one_text_again_and_again(folder):
    """Let ten thousand requests of one iteration have the largest text there may be."""
    text = b"a" * MAX_TEXT
    name = sha256(text).hexdigest()
    change(folder, "INSERT INTO costada_blob VALUES (?, ?)", name, zlib.compress(text, 9))
    change(
        folder,
        "INSERT INTO costada_call WITH RECURSIVE c(i) AS (SELECT 1000 UNION ALL SELECT i + 1"
        " FROM c WHERE i < 11000) SELECT run_id, 1, 'retry', i, 1, status, request_hash, cost,"
        " bound, ?, ?, facts FROM c, (SELECT * FROM costada_call LIMIT 1)",
        name,
        name,
    )


def rows_without_end(folder):
    change(folder, "DROP TABLE costada_step")
    change(
        folder,
        "CREATE VIEW costada_step AS WITH RECURSIVE c(i) AS (SELECT 1 UNION ALL SELECT i + 1"
        " FROM c) SELECT r.run_id, c.i AS iteration, '{}' AS row FROM c, costada_run r",
    )


def computed_columns(folder):
    change(folder, "ALTER TABLE costada_step RENAME TO kept")
    change(
        folder,
        "CREATE TABLE costada_step (run_id TEXT, iteration INTEGER,"
        " row TEXT AS (hex(zeroblob(400000000))))",
    )
    change(folder, "INSERT INTO costada_step SELECT run_id, iteration FROM kept")


def deep_rows(folder):
    change(folder, "UPDATE costada_step SET row = ?", "[" * 10**6)


def long_amounts(folder):
    change(folder, "UPDATE costada_call SET cost = '1E+999999999'")
    change(folder, "UPDATE costada_charge SET spent = '1E+999999999'")


def deep_checkpoints(folder):
    change(folder, "UPDATE checkpoints SET metadata = ?", b"[" * 10**6)


def steps_that_wait(folder):
    (folder / "steps.jsonl").unlink()
    os.mkfifo(folder / "steps.jsonl")


def an_iteration_far_away(folder):
    last = "rowid = (SELECT MAX(rowid) FROM costada_candidate)"
    change(folder, f"UPDATE costada_candidate SET ticket = {10**15} WHERE {last}")


def spent_is_no_number(folder):
    with (folder / "steps.jsonl").open("a") as steps:
        for spent in ("NaN", "Infinity", "1e308", "1" * 400):
            steps.write(f'{{"iteration": 9, "spent": {spent}}}\n')


def huge_settings(folder):
    os.truncate(folder / "settings.json", 8 * 2**30)


def settings_that_wait(folder):
    (folder / "settings.json").unlink()
    os.mkfifo(folder / "settings.json")


def huge_curves(folder):
    (folder / "x.curves.jsonl").touch()
    os.truncate(folder / "x.curves.jsonl", 8 * 2**30)


def a_problem_that_waits(folder):
    problem = folder.parent / "problem"
    problem.mkdir()
    os.mkfifo(problem / "problem.toml")
    known = json.loads((folder / "settings.json").read_text())
    (folder / "settings.json").write_text(json.dumps({**known, "problem": str(problem)}))


BOMBS: dict[str, Callable[[Path], None]] = {
    made.__name__: made
    for made in (
        *(bomb, bomb_against_another, texts_in_a_circle, one_text_again_and_again),
        *(rows_without_end, computed_columns, deep_rows, long_amounts, deep_checkpoints),
        *(steps_that_wait, huge_settings, settings_that_wait, huge_curves, a_problem_that_waits),
    )
}
ALL = "trace report compare graph resume"
REFUSING = {
    "bomb": "report compare resume",
    "bomb_against_another": "report compare resume",
    "texts_in_a_circle": "report compare resume",
    "one_text_again_and_again": "report resume",
    "rows_without_end": ALL,
    "computed_columns": ALL,
    "deep_rows": ALL,
    "long_amounts": ALL,
    "deep_checkpoints": "resume",
    "steps_that_wait": "resume",
    "an_iteration_far_away": "",
    "spent_is_no_number": "",
    "huge_settings": ALL,
    "settings_that_wait": ALL,
    "huge_curves": "",
    "a_problem_that_waits": "resume",
}
"""The commands that need what a bomb is in, and say so; the others do what they always do."""


def end_of_each(folder, output):
    """Write how each command ends, and how much memory all have held, in a process of its own."""
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_BYTES, ADDRESS_BYTES))
    found: dict[str, object] = {}
    for words in COMMANDS:
        result = CliRunner().invoke(app, [*words, folder])
        error = "" if isinstance(result.exception, SystemExit | None) else repr(result.exception)
        found[words[0]] = [result.exit_code, result.output[:2000], error]
    found["held"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    Path(output).write_text(json.dumps(found))


@pytest.mark.parametrize("made", BOMBS)
def test_a_bomb_costs_little_memory_and_is_reported_in_one_line(finished, tmp_path, made):
    folder, output = tmp_path / "foreign", tmp_path / "output.json"
    shutil.copytree(finished, folder)
    BOMBS[made](folder)
    process = PROCESSES.Process(target=end_of_each, args=(str(folder), str(output)))
    process.start()
    process.join(PATIENCE_SECONDS)
    assert process.exitcode == 0
    ends = json.loads(output.read_text())
    assert ends.pop("held") < HELD_BYTES
    assert [end for end in ends.values() if end[2]] == []
    assert {name for name, (code, *_) in ends.items() if code} == set(REFUSING[made].split()), ends
