"""Many runs of a real `langgraph dev` at once, again and again, under one purse."""

import re
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from threading import Barrier

import pytest
from billing_server import BillingServer, Reply
from fakes import rewrite, toy_folder
from langgraph_server import START_SECONDS, answer, needs_langgraph_cli, refusal, served

from costada.store.purse import Purse

pytestmark = [pytest.mark.process, needs_langgraph_cli]

CLIENTS = 20
PURSE = 0.06
CALL_COST = 0.0012
BUDGET = 0.002
"""Two calls use it up."""

MODELS = """
[models.searcher]
model = "openai:searcher"
base_url = "{url}"
price = {{ input_per_million = 0.4, output_per_million = 1.6 }}
max_tokens = 500
"""
"""A call in flight counts at its upper bound, of which the purse has twenty at once."""


@pytest.fixture(scope="module")
def heard(tmp_path_factory):
    """What the server answers, and the purse afterwards."""
    folder = tmp_path_factory.mktemp("served")
    numbers, all_ask = count(1), Barrier(CLIENTS, timeout=START_SECONDS)

    def reply(body):
        if (number := next(numbers)) <= CLIENTS:
            all_ask.wait()  # the first calls of all clients are in flight at the same time
        return Reply(rewrite(min(0.9, 0.2 + number / 100)), input_tokens=1000, output_tokens=500)

    with BillingServer() as provider:
        provider.default = reply
        (folder / "models.toml").write_text(MODELS.format(url=provider.url))
        variables = {
            "COSTADA_PROBLEM": str(toy_folder(folder)),
            "COSTADA_MODELS": "searcher",
            "COSTADA_BUDGET": "0.01",
            "COSTADA_PURSE": str(folder / "purse.sqlite"),
            "COSTADA_PURSE_BUDGET": str(PURSE),
            "COSTADA_ON_EXHAUSTED": "interrupt",
        }
        with served(folder, at_once=CLIENTS, **variables) as address:
            found = conversation(address)
        found["calls"] = len(provider.bill)
    with Purse(PURSE, path=folder / "purse.sqlite", name="the server's purse") as purse:
        found["purse"] = (float(purse.spent), max(0.0, float(purse.remaining)))
    return found


def conversation(address):
    order = {"assistant_id": "costada", "input": {}, "context": {"budget": BUDGET}}

    def ask(path):
        return answer(address, f"{path}/runs/wait", order)

    threads = [f"threads/{answer(address, 'threads', {})['thread_id']}" for _ in range(CLIENTS)]
    with ThreadPoolExecutor(CLIENTS) as clients:
        found = {"at once": list(clients.map(ask, threads))}
    more = {"assistant_id": "costada", "command": {"resume": {"budget": 2 * BUDGET}}}
    found["more"] = answer(address, f"{threads[0]}/runs/wait", more)
    stop = {"assistant_id": "costada", "command": {"resume": {"stop": True}}}
    found["stopped"] = answer(address, f"{threads[0]}/runs/wait", stop)
    found["again"] = []
    while "__error__" not in (last := answer(address, "runs/wait", order)):
        found["again"].append(last)
        assert len(found["again"]) < CLIENTS
    found["empty"] = refusal(address, "runs/wait", order)
    return found


def question(answered):
    (asked,) = answered["__interrupt__"]
    return asked["value"]


def test_twenty_runs_at_once_stop_at_their_budgets_and_ask_for_more(heard):
    assert len(heard["at once"]) == CLIENTS
    for each in heard["at once"]:
        assert question(each)["budget"] == BUDGET
        assert BUDGET <= question(each)["spent"] == each["spent"] < 2 * BUDGET


def test_a_client_that_answers_continues_its_run_and_ends_it(heard):
    assert question(heard["more"])["budget"] == 2 * BUDGET
    assert 2 * BUDGET <= heard["more"]["spent"] == heard["stopped"]["spent"]
    assert heard["stopped"]["stop_reason"] == "budget"
    assert "__interrupt__" not in heard["stopped"]


def test_repeated_runs_share_the_purse_until_it_is_empty(heard):
    assert heard["again"]
    assert re.search(r"the server's purse.* has \$0\.0+ left of \$0\.06", heard["empty"])
    runs = [*heard["at once"][1:], heard["stopped"], *heard["again"]]
    spent = sum(each["spent"] for each in runs)
    assert heard["purse"] == (pytest.approx(spent), 0)
    assert spent / heard["calls"] == pytest.approx(CALL_COST)
