"""A model is priced, limited and journaled by the name that its requests ask for."""

from decimal import Decimal

import pytest
from billing_server import BillingServer, Reply
from fakes import IDEAS, is_guide_prompt, rewrite, toy_problem
from langchain_core.runnables import ConfigurableField
from langchain_openai import ChatOpenAI
from pydantic import SecretStr

from costada.controller.constants import Constants
from costada.graph.build import create_discovery_graph
from costada.nodes.settings import Settings
from costada.store.run_store import RunStore
from costada.values.prices import Price

CHEAP, DEAR = Price("1", "2"), Price("100", "1000")
FIELD = ConfigurableField(id="llm")


def client(server: BillingServer, name: str = "cheap") -> ChatOpenAI:
    return ChatOpenAI(
        model=name,
        base_url=server.url,
        api_key=SecretStr("none"),
        max_retries=0,
        max_completion_tokens=32_000,
        default_headers={"Connection": "close"},
    )


BOUND = {
    "bind": lambda model: model.bind(model="dear"),
    "the outer of two": lambda model: model.bind(model="unheard of").bind(model="dear"),
    "around a configuration": lambda model: model.with_config(tags=["x"]).bind(model="dear"),
    "within retries": lambda model: model.bind(model="dear").with_retry(),
    "around retries": lambda model: model.with_retry().bind(model="dear"),
    "around fallbacks": lambda model: model.with_fallbacks([model]).bind(model="dear"),
    "extra_body": lambda model: model.bind(extra_body={"model": "dear"}),
}
CONFIGURED = {
    "field": lambda model: model.configurable_fields(model_name=FIELD),
    "alternative": lambda model: model.configurable_alternatives(
        FIELD, dear=model.bind(model="dear")
    ),
}


def as_long_as_allowed(body) -> Reply:
    text = IDEAS if is_guide_prompt(body["messages"][-1]["content"]) else rewrite(0.5)
    tokens = min(900, body["max_completion_tokens"])
    return Reply(text, input_tokens=100, output_tokens=tokens)


def run(server, model, policy, *, budget=0.5, config=None, other_prices=None, **options):
    """Return a run's result, and the dollars that its ledger and the server's bill come to."""
    server.default = as_long_as_allowed
    store = RunStore()
    settings = Settings(
        price=CHEAP,
        other_prices={"dear": DEAR} if other_prices is None else other_prices,
        budget_policy=policy,
        constants=Constants(max_iterations=options.pop("iterations", 1)),
    )
    graph = create_discovery_graph(
        toy_problem(), model, budget=budget, settings=settings, store=store, **options
    )
    result = graph.invoke({}, config)
    prices = {"cheap": (1, 2), "dear": (100, 1000)}
    bill = sum(
        entry.input_tokens * prices[entry.model][0] + entry.output_tokens * prices[entry.model][1]
        for entry in server.bill
    )
    spent = store.call_log.spent(store.run_ids()[0], 10**9)
    return result, spent, Decimal(bill) / 1_000_000


@pytest.mark.parametrize("policy", ["hard", "crossing"])
@pytest.mark.parametrize("bind", BOUND.values(), ids=BOUND)
def test_the_price_of_the_bound_name_counts(server, bind, policy):
    result, spent, bill = run(server, bind(client(server)), policy)
    assert {body["model"] for body in server.requests} == {"dear"}
    assert spent == bill > 0
    assert policy == "crossing" or result["spent"] <= 0.5


@pytest.mark.parametrize("bind", BOUND.values(), ids=BOUND)
def test_a_hard_budget_that_buys_only_the_constructors_model_buys_nothing(server, bind):
    """One call to the dear model costs $0.90; to the cheap one it would be $0.0019."""
    result, spent, bill = run(server, bind(client(server)), "hard", budget=0.05)
    assert (server.requests, spent, bill, result["stop_reason"]) == ([], 0, 0, "budget")


@pytest.mark.parametrize("bind", BOUND.values(), ids=BOUND)
def test_a_bound_name_without_a_price_is_refused_before_anything_is_sent(server, bind):
    with pytest.raises(ValueError, match="model 'dear' has no known price"):
        run(server, bind(client(server)), "crossing", other_prices={})
    assert server.requests == []


@pytest.mark.parametrize("is_at_once", [False, True])
@pytest.mark.parametrize("configure", CONFIGURED.values(), ids=CONFIGURED)
def test_a_configured_model_is_priced_by_the_name_it_is_configured_to(
    server, configure, *, is_at_once
):
    chosen, model = {"configurable": {"llm": "dear"}}, configure(client(server))
    model = model.with_config(chosen) if is_at_once else model
    _, spent, bill = run(server, model, "crossing", config=None if is_at_once else chosen)
    assert {body["model"] for body in server.requests} == {"dear"}
    assert spent == bill > 0


@pytest.mark.parametrize("configure", CONFIGURED.values(), ids=CONFIGURED)
def test_a_configured_model_can_not_be_asked_under_a_hard_budget(server, configure):
    chosen, model = {"configurable": {"llm": "dear"}}, configure(client(server))
    with pytest.raises(ValueError, match="in which answers cannot be limited"):
        run(server, model, "hard", config=chosen)
    assert server.requests == []


def test_a_name_that_is_chosen_while_the_run_goes_on_needs_a_price_too(server):
    model = client(server).configurable_fields(model_name=FIELD)
    with pytest.raises(ValueError, match="model 'unheard of' has no known price"):
        run(server, model, "crossing", config={"configurable": {"llm": "unheard of"}})
    assert server.requests == []


def test_a_guide_that_is_bound_to_another_name_is_held_back_by_its_own_price(server):
    """Answers without a program make the run ask for a guide, which the budget cannot pay for."""
    server.default = Reply("no program", input_tokens=10, output_tokens=10)
    store = RunStore()
    guide = client(server, "guide").bind(model="dear")
    settings = Settings(
        price=CHEAP,
        guide_price=CHEAP,
        other_prices={"dear": DEAR},
        budget_policy="hard",
        constants=Constants(max_iterations=6),
    )
    graph = create_discovery_graph(
        toy_problem(), client(server), guide_model=guide, budget=0.2, settings=settings, store=store
    )
    graph.invoke({})
    events = [event for row in store.steps(store.run_ids()[0]) for event in row["events"]]
    assert any(event.startswith("guide_scheduled") for event in events)
    assert {body["model"] for body in server.requests} == {"cheap"}


def test_a_limit_in_the_extra_body_does_not_replace_that_of_a_hard_budget(server):
    model = client(server).bind(extra_body={"max_completion_tokens": 100_000})
    run(server, model, "hard", budget=0.003)
    (body,) = server.requests
    assert body["max_completion_tokens"] < 1500
