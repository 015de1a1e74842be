"""Savers of ours keep the checkpoints of any graph, not of searches alone."""

import asyncio
import operator
from typing import Annotated

import pytest
from langgraph.checkpoint.conformance import checkpointer_test, validate
from langgraph.graph import END, START, StateGraph
from toy_graph import THREAD, discovery
from typing_extensions import TypedDict
from waiting import within

from costada.store.run_store import RunStore


class State(TypedDict, total=False):
    iterations: int
    notes: Annotated[list[str], operator.add]


class Tasks:
    """Two paid tasks side by side after a step: one fails as soon as the other's result is kept."""

    def __init__(self, saver, *, is_broken=True) -> None:
        self.saver, self.is_broken = saver, is_broken
        self.paid: list[str] = []

    def keeps_a_result(self) -> bool:
        # The last checkpoint may still be an earlier one, which has the input of this run.
        writes = self.saver.get_tuple(THREAD).pending_writes
        return "sound" in self.paid and ("notes", ["sound"]) in [each[1:] for each in writes]

    def count(self, state: State) -> State:
        return {"iterations": state.get("iterations", 0) + 1}

    def sound(self, state: State) -> State:
        self.paid.append("sound")
        return {"notes": ["sound"]}

    def failing(self, state: State) -> State:
        if self.is_broken:
            within(60, self.keeps_a_result)
            raise RuntimeError("no answer")
        self.paid.append("failing")
        return {"notes": ["failing"]}

    def graph(self):
        graph = StateGraph(State)
        for node in (self.count, self.sound, self.failing):
            graph.add_node(node.__name__, node)
        graph.add_edge(START, "count")
        for name in ("sound", "failing"):
            graph.add_edge("count", name)
            graph.add_edge(name, END)
        return graph.compile(checkpointer=self.saver)


@pytest.mark.parametrize("keep_history", [False, True])
def test_the_conformance_tests_of_langgraph_pass(open_saver, keep_history):
    @checkpointer_test(name="a saver of ours")
    async def one_saver():
        yield open_saver(keep_history=keep_history)

    report = asyncio.run(validate(one_saver))
    failures = {name: each.failures for name, each in report.results.items() if each.failures}
    assert failures == {}
    assert report.passed_all_base()


@pytest.mark.parametrize("is_async", [False, True])
def test_a_parallel_node_that_has_ended_is_not_paid_for_again(open_saver, is_async):
    tasks = Tasks(open_saver())
    graph = tasks.graph()

    def run(given):
        if is_async:
            return asyncio.run(graph.ainvoke(given, THREAD))
        return graph.invoke(given, THREAD)

    # The second time it begins where it has ended, as a conversation does.
    for given in ({}, {"notes": ["again"]}):
        tasks.is_broken, tasks.paid = True, []
        with pytest.raises(RuntimeError, match="no answer"):
            run(given)
        assert tasks.paid == ["sound"]
        tasks.is_broken = False
        found = run(None)
        assert tasks.paid == ["sound", "failing"]
    assert sorted(found["notes"]) == ["again", "failing", "failing", "sound", "sound"]
    assert found["iterations"] == 2


def test_results_are_kept_of_a_graph_on_a_thread_that_was_a_searchs_before(open_saver):
    saver = open_saver()
    discovery(store=RunStore(), saver=saver, iterations=1).invoke({}, THREAD)
    saver.delete_thread("1")
    tasks = Tasks(saver)
    with pytest.raises(RuntimeError, match="no answer"):
        tasks.graph().invoke({}, THREAD)
    assert tasks.paid == ["sound"]


def test_a_thread_of_a_search_that_was_deleted_within_an_iteration_stays_deleted(open_saver):
    saver = open_saver()
    graph = discovery(store=RunStore(), saver=saver, iterations=3)
    evaluated = 0
    steps = graph.stream({}, THREAD, stream_mode="updates")
    for update in steps:
        evaluated += "evaluate" in update
        if evaluated == 2:
            steps.close()
    saver.delete_thread("1")
    assert saver.get_tuple(THREAD) is None
