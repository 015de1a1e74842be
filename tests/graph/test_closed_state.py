"""The state of a search is its own: what a caller sends changes no limit and buys no step."""

import asyncio

import pytest
from fakes import ScriptedModel, hashed_answer, toy_problem
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, Send
from toy_graph import PRICE, THREAD
from typing_extensions import TypedDict

from costada import Choices, create_discovery_graph
from costada.graph.graph_input import SETTING_ARGUMENTS
from costada.nodes.state import SearchInput, SearchOutput, SearchState

BUDGET = 0.01
"""Pays for five calls of the toy model."""


class Limited(ScriptedModel):
    max_tokens: int = 1000


def search(saver=None, store=None, model=None, **options):
    model = model or ScriptedModel(answer=hashed_answer)
    limits = options.pop("limits", {"max_budget": 0.02})
    given = {"budget": BUDGET, "price": PRICE, "choices": Choices(**limits), **options}
    saver = saver or InMemorySaver()
    return create_discovery_graph(
        toy_problem(), model, checkpointer=saver, store=store, **given
    ), model


def paused():
    """A graph, its model, and a run that has paused before its second step."""
    graph, model = search()
    for row in graph.stream({}, THREAD, stream_mode="custom"):
        if row["iteration"] == 1:
            break
    return graph, model


@pytest.mark.parametrize("key", [*SearchState.__annotations__, "budget"])
def test_no_key_of_the_state_is_updated(key):
    graph, model = paused()
    before, asked = graph.get_state(THREAD), len(model.prompts)
    for value in ({}, None, "", 9.0):
        for as_node in (None, "gate_intervention", "__input__", "allocate_frontier"):
            with pytest.raises(ValueError, match=rf"state: got an update of \['{key}'\]: the"):
                graph.update_state(THREAD, {key: value}, as_node=as_node)
        with pytest.raises(ValueError, match="state: got an update of"):
            asyncio.run(graph.aupdate_state(THREAD, {key: value}))
        with pytest.raises(ValueError, match=r"update: got .* in a command: the state of"):
            graph.invoke(Command(update={key: value}), THREAD)
    assert (graph.get_state(THREAD), len(model.prompts)) == (before, asked)


@pytest.mark.parametrize("as_node", ["build_context", "__end__", "__copy__", None])
def test_no_node_is_pretended_to_have_written(as_node):
    graph, _ = paused()
    before = graph.get_state(THREAD)
    with pytest.raises(ValueError, match="state: got an update of no key"):
        graph.update_state(THREAD, None, as_node=as_node)
    assert graph.get_state(THREAD) == before


@pytest.mark.parametrize(
    "goto", ["build_context", ["generate"], Send("generate", {"chosen": {"budget": 9}})]
)
@pytest.mark.parametrize("resume", [None, {"tactic": "Halve the step."}])
def test_no_command_leads_to_another_node(goto, resume):
    graph, model = paused()
    asked = len(model.prompts)
    with pytest.raises(ValueError, match=r"goto: got .* in a command: the state of"):
        graph.invoke(Command(goto=goto, resume=resume), THREAD)
    assert len(model.prompts) == asked


def test_a_run_that_has_ended_buys_no_step_when_it_is_resumed():
    graph, model = search()
    whole = graph.invoke({}, THREAD)
    asked = len(model.prompts)
    for _ in range(3):
        assert graph.invoke(None, THREAD) == whole
        assert graph.invoke(None, THREAD, context={"budget": BUDGET}) == whole
    assert len(model.prompts) == asked


def test_a_hard_budget_that_is_used_up_buys_no_step_when_the_same_is_chosen_again():
    """Less than the budget is spent then: what is left pays for no request."""
    graph, _ = search(model=Limited(answer=hashed_answer), budget_policy="hard")
    whole = graph.invoke({}, THREAD)
    assert (whole["stop_reason"], whole["remaining"] > 0) == ("budget", True)
    for context in (None, {"budget": BUDGET}):
        assert graph.invoke(None, THREAD, context=context) == whole


@pytest.mark.parametrize("is_async", [False, True])
def test_a_new_input_does_not_drop_the_calls_of_the_step_in_flight(is_async):
    """The run would have spent nothing by its own account, however often that is repeated."""
    graph, model = search()
    whole = search()[0].invoke({}, THREAD)

    def run(given, **options):
        if is_async:
            return asyncio.run(graph.ainvoke(given, THREAD, **options))
        return graph.invoke(given, THREAD, **options)

    for _ in range(3):
        run({}, interrupt_after=["generate"])
    assert len(model.prompts) == 3
    assert graph.get_state(THREAD).values["spent"] == pytest.approx(0.004)
    assert run({}) == whole
    assert len(graph.search.store.run_ids()) == 1


def test_another_seed_is_refused_while_a_run_is_not_over():
    graph, model = paused()
    asked = len(model.prompts)
    with pytest.raises(ValueError, match="seed: got 3 for a thread whose run began with 0 and is"):
        graph.invoke({"seed": 3}, THREAD)
    assert len(model.prompts) == asked
    assert graph.invoke({"seed": 0}, THREAD)["stop_reason"] == "budget"


class Empty(TypedDict, total=False):
    seed: int
    spent: float


def test_a_search_below_a_parent_is_resumed_by_a_new_input_of_the_parent():
    # Not counted: a connection of any thread here might have been that of an interrupted call.
    graph, model = search(saver=True, lost_calls="ignore")
    parent = StateGraph(Empty)
    parent.add_node("discover", graph)
    parent.add_edge(START, "discover")
    parent.add_edge("discover", END)
    outer = parent.compile(checkpointer=InMemorySaver())
    whole = search()[0].invoke({}, THREAD)
    answers = iter(range(100))

    def answer(prompt):
        if next(answers) in (1, 3):
            raise KeyboardInterrupt
        return hashed_answer(prompt)

    model.answer = answer
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            outer.invoke({"seed": 0}, THREAD)
    outer.invoke({"seed": 0}, THREAD)
    (run_id,) = graph.search.store.run_ids()
    assert graph.search.store.last_step(run_id) == whole["iterations"]


@pytest.mark.parametrize("is_async", [False, True])
def test_what_a_run_has_chosen_is_checked_again_when_the_limits_have_changed(is_async):
    saver = InMemorySaver()
    graph, _ = search(saver)
    list(graph.stream({}, THREAD, context={"budget": 0.02}, interrupt_after=["generate"]))
    store = graph.search.store
    lower, model = search(saver, store, limits={"max_budget": 0.015})
    given, message = (None, THREAD), "run has chosen what is not allowed: context: budget: got 0.02"
    with pytest.raises(ValueError, match=message):
        asyncio.run(lower.ainvoke(*given)) if is_async else lower.invoke(*given)
    with pytest.raises(ValueError, match=message):
        lower.invoke({}, THREAD)
    assert model.prompts == []
    assert lower.get_state(THREAD).values["chosen"] == {"budget": 0.02}


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"budget": 9.0}, "context: budget: got 9.0, expected less than or equal to 0.02"),
        ({"budget": "0.01"}, "context: budget: got '0.01', expected a number"),
        ({"budget": object()}, "context: "),
        ({"settings": {"sandbox": "none"}}, None),
    ],
)
def test_a_context_that_was_made_without_validation_is_validated(values, message, is_async):
    graph, model = search()
    schema = graph.overrides.schema
    context = schema.model_construct(**values)

    def run():
        if is_async:
            return asyncio.run(graph.ainvoke({}, THREAD, context=context))
        return graph.invoke({}, THREAD, context=context)

    if message is None:  # no field of this schema, so pydantic itself has dropped it
        assert run() == search()[0].invoke({}, THREAD)
        return
    with pytest.raises(ValueError, match=message):
        run()
    assert model.prompts == []


def test_settings_that_were_made_without_validation_are_validated():
    graph, model = search(limits={"settings": ["sandbox", "max_iterations"]})
    schema = graph.overrides.schema
    settings = schema.model_fields["settings"].annotation.model_construct(max_iterations=-1)
    with pytest.raises(ValueError, match=r"settings\.max_iterations: got -1"):
        graph.invoke({}, THREAD, context=schema.model_construct(settings=settings))
    assert model.prompts == []


def test_an_answer_grants_no_more_than_a_caller_may_choose():
    graph, model = search(on_exhausted="interrupt")
    graph.invoke({}, THREAD)
    asked = len(model.prompts)
    again = graph.invoke(Command(resume={"budget": 9.0}), THREAD)
    (question,) = again["__interrupt__"]
    assert question.value["refused"].startswith("budget: got 9.0, expected at most 0.02")
    assert len(model.prompts) == asked
    more = graph.invoke(Command(resume={"budget": 0.02}), THREAD)["__interrupt__"][0].value
    assert (more["budget"], more["refused"]) == (0.02, "")


def test_to_ask_for_a_budget_that_no_caller_may_choose_is_refused_when_the_graph_is_built():
    message = "on_exhausted: got 'interrupt' with choices without max_budget"
    with pytest.raises(ValueError, match=message):
        search(on_exhausted="interrupt", limits={})
    graph, _ = search(limits={"settings": ["on_exhausted"]})
    with pytest.raises(ValueError, match=f"context: {message}"):
        graph.invoke({}, THREAD, context={"settings": {"on_exhausted": "interrupt"}})


def test_a_configuration_names_no_setting_and_replaces_nothing_of_a_run():
    graph, model = search()
    for key in SETTING_ARGUMENTS:
        with pytest.raises(ValueError, match=f"got key '{key}', which is not read there"):
            graph.invoke({}, {"configurable": {"thread_id": "1", key: 1}})
    assert model.prompts == []
    free = {"thread_id": "1", "__costada_runs": "x", "chosen": {"budget": 9}}
    found = graph.invoke({}, {"configurable": free, "metadata": {"langgraph_node": "x"}})
    assert found["spent"] == pytest.approx(BUDGET)


class Shared(SearchInput, SearchOutput, total=False):
    """The state of a parent that passes on what a search returns."""


def other_graph(state, saver):
    """A graph of the same server, whose state has keys of the same names."""
    graph = StateGraph(state)
    graph.add_node("other", lambda _: {})
    graph.add_edge(START, "other")
    return graph.compile(checkpointer=saver)


CHANGES = {
    "spent": 0.0,
    "remaining": 9.0,
    "iterations": 0,
    "account": ["Account", {"extended": 9.0}],
    "chosen": {"budget": 0.02},
    "stopping": "flat",
    "run": ["Run", {"id": "another", "seed": 0, "holdout_key": ""}],
    "flight": ["Flight", {"last_ticket": 9}],
    "step": {"attempt": 0},
    "seal": "",
}


NODES = ("gate_intervention", "build_context", "allocate_frontier")


@pytest.mark.parametrize(
    ("key", "node", "is_updated"),
    [
        (key, NODES[(number + is_updated) % len(NODES)], is_updated)
        for number, key in enumerate(CHANGES)
        for is_updated in (True, False)
    ],
)
def test_what_another_graph_has_changed_on_the_thread_is_refused(key, node, is_updated):
    """A server lets a client execute and update any of its graphs on any thread."""
    saver = InMemorySaver()
    graph, model = search(saver)
    graph.invoke({}, THREAD, interrupt_after=["update_utility"])
    graph.invoke(None, THREAD, interrupt_before=[node])
    kept, asked = graph.get_state(THREAD), len(model.prompts)
    other = other_graph(Shared if key in SearchOutput.__annotations__ else SearchState, saver)
    given = {key: CHANGES[key]}
    other.update_state(THREAD, given, "other") if is_updated else other.invoke(given, THREAD)
    for resumed in (None, {}, Command(resume={"tactic": "Halve the step."})):
        with pytest.raises(ValueError, match=r"state: (not as run|got run 'another', which)"):
            graph.invoke(resumed, THREAD)
    assert len(model.prompts) == asked
    assert graph.invoke(None, kept.config)["stop_reason"] == "budget"


@pytest.mark.parametrize("value", ["another", None, {"id": "another"}, 9])
def test_a_run_that_is_no_record_is_refused(value):
    saver = InMemorySaver()
    graph, _ = search(saver)
    graph.invoke({}, THREAD, interrupt_after=["update_utility"])
    other_graph(SearchState, saver).update_state(THREAD, {"run": value}, "other")
    for resumed in (None, {}, {"seed": 3}, Command(resume={"tactic": "Halve the step."})):
        with pytest.raises(ValueError, match=r"state: got run .*, which no search has begun"):
            graph.invoke(resumed, THREAD)


def test_a_run_that_another_graph_reopens_buys_no_step():
    saver = InMemorySaver()
    graph, model = search(saver)
    graph.invoke({}, THREAD)
    asked = len(model.prompts)
    for given in ({"stop_reason": ""}, {"stop_reason": None}, {"spent": 0.0}):
        other_graph(Shared, saver).update_state(THREAD, given, "other")
        with pytest.raises(ValueError, match="state: not as run"):
            graph.invoke(None, THREAD, context={"budget": 0.02})
    assert len(model.prompts) == asked


def test_an_extension_counts_up_to_what_a_caller_may_grant_today():
    saver = InMemorySaver()
    graph, _ = search(saver, on_exhausted="interrupt", limits={"max_budget": 0.04})
    graph.invoke({}, THREAD)
    graph.invoke(Command(resume={"budget": 0.04}), THREAD, interrupt_before=["evaluate"])
    store = graph.search.store
    lower, _ = search(saver, store, on_exhausted="interrupt")
    (question,) = lower.invoke(None, THREAD)["__interrupt__"]
    assert question.value["budget"] == 0.02
    assert question.value["spent"] == pytest.approx(0.02)
