"""A caller chooses a run's budget, problem, models and settings within the builder's limits."""

import asyncio
import os
import signal
from functools import partial
from multiprocessing.connection import Connection
from weakref import ref

import pytest
from fakes import ScriptedModel, hashed_answer, toy_problem
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command
from needed_plugins import needs_plugin
from pydantic import BaseModel
from toy_graph import THREAD, scripted
from typing_extensions import TypedDict
from warm import PATIENCE_SECONDS, PROCESSES

from costada import Choices, MenuModel, Price, Purse, as_discovery_node, create_discovery_graph
from costada.controller.methods import METHODS
from costada.graph.graph_input import RunOverrides

pytestmark = [needs_plugin("evox", "offline"), pytest.mark.process]
SETTINGS = ("max_iterations", "method", "approve_guides", "controller.base_patience")


def graph_with(*, saver=None, **options):
    """A graph whose calls cost 0.002 dollars, with choices, and its model."""
    model = ScriptedModel(answer=hashed_answer)
    given = {"max_budget": 0.05, "max_parallel": 2, "settings": SETTINGS}
    given |= options.pop("limits", {})
    options = {"budget": 0.01, "price": Price(1, 2), **options}
    graph = create_discovery_graph(
        toy_problem(), model, checkpointer=saver, choices=Choices(**given), **options
    )
    return graph, model


def test_a_chosen_budget_and_number_of_iterations_hold_for_one_run():
    graph, _ = graph_with()
    assert graph.invoke({}, context={"budget": 0.02})["spent"] == pytest.approx(0.02)
    few = graph.invoke({}, context={"settings": {"max_iterations": 2}})
    assert (few["iterations"], few["stop_reason"]) == (2, "iterations")
    assert graph.invoke({})["spent"] == pytest.approx(0.01)


def test_a_chosen_seed_is_that_of_the_input():
    graph, _ = graph_with()
    assert graph.invoke({}, context={"seed": 5}) == graph.invoke({"seed": 5})
    with pytest.raises(ValueError, match="seed: got 4 in the input and 5 in the context"):
        graph.invoke({"seed": 4}, context={"seed": 5})
    with pytest.raises(ValueError, match="seed"):
        graph.invoke({"seed": float("nan")})


def test_a_problem_and_models_are_chosen_by_name():
    dear = MenuModel("dear", ScriptedModel(answer=hashed_answer), Price(2, 4))
    graph, model = graph_with(
        limits={"problems": [toy_problem(name="other")], "models": [dear]},
    )
    found = graph.invoke({}, context={"problem": "other", "models": ["dear"], "budget": 0.004})
    assert (found["iterations"], found["spent"]) == (1, pytest.approx(0.004))
    assert model.prompts == []
    assert [graph.search.store.run_ids()] != [[]]


@pytest.mark.parametrize(
    ("context", "message"),
    [
        ({"budget": 0.06}, "context: budget: got 0.06, expected less than or equal to 0.05"),
        ({"budget": "0.02"}, "context: budget: got '0.02', expected a number"),
        ({"parallel": 3}, "context: parallel: got 3, expected less than or equal to 2"),
        ({"problem": "circle_packing"}, "context: Unknown setting 'problem'"),
        ({"bugdet": 0.01}, "Unknown setting 'bugdet'. Did you mean 'budget'"),
        ({"settings": {"base_url": "http://x/v1"}}, "Unknown setting 'settings.base_url'"),
        (
            {"settings": {"method": "evo"}},
            "context: settings.method: Unknown method 'evo'. Did you",
        ),
        ({"settings": {"method": "zzz"}}, "method: Unknown method 'zzz'. Known: adaevolve, "),
        ({"settings": {"seed": 3}}, "Unknown setting 'settings.seed'. It is given as 'seed'."),
        ({"settings": {"controller.nope": 3}}, "'settings.controller.nope'. Known: settings.con"),
        ({"settings": {"max_iterations": 10**20}}, "expected less than or equal to 1000000"),
        ({"settings": {"controller.base_patience": -1}}, "base_patience: got -1, expected greater"),
        (
            {"settings": {"controller": {"base_patience": 0.5}}},
            "context: settings.controller.base_patience: got 0.5, expected an integer",
        ),
        ("0.02", "context: got '0.02', expected a mapping with seed, budget"),
        ({"budget": toy_problem()}, "expected plain values"),
    ],
)
@pytest.mark.parametrize("is_async", [False, True])
def test_what_is_unknown_or_beyond_the_limits_is_refused_by_name(context, message, is_async):
    graph, model = graph_with()
    run = partial(graph.ainvoke if is_async else graph.invoke, {}, context=context)
    with pytest.raises(ValueError) as refused:
        asyncio.run(run()) if is_async else run()
    assert message in str(refused.value)
    assert model.prompts == []


def test_a_constant_is_chosen_by_its_dotted_name_or_in_a_table():
    graph, _ = graph_with()
    read = graph.overrides.read
    table = {"settings": {"method": "evox", "controller": {"base_patience": 8}}}
    assert read({"settings": {"method": "evox", "controller.base_patience": 8}}) == table
    assert read(table) == table
    for wrong, message in (
        ({"controller.base_patience": 0.5}, "settings.controller.base_patience: got 0.5"),
        ({"controller.base_patience": 8, **table["settings"]}, "got it twice"),
        ({"controller.base": 8}, "Did you mean 'settings.controller.base_patience'"),
    ):
        with pytest.raises(ValueError, match=message):
            read({"settings": wrong})


def test_without_choices_a_setting_in_the_context_is_refused():
    graph = create_discovery_graph("circle_packing", "offline", budget=0.01)
    with pytest.raises(ValueError, match="context: got key 'budget', which is not read there"):
        graph.invoke({}, context={"budget": 0.005})
    assert graph.get_context_jsonschema() is None


def test_the_schema_shows_the_limits():
    shown = ("min_intensity", "cost_stabilizer", "calibrates_cost")
    settings = (*SETTINGS, *(f"controller.{name}" for name in shown))
    limits = {"problems": [toy_problem(name="other")], "settings": settings}
    graph, _ = graph_with(limits=limits)
    schema = graph.get_context_jsonschema()
    assert set(schema["properties"]) == {"seed", "budget", "problem", "parallel", "settings"}
    assert schema["properties"]["budget"]["maximum"] == 0.05
    assert schema["properties"]["problem"]["enum"] == ["toy", "other"]
    assert schema["additionalProperties"] is False
    settings = schema["$defs"]["SearchSettings"]["properties"]
    assert settings["method"]["enum"] == list(METHODS)
    assert (settings["max_iterations"]["minimum"], settings["max_iterations"]["maximum"]) == (
        1,
        1e6,
    )
    constants = schema["$defs"]["ControllerConstants"]["properties"]
    assert constants["base_patience"]["minimum"] == 0
    assert (constants["min_intensity"]["minimum"], constants["min_intensity"]["maximum"]) == (0, 1)
    assert constants["cost_stabilizer"]["exclusiveMinimum"] == 0
    assert constants["calibrates_cost"]["type"] == "boolean"


def test_a_caller_chooses_no_command_as_the_generator():
    graph, _ = graph_with(limits={"settings": ("generator",)})
    chosen = {"settings": {"generator": "touch mark"}}
    with pytest.raises(
        ValueError, match="generator: got 'touch mark', expected 'model' or 'agent'"
    ):
        graph.invoke({}, context=chosen)
    assert graph.invoke({}, context={"settings": {"generator": "model"}})["iterations"] > 0


@pytest.mark.parametrize("name", ["evaluate_on", "endpoint"])
def test_a_caller_chooses_neither_where_evaluations_run_nor_a_port_of_this_machine(name):
    value = "127.0.0.1:4000"
    with pytest.raises(ValueError, match=f"Unknown setting '{name}'"):
        graph_with(limits={"settings": (name,)})
    graph, model = graph_with()
    for context in (
        {name: value},
        {"settings": {name: value}},
        {"settings": {"method": "evox", name: value}},
    ):
        with pytest.raises(ValueError, match=name):
            graph.invoke({}, context=context)
    without_choices = create_discovery_graph(toy_problem(), model, budget=0.01, price=Price(1, 2))
    with pytest.raises(ValueError, match=name):
        without_choices.invoke({}, context={name: value})
    assert model.prompts == []


def test_models_that_are_named_twice_in_a_context_are_refused_there():
    one = MenuModel("one", ScriptedModel(answer=hashed_answer), Price(2, 4))
    graph, model = graph_with(limits={"models": [one]})
    with pytest.raises(ValueError, match=r"^context: models: got one, one, expected different"):
        graph.invoke({}, context={"models": ["one", "one"]})
    assert model.prompts == []


@pytest.mark.parametrize(
    ("limits", "message"),
    [
        ({"max_budget": "1"}, "max_budget: got '1', expected finite dollars above 0"),
        ({"max_budget": 0.001}, "max_budget: got 0.001, expected at least 0.01, the budget of the"),
        ({"max_parallel": 257}, "max_parallel: got 257, expected an integer from 1 to 256"),
        ({"settings": "method"}, "settings: got 'method', expected a list or a tuple"),
        ({"settings": ["budget"]}, "Unknown setting 'budget'"),
        ({"problems": [toy_problem(name="a")] * 2}, "problems: got two named 'a'"),
        ({"problems": ["circle_paking"]}, "did you mean 'circle_packing'"),
        ({"models": ["ofline"]}, "Did you mean 'offline'"),
        ({"models": [ScriptedModel(answer=hashed_answer)]}, "model 'scripted' has no known price"),
    ],
)
def test_limits_that_cannot_work_are_refused_when_the_graph_is_built(limits, message):
    with pytest.raises(ValueError, match=message):
        graph_with(limits=limits)


def test_a_run_is_resumed_with_what_it_chose():
    saver = InMemorySaver()
    graph, _ = graph_with(saver=saver)
    chosen = {"budget": 0.03, "settings": {"method": "evox"}}
    whole = graph_with()[0].invoke({}, context=chosen)
    list(graph.stream({}, THREAD, context=chosen, interrupt_after=["evaluate"]))
    assert graph.get_state(THREAD).values["chosen"] == chosen
    assert graph.invoke(None, THREAD) == whole


@pytest.mark.parametrize(
    ("context", "message"),
    [
        ({"budget": 0.02}, "got budget 0.02 for a run that began with 0.03, expected the same or"),
        ({"parallel": 2}, "got parallel 2 for a run that began with 1, expected the same"),
        ({"problem": "other"}, "got problem 'other' for a run that began with 'toy', expected"),
        ({"seed": 3}, "got seed 3 for a run that began with 0, expected the same"),
    ],
)
def test_a_different_choice_on_resume_is_refused(context, message):
    graph, model = graph_with(
        saver=InMemorySaver(), limits={"problems": [toy_problem(name="other")]}
    )
    list(graph.stream({}, THREAD, context={"budget": 0.03}, interrupt_after=["generate"]))
    before = len(model.prompts)
    with pytest.raises(ValueError, match=message):
        graph.invoke(None, THREAD, context=context)
    assert len(model.prompts) == before


def test_what_a_run_has_by_default_may_be_named_when_it_is_resumed():
    graph, _ = graph_with(saver=InMemorySaver(), limits={"problems": [toy_problem(name="other")]})
    whole = graph_with()[0].invoke({})
    list(graph.stream({}, THREAD, interrupt_after=["evaluate"]))
    same = {"budget": 0.01, "problem": "toy", "parallel": 1, "seed": 0}
    assert graph.invoke(None, THREAD, context=same) == whole
    assert graph.get_state(THREAD).values.get("chosen", {}) == {}


@pytest.mark.parametrize("is_async", [False, True])
def test_a_higher_budget_continues_a_run_that_has_used_up_its_own(is_async):
    graph, _ = graph_with(saver=InMemorySaver())
    first = graph.invoke({}, THREAD)
    if is_async:
        more = asyncio.run(graph.ainvoke(None, THREAD, context={"budget": 0.02}))
    else:
        more = graph.invoke(None, THREAD, context={"budget": 0.02})
    assert (first["spent"], more["spent"]) == (pytest.approx(0.01), pytest.approx(0.02))
    assert more["iterations"] > first["iterations"]
    assert graph.invoke(None, THREAD) == more
    assert graph.get_state(THREAD).values["chosen"] == {"budget": 0.02}


def test_a_run_that_draws_from_a_purse_keeps_its_grant():
    with Purse(1.0) as purse:
        graph, _ = graph_with(saver=InMemorySaver(), purse=purse)
        graph.invoke({}, THREAD)
        with pytest.raises(ValueError, match=r"budget 0\.02 for a run that draws from a purse"):
            graph.invoke(None, THREAD, context={"budget": 0.02})


def test_a_new_run_on_a_thread_forgets_what_the_last_one_chose():
    graph, _ = graph_with(saver=InMemorySaver())
    graph.invoke({}, THREAD, context={"budget": 0.02})
    assert graph.invoke({}, THREAD)["spent"] == pytest.approx(0.01)
    assert graph.get_state(THREAD).values["chosen"] == {}


def test_a_question_of_a_chosen_topology_is_asked_and_answered():
    """Only the chosen graph has the node that asks about guides."""
    graph, _ = graph_with(saver=InMemorySaver(), budget=0.05)
    chosen = {"settings": {"method": "evox", "approve_guides": True}}
    asked = graph.invoke({}, THREAD, context=chosen)
    assert asked["__interrupt__"]
    assert graph.get_state(THREAD).next == ("approve_guide",)
    assert next(graph.get_state_history(THREAD)).next == ("approve_guide",)
    answered = graph.invoke(Command(resume=False), THREAD)
    assert answered.get("stop_reason") or answered["__interrupt__"]


class Work(TypedDict, total=False):
    dollars: float
    spent: float


class Wishes(TypedDict, total=False):
    budget: float
    tone: str


def parent_of(node):
    parent = StateGraph(Work, context_schema=Wishes)
    parent.add_node("discover", node)
    parent.add_edge(START, "discover")
    parent.add_edge("discover", END)
    return parent.compile(checkpointer=InMemorySaver())


def test_a_parents_own_context_is_not_read_as_that_of_the_search():
    graph, _ = graph_with()
    parent = parent_of(graph)
    found = parent.invoke({}, THREAD, context={"budget": 0.04, "tone": "dry"})
    assert found["spent"] == pytest.approx(0.01)


def test_below_a_parent_the_state_chooses_and_a_resumed_run_keeps_that():
    graph, model = graph_with(lost_calls="ignore")
    node = as_discovery_node(graph, context={"budget": "dollars"}, output={"spent": "spent"})

    def interrupted(prompt):
        if len(model.prompts) == 4:
            raise KeyboardInterrupt
        return hashed_answer(prompt)

    model.answer = interrupted
    parent = parent_of(node)
    with pytest.raises(KeyboardInterrupt):
        parent.invoke({"dollars": 0.02}, THREAD)
    found = parent.invoke(None, THREAD)
    assert found["spent"] == pytest.approx(0.02)
    assert len(model.prompts) == 11


def test_a_node_with_a_context_needs_choices():
    graph = create_discovery_graph("circle_packing", "offline", budget=0.01)
    with pytest.raises(ValueError, match="context: got one for a graph without choices"):
        as_discovery_node(graph, context={"budget": "dollars"}, output={})


def choosing(path: str, num_calls: int, is_resumed: bool, end: Connection) -> None:
    """Search with choices in this process, which is killed in one of its calls."""

    def answer(prompt: str) -> str:
        if len(model.prompts) == num_calls:
            os.kill(os.getpid(), signal.SIGKILL)
        return hashed_answer(prompt)

    model = scripted(answer)
    given, context = ({}, {"budget": 0.02, "settings": {"method": "evox"}})
    with SqliteSaver.from_conn_string(path) as saver:
        graph = create_discovery_graph(
            toy_problem(),
            model,
            budget=0.01,
            price=Price(1, 2),
            checkpointer=saver,
            lost_calls="ignore",
            choices=Choices(max_budget=0.05, settings=["method"]),
        )
        if is_resumed:
            given, context = None, None
        found = graph.invoke(given, THREAD, context=context, durability="sync")
        end.send((found["spent"], found["best_program"]))


def test_a_run_that_was_killed_is_resumed_with_what_it_chose(tmp_path):
    def run(name, num_calls, is_resumed=False):
        end, sent = PROCESSES.Pipe(duplex=False)
        words = (str(tmp_path / name), num_calls, is_resumed, sent)
        process = PROCESSES.Process(target=choosing, args=words)
        process.start()
        sent.close()
        process.join(PATIENCE_SECONDS)
        return process.exitcode, end.recv() if end.poll() and not process.exitcode else None

    assert run("a.sqlite", 4)[0] == -signal.SIGKILL
    resumed = run("a.sqlite", -1, is_resumed=True)
    assert resumed == run("b.sqlite", -1)
    assert resumed[0] == 0
    assert resumed[1] is not None


def test_a_problem_to_choose_from_exists():
    with pytest.raises(ValueError, match="problems: problem is 'nope'; expected the path of a"):
        Choices(problems=["nope"])
    assert Choices(problems=["circle_packing", toy_problem()]).max_budget is None


def test_searches_of_many_budgets_do_not_fill_the_memory():
    class Search:
        """Stands for the search of a choice."""

    made = []

    def build(chosen):
        search = Search()
        made.append(ref(search))
        return search

    overrides = RunOverrides(BaseModel, {}, dict, build)
    for number in range(1000):
        overrides.search({"budget": float(number)})
    assert 1 <= sum(each() is not None for each in made) <= 64
    assert overrides.search({"budget": 999.0}) is made[-1]()
    assert len(made) == 1000
