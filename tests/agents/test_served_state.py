"""What a client of `langgraph dev` sends changes no limit, no address and no sandbox.

It may interrupt a run, which is resumed without a repeated or a lost call.
"""

import json
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import count, product
from threading import Event

import pytest
from billing_server import BillingServer, Reply
from fakes import toy_folder
from langgraph_server import START_SECONDS, answer, needs_langgraph_cli, refusal, served

from costada.evaluators.sandbox.layer_choice import chosen_layer
from costada.evaluators.sandbox.layers import Layer
from costada.nodes.state import SearchState

pytestmark = [pytest.mark.process, needs_langgraph_cli]

CALLS = 5
"""Calls that the budget of a run pays for: one costs 0.002 dollars."""

GRAPH = """
import asyncio
from functools import cache

from langgraph.graph import START, StateGraph

from costada import Choices, Price, create_discovery_graph
from costada.nodes.state import SearchOutput


@cache
def build():
    choices = Choices(max_budget=0.01, max_parallel=2, settings=["max_iterations"])
    return create_discovery_graph(
        {folder!r}, "openai:stand-in", base_url={url!r}, price=Price(1, 2), budget=0.01,
        controller={{"base_patience": 1000}}, choices=choices,
    )


async def search():
    return await asyncio.to_thread(build)


def parent():
    graph = StateGraph(SearchOutput)
    graph.add_node("other", lambda _: {{}})
    graph.add_edge(START, "other")
    return graph.compile()
"""

GRAPHS = {"costada": "./served_graph.py:search", "parent": "./served_graph.py:parent"}

ESCAPE = """# EVOLVE-BLOCK-START
def value():
    try:
        open({marker!r}, "w").close()
    except OSError:
        pass
    return {number}
# EVOLVE-BLOCK-END
"""


def hostile_values(key, stranger):
    """Values that would lift a limit, each where its key is believed."""
    settings = {"sandbox": "none", "base_url": stranger.url, "max_iterations": 10**6}
    own = {
        "chosen": [{"budget": 9, "settings": settings}, {"budget": 9.0}],
        "stop_reason": [None, "", "x"],
        "stopping": [None, ""],
        "account": [["Account", {"extended": 9.0}], {"extended": 10**9}, None],
        "spent": [0.0, -9.0],
        "run": [["Run", {"id": "../x", "seed": 0, "holdout_key": ""}], {"id": ""}],
        "flight": [["Flight", {}], {"tickets": [{"number": 1, "attempt": 1}]}],
        "step": [["Step", {}], {"attempt": {"number": 0}}],
        "controller": [["EvoX", {}], ["Uniform", {}]],
    }
    return own.get(key, [None, 0])


@pytest.fixture(scope="module")
def served_world(tmp_path_factory):
    """A served graph, its provider, one that nothing may be sent to, and what no program writes."""
    tmp_path = tmp_path_factory.mktemp("served")
    numbers, marker = count(1), tmp_path / "escaped"

    def text(body):
        code = ESCAPE.format(marker=str(marker), number=min(0.9, 0.2 + next(numbers) / 1000))
        return Reply(f"```python\n{code}```", input_tokens=1000, output_tokens=500)

    with BillingServer(default=text) as provider, BillingServer(default=text) as stranger:
        code = GRAPH.format(folder=str(toy_folder(tmp_path)), url=provider.url)
        (tmp_path / "served_graph.py").write_text(code)
        config = {"dependencies": ["."], "graphs": GRAPHS}
        (tmp_path / "langgraph.json").write_text(json.dumps(config))
        config_file = tmp_path / "langgraph.json"
        with served(tmp_path, config_file, OPENAI_API_KEY="owners-key") as address:
            yield address, provider, stranger, marker


@pytest.fixture
def world(served_world):
    """The served graph, its provider and the other one, as if they were new."""
    address, provider, stranger, marker = served_world
    provider.reset(provider.default)
    marker.unlink(missing_ok=True)
    yield address, provider, stranger
    assert stranger.requests == []
    assert set(provider.authorizations) == {"Bearer owners-key"}
    if chosen_layer(Layer.AUTO) is not Layer.PROCESS:
        assert not marker.exists()


def run_on(thread, address, **given):
    return answer(address, f"threads/{thread}/runs/wait", {"assistant_id": "costada", **given})


def state_of(thread, address):
    return answer(address, f"threads/{thread}/state")["values"]


def test_no_key_of_the_state_and_no_fork_of_it_lifts_a_limit(world):
    address, provider, stranger = world
    thread = answer(address, "threads", {})["thread_id"]
    whole = run_on(thread, address, input={"seed": 1})
    assert (whole["stop_reason"], len(provider.requests)) == ("budget", CALLS)
    before = state_of(thread, address)
    state, runs = f"threads/{thread}/state", f"threads/{thread}/runs/wait"
    history = answer(address, f"threads/{thread}/history?limit=1000")
    points = [each["checkpoint"]["checkpoint_id"] for each in history if "run" in each["values"]]
    hostile = {key: hostile_values(key, stranger) for key in SearchState.__annotations__}
    for key, values in hostile.items():
        places = ({}, {"as_node": "gate_intervention"}, {"checkpoint_id": points[-1]})
        for value, more in product(values, places):
            refused = refusal(address, state, {"values": {key: value}, **more})
            assert f"state: got an update of ['{key}']: the state of a search" in refused
    whole_state = {key: values[0] for key, values in hostile.items()}
    for command in (
        {"update": whole_state},
        {"update": {"chosen": hostile["chosen"][0]}, "resume": {"tactic": "x"}},
        {"goto": "build_context"},
        {"goto": [{"node": "generate", "input": whole_state}]},
    ):
        refused = refusal(address, runs, {"assistant_id": "costada", "command": command})
        assert "in a command: the state of a search follows from" in refused
    for name in ("build_context", "__end__", "__copy__", "__input__"):
        refused = refusal(address, state, {"values": None, "as_node": name})
        assert "state: got an update of no key" in refused
    for point in points[:: len(points) // 4]:
        run_on(thread, address, input=None, checkpoint_id=point)
        run_on(thread, address, input=None, checkpoint={"checkpoint_id": point, "chosen": "x"})
    assert run_on(thread, address, input=None)["spent"] == whole["spent"]
    copy = answer(address, f"threads/{thread}/copy", {})["thread_id"]
    assert run_on(copy, address, input=None)["spent"] == whole["spent"]
    after = state_of(thread, address)
    assert {**after, "newest_checkpoint": ""} == {**before, "newest_checkpoint": ""}
    assert len(provider.requests) == CALLS


def test_no_way_to_begin_or_resume_a_run_lifts_a_limit(world):
    address, provider, stranger = world
    begun = {"updates": [{"values": {"chosen": {"budget": 9}}, "as_node": "gate_intervention"}]}
    threads = {"metadata": {"graph_id": "costada"}, "supersteps": [begun]}
    assert "state: got an update of ['chosen']" in refusal(address, "threads", threads)
    thread = answer(address, "threads", {})["thread_id"]
    runs = f"threads/{thread}/runs/wait"
    settings = {"settings": {"base_url": stranger.url, "sandbox": "none"}}
    for given in (
        {"input": {"chosen": {"budget": 9}}},
        {"input": {"budget": 9}},
        {"input": {}, "context": {"budget": 9}},
        {"input": {}, "context": settings},
        {"input": {}, "context": {"parallel": 3}},
        {"input": {}, "config": {"configurable": {"budget": 9}}},
        {"input": {}, "config": {"configurable": {"__pregel_task_id": "x"}}},
        {"input": {}, "config": {"configurable": {"__pregel_resuming": True}}},
    ):
        refusal(address, runs, {"assistant_id": "costada", **given})
    assert provider.requests == []
    parts = {"assistant_id": "costada", "input": {}, "interrupt_after": ["generate"]}
    for _ in range(3):  # the step in flight is resumed, not begun again
        answer(address, runs, {**parts, "context": {"budget": 0.01}})
    assert state_of(thread, address)["spent"] == pytest.approx(0.004)
    for given in (
        {"command": {"resume": {"budget": 9}}},
        {"command": {"resume": {"tactic": "x"}, "update": {"chosen": {"budget": 9}}}},
        {"command": {"resume": {"tactic": "x"}, "goto": "build_context"}},
        {"input": None, "context": {"budget": 9}},
        {"input": None, "context": {"parallel": 2}},
        {"input": {"seed": 7}},
    ):
        refusal(address, runs, {"assistant_id": "costada", **given})
    odd = {"__pregel_send": "x", "__costada_runs": {"x": 1}, "chosen": {"budget": 9}}
    for configurable in ({**settings, **settings["settings"]}, odd):
        answer(address, runs, {**parts, "config": {"configurable": configurable}, "input": None})
    found = answer(address, runs, {"assistant_id": "costada", "input": None})
    assert (found["stop_reason"], found["spent"]) == ("budget", pytest.approx(0.01))
    assert len(provider.requests) == CALLS


def test_no_other_graph_of_the_server_lifts_a_limit(world):
    """Its state has keys of the same names, and a client may execute it on any thread."""
    address, provider, _ = world
    thread = answer(address, "threads", {})["thread_id"]
    run_on(thread, address, input={"seed": 1}, interrupt_before=["gate_intervention"])
    [point] = answer(address, f"threads/{thread}/history?limit=1")
    for given in ({"spent": 0.0, "stop_reason": ""}, {"stop_reason": "budget"}):
        other = {"assistant_id": "parent", "input": given}
        answer(address, f"threads/{thread}/runs/wait", other)
        updated = {"values": given, "as_node": "other"}
        answer(address, f"threads/{thread}/state", updated)
        refused = refusal(
            address, f"threads/{thread}/runs/wait", {"assistant_id": "costada", "input": None}
        )
        assert "state: not as run" in refused
    assert len(provider.requests) == 1
    place = point["checkpoint"]["checkpoint_id"]
    found = run_on(thread, address, input=None, checkpoint_id=place)
    assert (found["stop_reason"], len(provider.requests)) == ("budget", CALLS)


@pytest.mark.parametrize("parallel", [1, 2])
def test_a_run_that_a_client_cancels_is_interrupted_and_resumed(world, parallel):
    address, provider, _ = world
    answered, released = provider.default, Event()

    def held(body):
        if len(provider.requests) > 1:
            released.wait()
        return answered(body)

    provider.default = held
    thread = answer(address, "threads", {})["thread_id"]
    context = {"budget": 0.01, "parallel": parallel}
    runs = f"threads/{thread}/runs"
    try:
        run = answer(address, runs, {"assistant_id": "costada", "input": {}, "context": context})
        wait_until(lambda: len(provider.requests) > 1)
        with ThreadPoolExecutor(1) as pool:
            cancelled = pool.submit(answer, address, f"{runs}/{run['run_id']}/cancel?wait=1", {})
            path = f"{runs}/{run['run_id']}"
            wait_until(lambda: answer(address, path)["status"] not in ("pending", "running"))
            assert answer(address, path)["status"] == "interrupted"
            released.set()
            cancelled.result()
            assert answer(address, path)["status"] == "interrupted"
    finally:
        released.set()
        provider.default = answered
    found = run_on(thread, address, input=None)
    assert found["stop_reason"] == "budget"
    assert found["spent"] == pytest.approx(0.002 * len(provider.requests))
    assert parallel > 1 or len(provider.requests) == CALLS


def wait_until(is_so):
    deadline = time.monotonic() + START_SECONDS
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.05)
