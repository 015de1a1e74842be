from costada.store.run_store import Cut, RunStore, copy_file, cut_back


def test_seconds_are_kept_by_iteration_and_summed_by_node(tmp_path):
    with RunStore(tmp_path / "run.sqlite") as store:
        store.timing.put("a", 1, {"generate": 2.0000004, "evaluate": 0.5})
        store.timing.put("a", 2, {"generate": 1.0, "guide": 4.0})
        store.timing.put("b", 1, {"generate": 9.0})
    with RunStore(tmp_path / "run.sqlite", is_read_only=True) as store:
        assert store.timing.steps("a") == [
            (1, {"generate": 2.0, "evaluate": 0.5}),
            (2, {"generate": 1.0, "guide": 4.0}),
        ]
        assert store.timing.by_node("a") == {"generate": 3.0, "evaluate": 0.5, "guide": 4.0}


def test_a_step_that_is_executed_again_replaces_its_own_row():
    store = RunStore()
    store.timing.put("a", 1, {"evaluate": 5.0})
    store.timing.put("a", 1, {"evaluate": 0.25})
    assert store.timing.by_node("a") == {"evaluate": 0.25}


def test_a_copy_of_a_run_takes_over_the_seconds_of_its_steps(tmp_path):
    original, copy = tmp_path / "run.sqlite", tmp_path / "copy.sqlite"
    with RunStore(original) as store:
        for iteration in (1, 2, 3):
            store.timing.put("a", iteration, {"evaluate": float(iteration)})
    copy_file(original, copy)
    cut_back(copy, Cut("a", iteration=2, archive_seq=2), "fork")
    with RunStore(copy) as store:
        assert store.timing.steps("fork") == [(1, {"evaluate": 1.0}), (2, {"evaluate": 2.0})]
        assert store.timing.steps("a") == []
