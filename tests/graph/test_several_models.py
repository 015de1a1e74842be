"""A run over several models: who is asked, who pays, and what the router learns."""

import time
from contextlib import suppress
from decimal import Decimal

import pytest
from billing_server import Refusal
from fakes import ScriptedModel, hashed_answer, rewrite, toy_problem
from langgraph.checkpoint.memory import InMemorySaver
from menu_provider import (
    DOLLARS,
    Refusing,
    answer,
    billed_by_model,
    ledger_by_model,
    menu_of,
    several,
)
from needed_plugins import needs_plugin
from toy_graph import (
    THREAD,
    calls_of,
    client,
    discovery,
    events_of,
    resumed,
    rows_of,
    run_until,
    scripted,
    spent_by,
    trace,
)

from costada.controller.constants import Constants
from costada.models.menu import MenuModel
from costada.models.providers import RetryPolicy
from costada.models.reply_content import estimated_usage
from costada.nodes.calls.health import MAX_UNANSWERED
from costada.store.call_log import CallFilter
from costada.store.run_store import RunStore
from costada.values.usage import Price

NO_WAIT = RetryPolicy(retry_wait=0.001, longest_wait=0.001)
METHODS = ("costada", "adaevolve", "uniform", "best-of-n", "costada-thompson")
EVOX = (needs_plugin("evox"), pytest.mark.process)


def told(row):
    """The dollars that the router was told of each model, by a trace row."""
    return {each["name"]: each["dollars"] for each in row["router"]}


@pytest.mark.parametrize(
    "settings",
    [
        *({"method": method, "parallel": 1 + 3 * (n % 2)} for n, method in enumerate(METHODS)),
        pytest.param({"method": "evox", "parallel": 4}, marks=EVOX),
        {"generator": "agent", "parallel": 1},
        {"generator": "agent", "parallel": 4},
        {"router": "round-robin", "parallel": 4},
    ],
    ids=lambda settings: "-".join(map(str, settings.values())),
)
def test_bill_ledger_and_rows_of_each_model_agree_to_the_last_digit(server, settings):
    server.default, store = answer, RunStore()
    graph = several(menu_of(server), store=store, iterations=9, **settings)
    found = graph.invoke({})
    bill, rows = billed_by_model(server), rows_of(store)
    assert ledger_by_model(store) == bill
    assert spent_by(store) == sum(bill.values())
    assert found["spent"] == float(sum(bill.values()))
    attempts = ledger_by_model(store, has_guides=False)
    assert told(rows[-1]) == {name: float(cost) for name, cost in attempts.items()}
    assert sum(each["tries"] for each in rows[-1]["router"]) == sum(row["attempts"] for row in rows)
    assert all(len(row["models"]) == row["attempts"] for row in rows)


def test_the_calls_of_an_attempt_go_to_the_model_that_its_row_names(server):
    server.default, store = answer, RunStore()
    several(menu_of(server), store=store, router="round-robin", budget=1.0).invoke({})
    named = {
        (row["ticket"], attempt): name
        for row in rows_of(store)
        for attempt, name in enumerate(row["models"], 1)
    }
    made = {
        (call.ticket, call.attempt): (call.entry, call.model)
        for call in calls_of(store)
        if call.role != "guide"
    }
    assert made == {key: (name, name) for key, name in named.items()}
    assert set(named.values()) == set(DOLLARS)
    assert {call.entry for call in calls_of(store) if call.role == "guide"} == {"small"}


def test_a_retry_may_go_to_another_model():
    def failing(prompt):
        return "no program"

    store = RunStore()
    menu = [
        MenuModel("small", ScriptedModel(answer=failing), Price(1, 1)),
        MenuModel("large", ScriptedModel(answer=lambda prompt: rewrite(0.5)), Price(5, 5)),
    ]
    several(menu, store=store, router="cascade", budget=1, iterations=2, method="uniform").invoke(
        {}
    )
    assert [row["models"] for row in rows_of(store)] == [["small", "large"]] * 2
    assert [each["tries"] for each in rows_of(store)[-1]["router"]] == [2, 2]
    assert [each["dollars"] for each in rows_of(store)[-1]["router"]] == [0.003, 0.015]


def test_the_router_is_told_gains_over_the_parent():
    """0.1 to 0.5 without a reference: the first gain is the scale, so a third of full credit."""
    store, reached = RunStore(), RunStore()
    menu = [
        MenuModel("one", ScriptedModel(answer=lambda prompt: rewrite(0.5)), Price(1, 1)),
        MenuModel("two", ScriptedModel(answer=lambda prompt: "none"), Price(5, 5)),
    ]
    options = {"budget": 1.0, "iterations": 1, "method": "best-of-n"}
    several(menu, store=store, **options).invoke({})
    several(menu, store=reached, problem=toy_problem(reference=10.0), **options).invoke({})
    assert rows_of(store)[0]["router"][0]["credit"] == pytest.approx(1 / 3)
    # half of the distance of 0.9 to the reference is 0.45
    assert rows_of(reached)[0]["router"][0]["credit"] == pytest.approx(0.4 / 0.45)


@pytest.mark.parametrize(
    ("settings", "parallel"),
    [
        ({}, 1),
        ({}, 3),
        pytest.param({"method": "evox"}, 3, marks=EVOX),
        ({"generator": "agent"}, 1),
    ],
)
def test_a_run_that_is_stopped_and_resumed_chooses_as_an_uninterrupted_one(
    server, parallel, settings
):
    server.default = answer
    options = {"parallel": parallel, "iterations": 7, **settings}
    whole = trace(several(menu_of(server), **options))
    for iteration in (2, 5):
        store, saver = RunStore(), InMemorySaver()
        graph = several(menu_of(server), store=store, saver=saver, **options)
        begun = run_until(graph, THREAD, iteration)
        rest = resumed(several(menu_of(server), store=store, saver=saver, **options))
        assert [*begun, *rest] == whole


@pytest.mark.parametrize(
    ("refusal", "parallel"),
    [
        (Refusal(401), 1),
        (Refusal(402), 4),
        (Refusal(403), 1),
        (Refusal(404), 4),
        (Refusal(429, code="insufficient_quota"), 4),
        (Refusal(400), 1),
    ],
    ids=["key", "credit", "access", "name", "quota", "request"],
)
def test_a_model_that_refuses_is_disabled_and_costs_no_attempt(server, refusal, parallel):
    asked = []

    def reply(body):
        asked.append(body["model"])
        return refusal if body["model"] == "small" else answer(body)

    server.default, store = reply, RunStore()
    graph = several(menu_of(server), store=store, parallel=parallel, iterations=8)
    graph.invoke({})
    rows = rows_of(store)
    assert events_of(store).count("disabled:small") == 1
    assert 1 <= asked.count("small") <= parallel
    assert {name for row in rows for name in row["models"]} == {"middle", "large"}
    assert [each["is_disabled"] for each in rows[-1]["router"]] == [True, False, False]
    assert rows[-1]["router"][0]["tries"] == 0
    assert ledger_by_model(store) == billed_by_model(server)
    assert rows[0]["attempts"] == len(rows[0]["models"])
    assert {call.entry for call in calls_of(store) if call.role == "guide"} <= {"middle"}


@pytest.mark.parametrize(
    ("settings", "parallel"),
    [
        ({}, 1),
        ({}, 4),
        ({"generator": "agent"}, 4),
        pytest.param({"method": "evox"}, 1, marks=EVOX),
    ],
)
def test_of_four_models_one_is_enough(server, parallel, settings):
    server.default, store = Refusing(small=404, large=402), RunStore()
    dead = MenuModel("dead", client(server, "dead"), Price("0.5", "0.5"))
    server.default.statuses["dead"] = 401
    menu = [dead, *menu_of(server)]
    graph = several(menu, store=store, parallel=parallel, iterations=8, **settings)
    graph.invoke({})
    rows = rows_of(store)
    assert {name for row in rows for name in row["models"]} == {"middle"}
    assert sum(event.startswith("disabled:") for event in events_of(store)) == 3
    assert rows[0]["score"] is not None or rows[0]["attempts"] > 1
    assert spent_by(store) == billed_by_model(server)["middle"] > 0


@pytest.mark.parametrize("parallel", [1, 4])
def test_the_last_model_that_refuses_ends_the_run_and_is_asked_again_when_it_is_resumed(
    server, parallel
):
    server.default, store, saver = Refusing(small=402, middle=402, large=402), RunStore(), None
    saver = InMemorySaver()
    graph = several(menu_of(server), store=store, saver=saver, parallel=parallel)
    with pytest.raises(ValueError, match="status 402: add credit to the provider's account"):
        graph.invoke({}, THREAD)
    before = dict(server.default.asked)
    server.default.statuses.clear()
    for _ in range(1, parallel):  # each call that was in flight has got its refusal already
        with suppress(ValueError):
            graph.invoke(None, THREAD)
    graph.invoke(None, THREAD)
    asked = {name for name, times in server.default.asked.items() if times > before[name]}
    assert len(asked) == 1
    disabled = [each["name"] for each in rows_of(store)[-1]["router"] if each["is_disabled"]]
    assert sorted([*disabled, *asked]) == sorted(DOLLARS)


@pytest.mark.parametrize("parallel", [1, 3])
def test_what_is_disabled_stays_so_when_the_run_is_resumed(server, parallel):
    server.default, store, saver = Refusing(small=404), RunStore(), InMemorySaver()
    options = {"store": store, "saver": saver, "parallel": parallel}
    run_until(several(menu_of(server), **options), THREAD, 2)
    asked = server.default.asked["small"]
    server.default.statuses.clear()
    resumed(several(menu_of(server), **options))
    assert server.default.asked["small"] == asked
    assert rows_of(store)[-1]["router"][0]["is_disabled"]


def test_a_model_that_nobody_serves_is_disabled_by_its_own_requests():
    def unreachable(prompt):
        raise ConnectionRefusedError("nobody is there")

    store = RunStore()
    menu = [
        MenuModel("gone", ScriptedModel(answer=unreachable), Price("0.1", "0.1")),
        MenuModel("good", ScriptedModel(answer=hashed_answer), Price(1, 1)),
    ]
    several(menu, store=store, router="round-robin", iterations=8, retry_policy=NO_WAIT).invoke({})
    requests = [call for call in calls_of(store) if call.entry == "gone"]
    assert len(requests) == MAX_UNANSWERED
    assert events_of(store).count("disabled:gone") == 1
    assert rows_of(store)[-1]["spent"] == float(spent_by(store)) > 0


def test_guides_go_to_the_guide_model_where_there_is_one(server):
    server.default, store = answer, RunStore()
    guide = client(server, "middle")
    options = {"guide_price": Price("0.1", "0.4")}
    several(menu_of(server), store=store, guide_model=guide, **options).invoke({})
    guides = [call for call in calls_of(store) if call.role == "guide"]
    assert {(call.entry, call.model) for call in guides} == {("", "middle")}
    assert spent_by(store) == sum(billed_by_model(server).values())


def test_a_model_of_the_menu_can_be_the_guide_model(server):
    server.default, store = answer, RunStore()
    menu = menu_of(server)
    several(menu, store=store, guide_model=menu[1].model).invoke({})
    guides = [call for call in calls_of(store) if call.role == "guide"]
    assert {call.entry for call in guides} == {"middle"}
    assert ledger_by_model(store) == billed_by_model(server)


def reference_cost_of(**options):
    store = RunStore()
    menu = [
        MenuModel("small", scripted(), Price(1, 1)),
        MenuModel("large", scripted(), Price(5, 5)),
    ]
    several(menu, store=store, iterations=1, budget=9.0, **options).invoke({})
    return store.setup(store.run_ids()[-1]).settings["constants.reference_cost"]


def test_the_reference_cost_is_the_mean_expected_cost_unless_it_is_set():
    one = RunStore()
    model = scripted()
    discovery(model, store=one, price=Price(1, 1), iterations=1, method="best-of-n").invoke({})
    tokens = estimated_usage((toy_problem().task, model.prompts[0]), "").input_tokens
    # e_m = p x (tokens of the prompt + 5 programs of 1,640 + 5,300) for p = 1 and 5 per million
    expected = 3 * (tokens + 5 * 1640 + 5300) / 1e6
    assert float(reference_cost_of()) == pytest.approx(expected, rel=0.02)
    assert reference_cost_of(reference_cost=0.01) == "0.01"
    given = Constants(reference_cost=0.02, max_iterations=1)
    assert reference_cost_of(constants=given) == "0.02"


def test_one_model_of_a_menu_is_a_run_with_one_model(server):
    server.default, store, alone = answer, RunStore(), RunStore()
    (small,) = menu_of(server, "small")
    several([small], store=store).invoke({})
    discovery(
        small.model, store=alone, price=small.entry.price, budget=0.2, iterations=25, order="launch"
    ).invoke({})
    assert rows_of(store) == rows_of(alone)
    assert "models" not in rows_of(store)[0]


def test_models_that_cost_nothing_are_chosen_by_their_gains():
    store = RunStore()
    menu = [
        MenuModel("bad", ScriptedModel(answer=lambda prompt: "none"), Price(0, 0)),
        MenuModel("good", ScriptedModel(answer=hashed_answer), Price(0, 0)),
    ]
    several(menu, store=store, iterations=30).invoke({})
    tries = {each["name"]: each["tries"] for each in rows_of(store)[-1]["router"]}
    assert tries["good"] > tries["bad"] > 0
    assert spent_by(store) == 0


def test_a_run_is_not_continued_with_other_models(server):
    server.default, store, saver = answer, RunStore(), InMemorySaver()
    run_until(several(menu_of(server), store=store, saver=saver), THREAD, 2)
    options = {"store": store, "saver": saver}
    with pytest.raises(ValueError, match="got one for a run with small, middle, large, expected"):
        several(menu_of(server, "small"), **options).invoke(None, THREAD)
    with pytest.raises(ValueError, match="got small, middle for a run with small, middle, large"):
        several(menu_of(server, "small", "middle"), **options).invoke(None, THREAD)


def test_a_thread_may_hold_a_run_with_one_model_after_one_with_several(server):
    server.default, store, saver = answer, RunStore(), InMemorySaver()
    options = {"store": store, "saver": saver, "iterations": 3}
    several(menu_of(server), **options).invoke({}, THREAD)
    several(menu_of(server, "small"), **options).invoke({}, THREAD)
    assert "router" not in rows_of(store)[-1]
    several(menu_of(server), **options).invoke({}, THREAD)
    assert sum(each["tries"] for each in rows_of(store)[-1]["router"]) <= 9


@pytest.mark.parametrize(
    ("models", "options", "reason"),
    [
        ([], {}, "models: got none"),
        (["a", "a"], {}, "models: got a, a, expected different names; in Python, MenuModel"),
        (["a", "b"], {"router": "best"}, "router: got 'best', expected budgeted-thompson"),
        (["a", "b"], {"router": "fixed:c"}, "expected a model of the menu: a, b"),
        (["a", "b"], {"price": Price(1, 1)}, "price: got one for 2 models, expected that of each"),
    ],
)
def test_a_menu_that_makes_no_sense_is_refused(models, options, reason):
    menu = [MenuModel(name, scripted(), Price(1, 1)) for name in models]
    with pytest.raises(ValueError, match=reason):
        several(menu, **options)


def test_a_model_of_a_menu_needs_a_price():
    with pytest.raises(ValueError, match="models: b: model 'scripted' has no known price"):
        several([MenuModel("a", scripted(), Price(1, 1)), MenuModel("b", scripted())])


def test_one_name_at_the_provider_may_have_two_prices():
    store = RunStore()
    menu = [
        MenuModel("fast", ScriptedModel(answer=hashed_answer), Price(2, 2)),
        MenuModel("slow", ScriptedModel(answer=hashed_answer), Price(1, 1)),
    ]
    several(menu, store=store, budget=1.0, iterations=6, router="round-robin").invoke({})
    costs = {(call.entry, call.model, call.cost) for call in calls_of(store)}
    cost = Decimal("0.0015")
    assert costs == {("fast", "scripted", 2 * cost), ("slow", "scripted", cost)}


@pytest.mark.parametrize("parallel", [1, 3])
def test_an_answer_of_a_model_that_is_disabled_is_not_another_ones(parallel):
    """Three answers without text: the third ends the model, and the other makes that attempt."""
    store = RunStore()
    menu = [
        MenuModel("mute", ScriptedModel(answer=lambda prompt: ""), Price("0.1", "0.1")),
        MenuModel("good", ScriptedModel(answer=hashed_answer), Price(1, 1)),
    ]
    options = {"router": "round-robin", "iterations": 8, "parallel": parallel}
    several(menu, store=store, **options).invoke({})
    calls, rows = [call for call in calls_of(store) if call.role != "guide"], rows_of(store)
    assert events_of(store).count("disabled:mute") == 1
    assert MAX_UNANSWERED <= sum(call.entry == "mute" for call in calls) < MAX_UNANSWERED + parallel
    named = [name for row in rows for name in row["models"]]
    assert sum(call.entry == "good" for call in calls) == named.count("good")
    assert [each["tries"] for each in rows[-1]["router"]] == [
        named.count("mute"),
        named.count("good"),
    ]
    for name, dollars in told(rows[-1]).items():
        assert dollars == float(sum(call.cost for call in calls if call.entry == name))
    assert rows[-1]["spent"] == float(spent_by(store))


def test_guides_go_to_the_others_where_the_guide_model_of_the_menu_refuses(server):
    server.default, store = Refusing(middle=402), RunStore()
    menu = menu_of(server)
    several(menu, store=store, guide_model=menu[1].model).invoke({})
    guides = {call.entry for call in calls_of(store) if call.role == "guide" and call.cost}
    assert guides == {"small"}
    assert ledger_by_model(store) == billed_by_model(server)
    assert rows_of(store)[-1]["spent"] == float(spent_by(store)) > 0


def test_a_run_is_not_continued_with_another_router(server):
    server.default, options = answer, {"store": RunStore(), "saver": InMemorySaver()}
    run_until(several(menu_of(server), **options), THREAD, 2)
    with pytest.raises(ValueError, match="router: got 'ucb1' for a run with 'budgeted-thompson'"):
        several(menu_of(server), router="ucb1", **options).invoke(None, THREAD)


def test_a_model_has_one_price():
    menu = [MenuModel("a", scripted(), Price(1, 1))]
    with pytest.raises(ValueError, match="price: got one in the settings beside that of a"):
        several(menu, price=Price(2, 2))


@pytest.mark.parametrize("parallel", [1, 3])
def test_a_model_that_answers_no_more_is_disabled_after_the_longest_pause(parallel, caplog):
    answers = iter([rewrite(0.5)])

    def fading(prompt):
        for found in answers:
            return found
        # Before its first answer a model is not down, and a refusal is a failed attempt.
        while not store.call_log.has_answer(store.run_ids()[-1], CallFilter(entry="gone")):
            time.sleep(0.001)
        raise ConnectionRefusedError("nobody is there")

    store = RunStore()
    menu = [
        MenuModel("gone", ScriptedModel(answer=fading), Price("0.1", "0.1")),
        MenuModel("good", ScriptedModel(answer=hashed_answer), Price(1, 1)),
    ]
    policy = RetryPolicy(retry_wait=0.001, longest_wait=0.001, longest_pause=0.05)
    options = {"router": "round-robin", "iterations": 8, "parallel": parallel}
    several(menu, store=store, retry_policy=policy, **options).invoke({})
    assert events_of(store).count("disabled:gone") == 1
    assert len(rows_of(store)) == 8
    assert rows_of(store)[-1]["router"][0]["tries"] == 1
    assert "the model is disabled at" in caplog.text
    assert "the run stops" not in caplog.text
    assert rows_of(store)[-1]["spent"] == float(spent_by(store))
