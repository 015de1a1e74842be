"""A run that ends when another gain within its budget has become too unlikely."""

from decimal import Decimal
from functools import cache
from itertools import count

import pytest
from fakes import IDEAS, is_guide_prompt, rewrite
from langgraph.checkpoint.memory import InMemorySaver
from toy_graph import THREAD, discovery, rows_of, run_until, scripted, spent_by

from costada.controller.constants import Constants
from costada.controller.credit import Balance
from costada.controller.step import chance_of_gain
from costada.graph.routes import can_resume
from costada.store.purse import Purse
from costada.store.run_store import RunStore


def rising_until(step):
    """A model whose programs improve for a while and then never again."""
    numbers = count()

    def answer(prompt):
        if is_guide_prompt(prompt):
            return IDEAS
        number = next(numbers)
        return rewrite(0.2 + number / 1000 if number < step else 0.05 + number / 10_000)

    return scripted(answer)


def run_flat(threshold, *, store, budget=0.15, **options):
    return discovery(
        rising_until(5), budget=budget, store=store, stop_when_flat=threshold, **options
    ).invoke({})


@cache
def stopped():
    """What a run with a threshold returns, and its rows."""
    store = RunStore()
    return run_flat(0.4, store=store), rows_of(store)


@pytest.mark.parametrize("parallel", [1, 3])
def test_a_run_stops_at_the_first_step_after_which_a_gain_is_too_unlikely(parallel):
    store = RunStore()
    found = run_flat(0.4, store=store, parallel=parallel, order="launch")
    assert found["stop_reason"] == "flat"
    assert 0.0 < found["spent"] < 0.15
    gained_at, chances = 0.0, []
    for row in rows_of(store):
        gained_at = row["spent"] if row["global_gain"] > 1e-6 else gained_at
        balance = Balance(0.15, row["spent"])
        chances.append(chance_of_gain(balance, gained_at, row["iteration"], Constants()))
    below = [place for place, each in enumerate(chances) if each < 0.4]
    events = [place for place, row in enumerate(rows_of(store)) if "flat" in row["events"]]
    assert events[0] == below[0]
    assert len(chances) - 1 - below[0] < parallel


def test_without_a_threshold_the_same_run_spends_its_budget():
    store = RunStore()
    assert run_flat(None, store=store)["stop_reason"] == "budget"
    whole, (_, part) = rows_of(store), stopped()
    assert len(part) < len(whole)
    assert part[:-1] == whole[: len(part) - 1]
    assert part[-1]["events"] == [*whole[len(part) - 1]["events"], "flat"]


def test_what_is_left_goes_back_to_the_purse():
    purse, store = Purse(1.0), RunStore()
    run_flat(0.4, store=store, purse=purse)
    (account,) = [each for each in purse.accounts() if each.budget == Decimal("0.15")]
    assert account.is_closed
    assert purse.remaining == Decimal(1) - spent_by(store)


def test_a_run_that_is_continued_stops_where_the_uninterrupted_one_does():
    halves = RunStore()
    graph = discovery(
        rising_until(5), budget=0.15, store=halves, saver=InMemorySaver(), stop_when_flat=0.4
    )
    run_until(graph, THREAD, 9)
    assert graph.invoke(None, THREAD)["stop_reason"] == "flat"
    assert rows_of(halves) == stopped()[1]


def test_a_threshold_for_the_rest_of_a_run_knows_the_gains_before_it():
    halves, saver = RunStore(), InMemorySaver()
    model = rising_until(5)
    run_until(discovery(model, budget=0.15, store=halves, saver=saver), THREAD, 6)
    graph = discovery(model, budget=0.15, store=halves, saver=saver, stop_when_flat=0.4)
    assert graph.invoke(None, THREAD)["stop_reason"] == "flat"
    assert rows_of(halves) == stopped()[1]


def test_a_run_that_stopped_goes_on_only_with_a_higher_budget():
    found, _ = stopped()
    assert not can_resume(found, 0.15, 1000)
    assert can_resume(found, 0.8, 1000)
