"""Savers that take the checkpoint with the latest time for the newest, and a clock set back."""

import json
from inspect import getsource
from pathlib import Path

import pytest
from langgraph.checkpoint.base import empty_checkpoint
from shifted_clock import told_at

from costada.graph.node_execution import await_clock, seconds_after


def run(path: str, given: object, last: int) -> list[object]:
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
        return [message, len(model.prompts), state["iterations"], state["spent"]]


RUN = f"""
import json, sys
{getsource(run)}
print(json.dumps(run(sys.argv[1], json.loads(sys.argv[2]), int(sys.argv[3]))))
"""


def ran(path: Path, shift: int, given: object = None, last: int = 0) -> tuple[str, int, int, float]:
    if shift:
        found = json.loads(told_at(shift, RUN, path, json.dumps(given), last))
    else:
        found = run(str(path), given, last)
    message, calls, iterations, spent = found
    return message, calls, iterations, spent


@pytest.mark.process
@pytest.mark.parametrize("given", [None, {}], ids=["resumed", "invoked again"])
def test_a_clock_that_ran_back_is_reported_before_anything_is_spent(
    tmp_path: Path, given: object
) -> None:
    path = tmp_path / "theirs.sqlite"
    _, num_calls, iterations, spent = ran(tmp_path / "whole.sqlite", 0, {})
    _, before, _, _ = ran(path, 0, last=4)
    message, calls, _, _ = ran(path, -120, given)
    assert "clock: " in message
    assert "seconds before the newest checkpoint of thread 'theirs'" in message
    assert calls == 0
    message, after, *end = ran(path, 0)
    assert (message, before + after, end) == ("", num_calls, [iterations, spent])


@pytest.mark.process
def test_a_run_that_began_by_a_clock_that_was_ahead_is_reported_alike(tmp_path: Path) -> None:
    path = tmp_path / "theirs.sqlite"
    ran(path, 3600, last=2)
    message, calls, _, _ = ran(path, 0)
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
