"""A real `langgraph dev` that is killed: its run continues from the store."""

import json
from collections import Counter
from contextlib import contextmanager
from itertools import count
from shutil import rmtree
from threading import Event

import pytest
from billing_server import BillingServer, Reply
from fakes import rewrite, toy_folder
from langgraph_server import START_SECONDS, answer, needs_langgraph_cli, server_of

from costada.store.run_store import RunStore

pytestmark = [pytest.mark.process, needs_langgraph_cli]

MODELS = """
[models.searcher]
model = "openai:searcher"
base_url = "{url}"
price = {{ input_per_million = 0.4, output_per_million = 1.6 }}
max_tokens = 500
"""
KILLED_AT, ITERATIONS = 4, 6
ORDER = {
    "assistant_id": "costada",
    "context": {"budget": 0.1, "settings": {"max_iterations": ITERATIONS}},
}


@pytest.fixture
def killed(tmp_path):
    """The variables of a server that was killed, its provider and the thread of its run."""
    numbers, is_asked, is_killed = count(1), Event(), Event()

    def reply(body):
        number = next(numbers)
        if number == KILLED_AT:
            is_asked.set()
            is_killed.wait(START_SECONDS)
        return Reply(rewrite(min(0.9, 0.2 + number / 100)), input_tokens=1000, output_tokens=500)

    with BillingServer(default=reply) as provider:
        (tmp_path / "models.toml").write_text(MODELS.format(url=provider.url))
        variables = {
            "COSTADA_PROBLEM": str(toy_folder(tmp_path)),
            "COSTADA_MODELS": "searcher",
            "COSTADA_STORE": str(tmp_path / "store.sqlite"),
            "COSTADA_CHOOSE_SETTINGS": "max_iterations",
        }
        with server_of(tmp_path, **variables) as (server, address):
            thread = answer(address, "threads", {})["thread_id"]
            answer(address, f"threads/{thread}/runs", {**ORDER, "input": {"seed": 1}})
            assert is_asked.wait(START_SECONDS)
            server.kill()
            server.wait(START_SECONDS)
            is_killed.set()
        yield variables, provider, thread


@contextmanager
def restarted(folder, thread, variables):
    """The address of a server that has lost all but the store, where the thread begins again."""
    # What `langgraph dev` writes now and then decides otherwise how much it knows after a kill.
    rmtree(folder / ".langgraph_api", ignore_errors=True)
    with server_of(folder, **variables) as (_, address):
        answer(address, "threads", {"thread_id": thread})
        yield address


def requests_of(provider):
    return Counter(json.dumps(each["messages"]) for each in provider.requests)


def test_a_killed_server_pays_for_no_answer_twice(killed, tmp_path):
    variables, provider, thread = killed
    answered = list(requests_of(provider))[: KILLED_AT - 1]
    runs = f"threads/{thread}/runs/wait"
    with restarted(tmp_path, thread, variables) as address:
        found = answer(address, runs, {**ORDER, "input": {"seed": 1}})
        asked = requests_of(provider)
        again = answer(address, runs, {**ORDER, "input": {"seed": 1}})
    assert (found.get("stop_reason"), found.get("iterations")) == ("iterations", ITERATIONS), found
    assert [asked[each] for each in answered] == [1] * (KILLED_AT - 1)
    assert asked.total() == ITERATIONS + 1  # the request in flight was lost
    assert again["iterations"] == ITERATIONS
    with RunStore(variables["COSTADA_STORE"], is_read_only=True) as store:
        first, second = store.run_ids()  # another input begins another run
        assert store.setup(first).seed == store.setup(second).seed == "1"
        assert [row["iteration"] for row in store.steps(first)] == [*range(1, ITERATIONS + 1)]


def test_a_run_that_had_ended_returns_its_result_and_another_problem_begins_a_run(killed, tmp_path):
    variables, provider, thread = killed
    runs, order = f"threads/{thread}/runs/wait", {**ORDER, "input": {"seed": 1}}
    with restarted(tmp_path, thread, variables) as address:
        ended = answer(address, runs, order)
    asked = requests_of(provider).total()
    with restarted(tmp_path, thread, variables) as address:
        again = answer(address, runs, order)
    assert requests_of(provider).total() == asked == ITERATIONS + 1
    results = ("best_program", "best_score", "spent", "iterations", "stop_reason")
    assert [again[each] for each in results] == [ended[each] for each in results]
    (tmp_path / "toy" / "problem.md").write_text("Return a number between 0 and 1.")
    with restarted(tmp_path, thread, variables) as address:
        other = answer(address, runs, order)
    assert other["iterations"] == ITERATIONS
    assert requests_of(provider).total() == asked + ITERATIONS
    with RunStore(variables["COSTADA_STORE"], is_read_only=True) as store:
        first, second = store.run_ids()
        assert store.setup(first).problem != store.setup(second).problem
