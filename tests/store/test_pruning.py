"""A run file keeps the checkpoints that a resume needs, and not many more."""

from contextlib import closing

import pytest
from langgraph.checkpoint.base import ERROR, INTERRUPT, RESUME, empty_checkpoint

from costada.store.checkpoints import KEPT_CHECKPOINTS, PRUNING_INTERVAL, RunSaver


def config(thread, checkpoint=None):
    place = {"thread_id": thread, "checkpoint_ns": ""}
    return {"configurable": {**place, **({"checkpoint_id": checkpoint} if checkpoint else {})}}


def save(saver, numbers, thread="1"):
    for number in numbers:
        name = f"{number:05}"
        saver.put(config(thread), {**empty_checkpoint(), "id": name}, {"step": number}, {})


def saved(saver, thread="1"):
    return [int(each.checkpoint["id"]) for each in saver.list(config(thread))]


@pytest.fixture
def saver(tmp_path):
    with closing(RunSaver(tmp_path / "run.sqlite")) as opened:
        yield opened


def test_the_latest_checkpoints_are_always_there_and_the_file_stays_small(saver):
    for number in range(1, 400):
        save(saver, [number])
        kept = saved(saver)
        assert kept[:KEPT_CHECKPOINTS] == list(range(number, 0, -1))[:KEPT_CHECKPOINTS]
        assert len(kept) < KEPT_CHECKPOINTS + PRUNING_INTERVAL


def test_a_saver_that_is_opened_again_prunes_what_the_last_one_left(saver, tmp_path):
    save(saver, range(60))
    with closing(RunSaver(tmp_path / "run.sqlite")) as again:
        save(again, [60])
        assert len(saved(again)) == KEPT_CHECKPOINTS


def test_all_checkpoints_stay_when_the_history_is_kept(tmp_path):
    with closing(RunSaver(tmp_path / "run.sqlite", keep_history=True)) as saver:
        save(saver, range(200))
        saver.prune_thread(config("1"))
        assert len(saved(saver)) == 200


def test_pruning_one_thread_leaves_the_others_alone(saver):
    save(saver, range(30), thread="other")
    save(saver, range(30))
    saver.prune_thread(config("1"))
    assert len(saved(saver)) == KEPT_CHECKPOINTS
    assert len(saved(saver, "other")) == 30


def test_writes_go_with_their_checkpoint(saver):
    save(saver, range(40))
    for number in range(40):
        saver.put_writes(config("1", f"{number:05}"), [(ERROR, "fault")], "task")
    saver.prune_thread(config("1"))
    ((count, first),) = saver.conn.execute("SELECT COUNT(*), MIN(checkpoint_id) FROM writes")
    assert (count, first) == (KEPT_CHECKPOINTS, "00024")
    assert saver.get_tuple(config("1")).pending_writes == [("task", ERROR, "fault")]


@pytest.mark.parametrize("channel", [ERROR, INTERRUPT, RESUME])
def test_what_a_resume_must_know_before_the_next_checkpoint_is_saved_at_once(saver, channel):
    save(saver, [1])
    saver.put_writes(config("1", "00001"), [(channel, "this"), ("step", 3)], "task")
    assert ("task", channel, "this") in saver.get_tuple(config("1")).pending_writes


def test_what_a_finished_node_returned_is_saved_with_the_next_checkpoint_only(saver):
    save(saver, [1])
    saver.put_writes(config("1", "00001"), [("step", 3), ("best", "1.1")], "task")
    assert saver.get_tuple(config("1")).pending_writes == []
