"""A run file keeps the checkpoints that a resume needs, and not many more."""

import pytest
from langgraph.checkpoint.base import ERROR, INTERRUPT, RESUME, empty_checkpoint
from store_backends import SHARED

from costada.store.checkpoints import KEPT_CHECKPOINTS, PRUNING_INTERVAL, SEARCH_RECORDS

SEARCH = {name: ["record", {"attempt": {"number": 0}}] for name in SEARCH_RECORDS}
"""State of a search whose step has asked nothing yet."""


def config(thread, checkpoint=None):
    place = {"thread_id": thread, "checkpoint_ns": ""}
    return {"configurable": {**place, **({"checkpoint_id": checkpoint} if checkpoint else {})}}


def save(saver, numbers, thread="1"):
    for number in numbers:
        name = f"{number:05}"
        saver.put(config(thread), {**empty_checkpoint(), "id": name}, {"step": number}, {})


def saved(saver, thread="1"):
    return [int(each.checkpoint["id"]) for each in saver.list(config(thread))]


pytestmark = pytest.mark.parametrize("address", SHARED, indirect=True)


@pytest.fixture
def saver(open_saver):
    return open_saver()


def test_the_latest_checkpoints_are_always_there_and_the_file_stays_small(saver):
    for number in range(1, 3 * PRUNING_INTERVAL):
        save(saver, [number])
        kept = saved(saver)
        assert kept[:KEPT_CHECKPOINTS] == list(range(number, 0, -1))[:KEPT_CHECKPOINTS]
        assert len(kept) < KEPT_CHECKPOINTS + PRUNING_INTERVAL


def test_a_saver_that_is_opened_again_prunes_what_the_last_one_left(saver, open_saver):
    save(saver, range(60))
    again = open_saver()
    save(again, [60])
    assert len(saved(again)) == KEPT_CHECKPOINTS


def test_all_checkpoints_stay_when_the_history_is_kept(open_saver):
    saver = open_saver(keep_history=True)
    save(saver, range(200))
    saver.prune_thread(config("1"))
    assert len(saved(saver)) == 200


def test_the_latest_checkpoint_is_the_one_written_last_whatever_its_id(saver):
    save(saver, [5, 3, 9, 4])
    assert saver.get_tuple(config("1")).checkpoint["id"] == "00004"
    save(saver, [9])
    assert saved(saver) == [9, 4, 3, 5]
    before = [int(each.checkpoint["id"]) for each in saver.list(None, before=config("1", "00004"))]
    assert before == [3, 5]


def values_of(saver, name):
    return saver.get_tuple(config("1", name)).checkpoint["channel_values"]


def test_a_value_that_was_new_in_a_checkpoint_that_was_held_back_is_not_lost(saver):
    held = {
        **empty_checkpoint(),
        "id": "00002",
        "channel_values": {**SEARCH, "iterations": 1, "list": [1, 2]},
        "channel_versions": {**dict.fromkeys(SEARCH, "1"), "iterations": "1", "list": "2"},
        "updated_channels": ["list"],
    }
    saver.put(config("1"), held, {}, {"list": "2"})
    end = {
        **held,
        "id": "00003",
        "channel_values": {**SEARCH, "iterations": 2, "list": [1, 2]},
        "channel_versions": {**held["channel_versions"], "iterations": "3"},
        "updated_channels": ["iterations"],
    }
    saver.put(config("1"), end, {}, {"iterations": "3"})
    assert values_of(saver, "00003") == {**SEARCH, "iterations": 2, "list": [1, 2]}
    assert saved(saver) == [3]


def test_values_that_a_kept_checkpoint_needs_stay_when_others_are_pruned(saver):
    for number in range(100):
        saver.put(
            config("1"),
            {
                **empty_checkpoint(),
                "id": f"{number:05}",
                "channel_values": {"old": ["first"], "new": [number]},
                "channel_versions": {"old": "0", "new": f"{number}"},
            },
            {},
            {"new": f"{number}"},
        )
    saver.prune_thread(config("1"))
    assert values_of(saver, "00099") == {"old": ["first"], "new": [99]}
    assert values_of(saver, "00084") == {"old": ["first"], "new": [84]}
    assert len(saved(saver)) == KEPT_CHECKPOINTS


def test_pruning_one_thread_leaves_the_others_alone(saver):
    save(saver, range(30), thread="other")
    save(saver, range(30))
    saver.prune_thread(config("1"))
    assert len(saved(saver)) == KEPT_CHECKPOINTS
    assert len(saved(saver, "other")) == 30


def test_threads_that_take_turns_are_all_pruned(saver):
    for number in range(200):
        save(saver, [number], thread="1")
        save(saver, [number], thread="2")
    for thread in ("1", "2"):
        assert len(saved(saver, thread)) < KEPT_CHECKPOINTS + PRUNING_INTERVAL


def test_writes_go_with_their_checkpoint(saver):
    save(saver, range(40))
    for number in range(40):
        saver.put_writes(config("1", f"{number:05}"), [(ERROR, "fault")], "task")
    saver.prune_thread(config("1"))
    found = [each.pending_writes for each in saver.list(config("1"))]
    assert found == [[("task", ERROR, "fault")]] * KEPT_CHECKPOINTS
    save(saver, [1])
    assert saver.get_tuple(config("1", "00001")).pending_writes == []


@pytest.mark.parametrize("channel", [ERROR, INTERRUPT, RESUME])
def test_what_a_resume_must_know_before_the_next_checkpoint_is_saved_at_once(saver, channel):
    save(saver, [1])
    saver.put_writes(config("1", "00001"), [(channel, "this"), ("step", 3)], "task")
    assert ("task", channel, "this") in saver.get_tuple(config("1")).pending_writes


def test_what_a_finished_node_of_a_search_returned_is_saved_with_the_next_checkpoint_only(saver):
    begun = {**empty_checkpoint(), "id": "00001", "channel_values": SEARCH}
    saver.put(config("1"), begun, {}, {})
    saver.put_writes(config("1", "00001"), [("step", 3), ("best", "1.1")], "task")
    assert saver.get_tuple(config("1")).pending_writes == []
