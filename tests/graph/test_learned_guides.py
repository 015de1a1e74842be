"""A run that learns whether guides pay, in the graph."""

from functools import cache

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from toy_graph import THREAD, discovery, resumed, rows_of, run_until

from costada.controller.constants import Constants
from costada.store.run_store import RunStore

LEARNED = Constants(guides="learned", reference_cost=0.002)
BUDGET = 0.15
SEED = 3


def search(**options):
    return discovery(budget=BUDGET, constants=LEARNED, seed=SEED, order="launch", **options)


@cache
def whole_run(parallel=1):
    store = RunStore()
    search(store=store, parallel=parallel).invoke({})
    return rows_of(store)


@pytest.mark.parametrize("parallel", [1, 3])
def test_a_run_that_is_interrupted_and_resumed_decides_on_guides_alike(parallel):
    store, saver = RunStore(), InMemorySaver()
    rows = whole_run(parallel)
    tossed = [row["iteration"] for row in rows if "guide_chance" in row]
    given, begun = {}, []
    for iteration in tossed[:4]:
        graph = search(store=store, saver=saver, parallel=parallel)
        begun += run_until(graph, THREAD, iteration, given)
        given = None
    resumed(search(store=store, saver=saver, parallel=parallel))
    assert rows_of(store) == rows


def test_some_tosses_buy_a_guide_and_others_do_not():
    tossed = [row for row in whole_run() if "guide_chance" in row]
    bought = [any(each.startswith("guide_scheduled") for each in row["events"]) for row in tossed]
    assert len({row["guide_chance"] for row in tossed}) > 2
    assert {*bought} == {True, False}


def test_a_guide_is_scheduled_only_where_it_was_tossed_and_the_budget_has_room():
    for row in whole_run():
        is_scheduled = any(each.startswith("guide_scheduled") for each in row["events"])
        assert not is_scheduled or "guide_chance" in row
        assert "guide_chance" not in row or BUDGET - row["spent"] >= 3 * LEARNED.reference_cost
