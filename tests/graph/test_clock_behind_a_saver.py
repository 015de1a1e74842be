"""Savers that take the checkpoint with the latest time for the newest, and a clock set back."""

import json
from inspect import getsource
from pathlib import Path

import pytest
from langgraph.checkpoint.base import empty_checkpoint
from shifted_clock import told_at

from costada.graph.node_execution import await_clock, seconds_after


def run(path: str, given: object, last: int) -> tuple[str, int, int, float]:
    from langgraph.checkpoint.sqlite import SqliteSaver
    from toy_graph import graph_of, run_until

    thread, message = {"configurable": {"thread_id": "theirs"}}, ""
    with SqliteSaver.from_conn_string(path) as saver:
        graph, model = graph_of(checkpointer=saver, budget=0.03)
        try:
            if last:
                run_until(graph, thread, last)
            else:
                graph.invoke(given, thread)
        except ValueError as error:
            message = str(error)
        state = graph.get_state(thread).values
        return message, len(model.prompts), state["iterations"], state["spent"]


RUN = f"""
import json, sys
{getsource(run)}
print(json.dumps([run(sys.argv[1], *each) for each in json.loads(sys.argv[2])]))
"""


def ran(
    path: Path, shift: int, given: list[tuple[object, int]]
) -> list[tuple[str, int, int, float]]:
    """What `run` returns for each input and last iteration, one after the other."""
    return json.loads(told_at(shift, RUN, path, json.dumps(given)))


@pytest.mark.process
def test_a_clock_that_ran_back_is_reported_before_anything_is_spent(tmp_path: Path) -> None:
    """Whether the run is resumed or invoked again."""
    path = tmp_path / "theirs.sqlite"
    _, num_calls, iterations, spent = run(str(tmp_path / "whole.sqlite"), {}, 0)
    _, before, _, _ = run(str(path), None, 4)
    for message, calls, _, _ in ran(path, -120, [(None, 0), ({}, 0)]):
        assert "clock: " in message
        assert "seconds before the newest checkpoint of thread 'theirs'" in message
        assert calls == 0
    message, after, *end = run(str(path), None, 0)
    assert (message, before + after, end) == ("", num_calls, [iterations, spent])


@pytest.mark.process
def test_a_run_that_began_by_a_clock_that_was_ahead_is_reported_alike(tmp_path: Path) -> None:
    path = tmp_path / "theirs.sqlite"
    ran(path, 3600, [(None, 2)])
    message, calls, _, _ = run(str(path), None, 0)
    assert "clock: " in message
    assert calls == 0


def test_ids_tell_how_far_a_clock_is_behind() -> None:
    first, second = "1f0c7a00-0000-6000-8000-000000000000", "1f0c7a01-0000-6000-8000-000000000000"
    assert seconds_after(first, second) == pytest.approx((1 << 28) / 1e7)
    assert seconds_after(second, first) == -seconds_after(first, second)


def test_a_clock_that_is_a_moment_behind_is_waited_for() -> None:
    newest = empty_checkpoint()["id"]
    await_clock(newest, "1")
    assert empty_checkpoint()["id"] > newest
