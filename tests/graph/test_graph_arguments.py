"""What is refused before a run spends anything."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from fakes import toy_problem
from langchain_core.runnables import RunnableLambda
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.store.memory import InMemoryStore
from pydantic import ValidationError
from toy_graph import graph_of, scripted
from typing_extensions import TypedDict

from costada.agents.node import as_discovery_node
from costada.controller.constants import Constants
from costada.graph.build import compile_search
from costada.nodes.settings import Settings
from costada.values.usage import Price

SETTINGS = Settings(price=Price(1, 2))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"problem": "circle_packing"}, r"problem: got 'circle_packing', expected a Problem"),
        ({"budget": "1"}, r"budget: got '1', expected finite dollars above 0"),
        ({"budget": True}, r"budget: got True, expected finite dollars above 0"),
        ({"budget": None}, r"budget: got None, expected finite dollars above 0"),
        ({"settings": {"seed": 3}}, r"settings: got \{'seed': 3\}, expected Settings"),
        ({"store": InMemoryStore()}, r"store: got a InMemoryStore, expected None or a RunStore"),
        (
            {"settings": Settings(price=Price(1, 2), guide_price=Price(1, 2))},
            r"guide_price: got one without guide_model",
        ),
        *(
            (
                {
                    "settings": Settings(
                        price=Price(1, 2), method=method, constants=Constants(guides="never")
                    )
                },
                f"guides: got 'never' with method '{method}', which decides on guides itself",
            )
            for method in ("adaevolve", "no-intervention-gating", "uniform")
        ),
    ],
)
def test_an_argument_that_cannot_work_is_refused_at_once(changed, message):
    arguments = {"problem": toy_problem(), "budget": 1.0, "settings": SETTINGS, **changed}
    problem = arguments.pop("problem")
    with pytest.raises(ValueError, match=message):
        compile_search(problem, scripted(), **arguments)


@pytest.mark.parametrize("seed", ["x", -5, 2**63, True, 1.0])
def test_an_invalid_seed_is_refused_before_the_first_call(seed):
    graph, model = graph_of()
    with pytest.raises(ValueError, match=f"seed: got {seed!r}, expected an integer from 0 to"):
        graph.invoke({"seed": seed})
    with pytest.raises(ValidationError, match="seed"):
        Settings(seed=seed)
    assert model.prompts == []


async def _astreamed(graph, given, config):
    return [part async for part in graph.astream(given, config)]


async def _events(graph, given, config):
    return [each async for each in graph.astream_events(given, config, version="v2")]


WAYS: dict[str, Callable[[Any, Any, Any], object]] = {
    "invoke": lambda graph, given, config: graph.invoke(given, config),
    "ainvoke": lambda graph, given, config: asyncio.run(graph.ainvoke(given, config)),
    "stream": lambda graph, given, config: list(graph.stream(given, config)),
    "astream": lambda graph, given, config: asyncio.run(_astreamed(graph, given, config)),
    "batch": lambda graph, given, config: graph.batch([given], config),
    "abatch": lambda graph, given, config: asyncio.run(graph.abatch([given], config)),
    "events": lambda graph, given, config: asyncio.run(_events(graph, given, config)),
    "chain": lambda graph, given, config: (RunnableLambda(dict) | graph).invoke(given, config),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("given", "config", "message"),
    [
        ({"budget": 0.005}, {}, r"input: got key 'budget', expected seed; .*budget=DOLLARS"),
        ({"seed": 1, "sede": 2}, {}, r"input: got key 'sede', expected seed"),
        ({"spent": 0.0}, {}, r"input: got key 'spent', expected seed"),
        ({}, {"configurable": {"budget": 0.005}}, r"configurable: got key 'budget'"),
        ({}, {"configurable": {"seed": 5}}, r"configurable: got key 'seed'.*input"),
        ({}, {"configurable": {"max_failures": 5}}, r"key 'max_failures'.*\(\.\.\., max_failures="),
        ({}, {"configurable": {"base_patience": 5}}, r"'base_patience'.*controller=\{'base_p"),
        ({}, {"budget": 0.005}, r"(config|configurable): got key 'budget'"),
    ],
)
def test_what_a_run_would_ignore_is_refused_before_the_first_call(way, given, config, message):
    graph, model = graph_of()
    with pytest.raises(ValueError, match=message):
        WAYS[way](graph, given, config)
    assert model.prompts == []


def test_a_setting_in_with_config_in_the_context_or_as_a_keyword_is_refused_too():
    graph, model = graph_of()
    with pytest.raises(ValueError, match="configurable: got key 'budget'"):
        graph.with_config(configurable={"budget": 0.005}).invoke({})
    with pytest.raises(ValueError, match="context: got key 'budget'"):
        graph.invoke({}, context={"budget": 0.005})
    with pytest.raises(ValueError, match="invoke or stream: got key 'budget'"):
        graph.invoke({}, budget=0.005)
    assert model.prompts == []


@pytest.mark.parametrize(
    ("context", "message"),
    [
        ({"bugdet": 0.005}, r"got key 'bugdet'.*did you mean 'budget'\?.*budget=DOLLARS"),
        ({"max_budget": 0.005}, r"got key 'max_budget'.*did you mean 'budget'\?"),
        ({"tone": "dry"}, r"got key 'tone', .*without choices=Choices"),
        ([0.005], r"got \[0.005\], .*without choices=Choices"),
    ],
)
def test_a_context_without_choices_is_refused_with_the_nearest_key(context, message):
    graph, model = graph_of()
    with pytest.raises(ValueError, match=f"context: {message}"):
        graph.invoke({}, context=context)
    with pytest.raises(ValueError, match=f"context: {message}"):
        asyncio.run(graph.ainvoke({}, context=context))
    assert model.prompts == []
    assert graph.invoke({}, context={})["iterations"] > 0


def test_configurable_keys_of_a_parent_or_a_server_pass():
    theirs = {"user_id": "u", "model": "their own", "langgraph_auth_user": None, "thread_id": "1"}
    graph, model = graph_of(checkpointer=InMemorySaver(), constants=Constants(max_iterations=1))
    graph.invoke({}, {"configurable": theirs})
    assert model.prompts


class ParentState(TypedDict, total=False):
    seed: int
    question: str
    best_program: str
    spent: float
    budget: float


def parent_of(node):
    parent = StateGraph(ParentState)
    parent.add_node("discover", node)
    parent.add_edge(START, "discover")
    parent.add_edge("discover", END)
    return parent.compile(checkpointer=InMemorySaver())


def test_below_a_parent_its_own_keys_pass_and_those_named_like_a_setting_do_not():
    config = {"configurable": {"thread_id": "1", "user_id": "u"}}
    graph, model = graph_of(constants=Constants(max_iterations=1))
    found = parent_of(graph).invoke({"seed": 1, "question": "?", "spent": 5.0}, config)
    assert (found["question"], found["spent"]) == ("?", graph.invoke({"seed": 1})["spent"])
    before = len(model.prompts)
    with pytest.raises(ValueError, match=r"input: got key 'budget'.*as_discovery_node"):
        parent_of(graph).invoke({"budget": 0.005}, config)
    with pytest.raises(ValueError, match="configurable: got key 'budget'"):
        parent_of(graph).invoke({}, {"configurable": {"thread_id": "2", "budget": 0.005}})
    assert len(model.prompts) == before


@pytest.mark.parametrize("config", [{}, {"tags": ["x"]}])
def test_a_run_that_a_node_starts_itself_refuses_unknown_keys_as_anywhere(config):
    graph, model = graph_of()

    def node(state):
        return graph.invoke({"budget": state["spent"]}, config or None)

    with pytest.raises(ValueError, match="input: got key 'budget'"):
        parent_of(node).invoke({"spent": 0.005}, {"configurable": {"thread_id": "1"}})
    assert model.prompts == []


def test_a_function_that_gives_a_node_of_a_parent_its_input_may_give_a_seed_only():
    graph, model = graph_of()
    node = as_discovery_node(graph, input=lambda state: {"sede": 1}, output={"spent": "spent"})
    with pytest.raises(ValueError, match="input: got key 'sede', expected seed"):
        parent_of(node).invoke({"seed": 1}, {"configurable": {"thread_id": "1"}})
    assert model.prompts == []


@pytest.mark.parametrize("configurable", [{}, {"user_id": "u"}])
def test_a_saver_without_a_thread_is_answered_in_langgraphs_own_words(configurable):
    graph, model = graph_of(checkpointer=InMemorySaver())
    bare = parent_of(lambda state: {})
    with pytest.raises(ValueError) as theirs:
        bare.invoke({})
    with pytest.raises(ValueError) as ours:
        graph.invoke({}, {"configurable": configurable})
    assert str(ours.value) == str(theirs.value)
    assert model.prompts == []
