"""Runs that are killed while users put ideas and programs into them."""

import json
import shutil
import sqlite3
import time
from contextlib import closing
from threading import Thread

import pytest
from crash_runs import check_against_bill, kill_often, record_of, run_to_end, serve
from fakes import program

from costada.store.run_store import RunStore

pytestmark = pytest.mark.process

NUM_KILLS = 3
IDEAS = ("try hexagonal rows", "begin in the corners", "sort before placing")
PROGRAMS = (program(0.62), program(5.0))
"""A valid program, and one that the evaluator refuses."""


@pytest.fixture
def provided():
    server, provider = serve()
    with server:
        yield server, provider


def put_all(store):
    run_id = store.run_ids()[-1]
    for idea in IDEAS:
        store.inputs.put_idea(run_id, idea)
    for each in PROGRAMS:
        store.inputs.put_program(run_id, each)


def steered_rows(record):
    rows = [json.loads(line) for line in record.steps.splitlines()]
    return [row for row in rows if "steered" in row]


def tickets_of(folder):
    """The ticket that took each input, by its number, as the file says."""
    with closing(sqlite3.connect(folder / "run.sqlite")) as connection:
        return dict(connection.execute("SELECT number, ticket FROM costada_input"))


def check_inputs(folder, record):
    """Check that each input was taken by one step, which alone asked for it, and paid as it says.

    An idea was sent in the requests of its own step only, and a program in none.
    """
    tickets = tickets_of(folder)
    rows = {row["steered"]["number"]: row for row in steered_rows(record)}
    assert {number: row["ticket"] for number, row in rows.items()} == tickets
    assert len(set(tickets.values())) == len(IDEAS) + len(PROGRAMS)
    assert len(steered_rows(record)) == len(rows)
    for number, row in rows.items():
        calls = [call for call in record.calls if call.ticket == row["ticket"]]
        if row["steered"]["kind"] == "program":
            assert (calls, row["step_cost"], row["attempts"]) == ([], 0.0, 0)
            continue
        idea = f"Idea: {IDEAS[number - 1]}\n"
        asked = [call for call in record.calls if idea in call.prompt]
        assert asked == [call for call in calls if call.role != "guide"]
        assert asked


@pytest.mark.parametrize(("draw", "parallel"), [(1, 1), (3, 4)])
def test_a_killed_run_with_inputs_ends_as_an_uninterrupted_one(tmp_path, provided, draw, parallel):
    server, provider = provided
    options = {"lost_calls": "ignore", "parallel": parallel, "order": "launch", "gateway": False}
    run_to_end(tmp_path / "whole", server.url, {**options, "max_iterations": 3})
    with RunStore(tmp_path / "whole/run.sqlite") as store:
        put_all(store)
    shutil.copytree(tmp_path / "whole", tmp_path / "killed")
    run_to_end(tmp_path / "whole", server.url, options)
    provider.forget()
    hits = kill_often(tmp_path / "killed", server, provider, draw, NUM_KILLS, options)
    whole, killed = record_of(tmp_path / "whole"), record_of(tmp_path / "killed")
    assert hits >= NUM_KILLS // 2
    check_against_bill(killed, provider)
    assert killed.spent == sum(call.cost for call in killed.done)
    check_inputs(tmp_path / "killed", killed)
    assert killed.result == whole.result


def test_inputs_that_come_while_a_run_is_killed_are_taken_once_and_the_ledger_is_exact(
    tmp_path, provided
):
    server, provider = provided
    folder = tmp_path / "run"
    options = {"lost_calls": "ignore", "parallel": 4, "gateway": False}

    def steer():
        steps = folder / "steps.jsonl"
        while not (steps.exists() and steps.read_text()):
            time.sleep(0.01)
        with RunStore(folder / "run.sqlite") as store:
            (run_id,) = store.run_ids()
            for idea in IDEAS:
                store.inputs.put_idea(run_id, idea)
                time.sleep(0.05)
            for each in PROGRAMS:
                store.inputs.put_program(run_id, each)
                time.sleep(0.05)

    user = Thread(target=steer)
    user.start()
    hits = kill_often(folder, server, provider, 5, NUM_KILLS, options)
    user.join()
    run_to_end(folder, server.url, {**options, "budget": 0.2})
    record = record_of(folder)
    assert hits >= NUM_KILLS // 2
    check_against_bill(record, provider)
    assert record.spent == sum(call.cost for call in record.done)
    check_inputs(folder, record)
