"""Runs with an experiment: what tosses switch, what rows say, and that a resume repeats them."""

from collections import Counter
from functools import cache

import pytest
from fakes import IDEAS, ScriptedModel, hashed_answer, is_guide_prompt, program, rewrite
from langgraph.checkpoint.memory import InMemorySaver
from menu_provider import several
from toy_graph import (
    THREAD,
    calls_of,
    discovery,
    resumed,
    rows_of,
    run_until,
    scripted,
    trace,
)

from costada.controller.constants import Constants
from costada.controller.experiment import PROPENSITIES, toss
from costada.models.menu import MenuModel
from costada.store.run_store import RunStore
from costada.values.usage import Price

STEPS, SEED = 24, 3


def flat(prompt):
    """Programs that never improve, so that guides are due again and again."""
    return IDEAS if is_guide_prompt(prompt) else rewrite(0.05)


def menu():
    prices = {"large": 9, "middle": 3, "small": 1}
    return [
        MenuModel(name, ScriptedModel(answer=hashed_answer), Price(price, price))
        for name, price in prices.items()
    ]


def graph_of(experiment, **options):
    if experiment == "router":
        return several(
            menu(), **{"budget": 9.0, "iterations": STEPS, "experiment": experiment, **options}
        )
    answer = flat if experiment == "guides" else hashed_answer
    given = {"budget": 9.0, "iterations": STEPS, "order": "launch", "experiment": experiment}
    return discovery(scripted(answer), **{**given, **options})


@cache
def finished(experiment, parallel=1):
    """The store of an uninterrupted run, and its rows."""
    store = RunStore()
    return store, trace(graph_of(experiment, store=store, parallel=parallel, seed=SEED))


CASES = [(experiment, parallel) for experiment in PROPENSITIES for parallel in (1, 8)]


@pytest.mark.parametrize(("experiment", "parallel"), CASES)
def test_rows_hold_the_tosses_that_follow_from_seed_and_ticket(experiment, parallel):
    _, rows = finished(experiment, parallel)
    tossed = [row for row in rows if row["toss"] is not None]
    assert tossed
    for row in tossed:
        made = toss(experiment, SEED, row["toss"])
        assert (row["arm"], row["arm_probability"]) == (made.arm, made.probability)
        distance = row["ticket"] - row["toss"]
        assert 1 <= distance <= 5 + parallel if experiment == "guides" else distance == 0
    for row in rows:
        if row["toss"] is None:
            assert (row["arm"], row["arm_probability"]) == (None, None)


@pytest.mark.parametrize(("experiment", "parallel"), CASES)
def test_a_run_that_is_stopped_and_resumed_repeats_its_tosses(experiment, parallel):
    _, whole = finished(experiment, parallel)
    options = {"parallel": parallel, "seed": SEED, "store": RunStore(), "saver": InMemorySaver()}
    middle = next(row["iteration"] for row in whole if row["toss"]) + 1
    begun = run_until(graph_of(experiment, **options), THREAD, middle)
    assert [*begun, *resumed(graph_of(experiment, **options))] == whole


def test_a_guide_is_bought_or_declined_as_the_toss_says():
    """The first step of a toss for a guide follows one; no step of a toss against it does."""
    store, rows = finished("guides")
    guides = {call.ticket for call in calls_of(store) if call.role == "guide"}
    tosses = {row["toss"]: row["arm"] for row in rows if row["toss"]}
    assert set(tosses.values()) == {"guide", "no guide"}
    for number, arm in tosses.items():
        own = [row["ticket"] for row in rows if row["toss"] == number]
        assert own == list(range(number + 1, number + 1 + len(own)))
        assert guides & set(own) == ({number + 1} if arm == "guide" else set())
        is_scheduled = any("guide_scheduled" in event for event in rows[number - 1]["events"])
        assert is_scheduled == (arm == "guide")
        assert ("guide_declined" in rows[number - 1]["events"]) == (arm == "no guide")


def test_patience_starts_again_after_a_declined_guide():
    _, rows = finished("guides")
    declined = [n for n, row in enumerate(rows[:-1]) if "guide_declined" in row["events"]]
    assert declined
    for number in declined:
        assert "backoff" in rows[number + 1]["events"]
        assert rows[number + 1]["stagnation"] == 0


def test_without_an_experiment_rows_have_no_arm():
    store = RunStore()
    discovery(scripted(), iterations=3, store=store).invoke({})
    assert not any({"toss", "arm", "arm_probability"} & row.keys() for row in rows_of(store))


def test_routed_steps_go_by_the_rule_and_uniform_ones_by_chance():
    store = RunStore()
    graph_of("router", store=store, router="fixed:small", method="uniform").invoke({})
    chosen = {
        arm: Counter(name for row in rows_of(store) if row["arm"] == arm for name in row["models"])
        for arm in PROPENSITIES["router"]
    }
    assert chosen["routed"].keys() == {"small"}
    assert chosen["uniform"].keys() == {"small", "middle", "large"}


def test_a_program_of_a_user_belongs_to_no_toss():
    store, saver = RunStore(), InMemorySaver()
    options = {"store": store, "saver": saver, "iterations": 8}
    begun = run_until(graph_of("router", **options), THREAD, 2)
    store.inputs.put_program(store.run_ids()[-1], program(0.9))
    rest = resumed(graph_of("router", **options))
    (submitted,) = (row for row in rest if "steered" in row)
    assert (submitted["toss"], submitted["arm"]) == (None, None)
    assert all(row["toss"] for row in (*begun, *rest) if "steered" not in row)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"experiment": "router"}, "'router' with one model"),
        ({"experiment": "guides", "method": "best-of-n"}, "'best-of-n', which buys no guides"),
        ({"experiment": "calibration", "method": "uniform"}, "'uniform', which never divides"),
    ],
)
def test_a_graph_without_the_part_refuses_the_experiment(settings, message):
    with pytest.raises(ValueError, match=f"^experiment: got .*{message}"):
        discovery(scripted(), **settings)


def test_a_run_without_both_averages_cannot_begin_to_toss_for_calibration():
    options = {"saver": InMemorySaver(), "store": RunStore(), "iterations": 9}
    run_until(discovery(scripted(), **options), THREAD, 2)
    graph = discovery(scripted(), experiment="calibration", **options)
    with pytest.raises(ValueError, match=r"^experiment: got 'calibration' for a run that began"):
        graph.invoke(None, THREAD)


def test_credit_in_rows_is_divided_whatever_the_toss():
    store, constants = RunStore(), Constants(max_iterations=20)
    options = {"store": store, "constants": constants, "experiment": "calibration"}
    discovery(scripted(), budget=9.0, **options).invoke({})
    assert all(row["cost_divisor"] > 1 for row in rows_of(store))
