"""The records of the state come back from every saver as the frozen dataclasses they were."""

import logging
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, StateGraph
from typing_extensions import TypedDict

from costada.controller.allocation import Action, Allocation, Frontier
from costada.controller.arms import ModelRecord
from costada.controller.baselines.adaevolve import AdaEvolve
from costada.controller.baselines.adaevolve_frontiers import AdaEvolveFrontier
from costada.controller.baselines.best_of_n import BestOfN
from costada.controller.baselines.uniform import Uniform
from costada.controller.costada import CostAda
from costada.controller.costada_thompson import CostAdaThompson
from costada.controller.credit import Credit
from costada.controller.guidance import GuidanceCycle, Mode
from costada.controller.router import Router
from costada.nodes.saved_state import seal_of
from costada.nodes.state import (
    Account,
    ArchiveVersion,
    Attempt,
    Flight,
    FrozenValue,
    Observed,
    Run,
    SearchState,
    SteeredBy,
    Step,
    Ticket,
    plain,
    restore,
)
from costada.store.checkpoints import RunSaver
from costada.store.rows import LandedTickets

evox = pytest.importorskip("costada.plugins.evox.controller")

THREAD = {"configurable": {"thread_id": "1"}}
STEP = Step(
    ticket=3,
    allocation=Allocation(1, Action.EXPLOITATION, 1 / 3),
    iteration=2,
    attempt=Attempt(number=2, inspirations=("1.1", "0.1"), model="b", failure="a", score=1e-300),
    earlier=(Attempt(number=1, model="a", failure="b", is_refused=True),),
    refused=("a",),
    is_guided=True,
    credit=Credit(1 / 3, 1e-300, 1.5, 0.1 + 0.2, 0.0),
    steered=SteeredBy(1, "tactic", "c"),
)
VERSION = ArchiveVersion(2, 5)
TICKETS = (
    Ticket(4, 1, STEP, "d", 0.1 + 0.2, LandedTickets(4, (3, 4)), 1, VERSION, "1.1"),
    Ticket(5, 0, None, "e", 0.0, LandedTickets(5, ()), 1, VERSION, "1.1"),
)
RECORDS = (
    Run("a", 7, "key"),
    STEP,
    Flight(TICKETS, 5, (3, 4, 5), 0, 2, True, 8),
    VERSION,
    Account(0.5, 1 / 3, (2, 0.1), 0.7),
    Observed({"guide": 0.1}, {"traceparent": "00-1-2-01"}),
)
CYCLE = GuidanceCycle(Mode.REFINEMENT, 0.2, (0, 1, 2), 1, True, True)
CONTROLLERS = (
    CostAda(17, (Frontier(0.1, 1 / 3, 1e-300, 8), Frontier(0.7)), 0.7, 3, 0.1 * 3, True),
    CostAda(1, (Frontier(0.5),), 0.5, mode_override=Mode.BREAKTHROUGH, cycle=CYCLE),
    CostAda(1, (Frontier(0.5),), 0.5, pending=Mode.REFINEMENT, held_frontier=0, guide_failed=True),
    CostAdaThompson(
        3,
        (Frontier(0.1), Frontier(0.7)),
        0.7,
        router=Router("ucb1", (ModelRecord("1", 1 / 3, 3, 1e-300, True), ModelRecord("2")), 0.1),
    ),
    AdaEvolve(
        iteration=3,
        incumbent_score=0.5,
        frontiers=(AdaEvolveFrontier(), AdaEvolveFrontier(0.4, 0.1, 1, 2, 2, 0.5, 1.5, "pareto")),
        global_best=0.5,
        history=(True, False),
        cycle=CYCLE,
        pending=Mode.BREAKTHROUGH,
    ),
    Uniform(incumbent_score=0.5, best_scores=(0.1, 0.5)),
    BestOfN(iteration=2, incumbent_score=-1.5, stagnation=2),
    evox.EvoX(
        *(3, 0.5, 0.4, 0.5, 2, "a", 1, True, None),
        (evox.ScoredStrategy("", 0.1, 0, 1, 0.3, 0.4),),
    ),
)
STRICT = JsonPlusSerializer(allowed_msgpack_modules=None)


def sqlite_saver(path: Path) -> SqliteSaver:
    return SqliteSaver(sqlite3.connect(path, check_same_thread=False), serde=STRICT)


SAVERS: dict[str, Callable[[Path], BaseCheckpointSaver[Any]]] = {
    "a run file's": RunSaver,
    "a user's in memory": lambda path: InMemorySaver(),
    "a user's in memory, strict": lambda path: InMemorySaver(serde=STRICT),
    "a user's file, strict": sqlite_saver,
}


KEYS = ("controller", "run", "step", "flight", "archives", "account", "observed")


def by_key(records: tuple[Any, ...]) -> dict[str, Any]:
    return dict(zip(KEYS[1:], records, strict=True))


def passing_on(controller: Any) -> StateGraph[Any, Any, Any, Any]:
    graph = StateGraph(SearchState)
    graph.add_node("first", lambda state: {"controller": controller, **by_key(RECORDS)})
    graph.add_node("second", lambda state: {"iterations": 1})
    graph.add_edge(START, "first")
    graph.add_edge("first", "second")
    graph.add_edge("second", END)
    return graph


@pytest.mark.parametrize("saver", SAVERS)
@pytest.mark.parametrize("controller", CONTROLLERS, ids=lambda each: type(each).__name__)
def test_values_come_back_equal_and_nothing_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, saver: str, controller: Any
) -> None:
    with caplog.at_level(logging.WARNING, "langgraph"):
        opened = SAVERS[saver](tmp_path / "run.sqlite")
        graph = passing_on(controller).compile(checkpointer=opened, interrupt_before=["second"])
        graph.invoke({"seed": 1}, THREAD)
        values = graph.get_state(THREAD).values
        assert {key: values[key] for key in KEYS} == {"controller": controller, **by_key(RECORDS)}
        after = graph.invoke(None, THREAD)
        assert (after["controller"], type(after["controller"])) == (controller, type(controller))
        if isinstance(opened, RunSaver):
            saved = opened.get_tuple(THREAD).checkpoint["channel_values"]
            assert restore(saved)["flight"] == by_key(RECORDS)["flight"]
    assert caplog.messages == []
    if isinstance(opened, SqliteSaver):
        opened.conn.close()


@pytest.mark.parametrize("serde", [None, STRICT], ids=["permissive", "strict"])
def test_values_come_back_in_a_graph_around_the_search(serde: Any) -> None:
    class Outer(TypedDict, total=False):
        iterations: int
        controller: Any

    search = passing_on(CONTROLLERS[1]).compile(interrupt_before=["second"])
    outer = StateGraph(Outer)
    outer.add_node("search", search)
    outer.add_edge(START, "search")
    graph = outer.compile(checkpointer=InMemorySaver(serde=serde))
    graph.invoke({}, THREAD)
    (task,) = graph.get_state(THREAD, subgraphs=True).tasks
    assert task.state is not None
    assert task.state.values["controller"] == CONTROLLERS[1]
    graph.invoke(None, THREAD)
    assert graph.get_state(THREAD).values["iterations"] == 1


@pytest.mark.parametrize("value", [*CONTROLLERS, *RECORDS], ids=lambda value: type(value).__name__)
def test_a_pending_write_is_plain_and_comes_back_equal(value: Any) -> None:
    """The write of a node that finished just before a crash is saved outside its channel."""
    saved = STRICT.loads_typed(STRICT.dumps_typed(plain(value)))
    channel = FrozenValue(object)
    channel.update([saved])
    assert saved == plain(value)
    assert channel.get() == value


def test_a_checkpoint_of_an_unknown_method_is_refused() -> None:
    expected = "checkpoint: it holds Foreign, expected one of Run, Step, Flight, ArchiveVersion"
    with pytest.raises(ValueError, match=expected):
        FrozenValue(object).from_checkpoint(["Foreign", {"iteration": 1}])


def test_a_plain_dataclass_of_a_third_party_survives_a_checkpoint() -> None:
    @dataclass(frozen=True)
    class Plain(Uniform):
        pass

    from costada.controller.methods import METHODS, Method

    controller = replace(Plain(incumbent_score=0.5, best_scores=(0.1, 0.5)), iteration=4)
    METHODS["plain"] = Method("plain", Plain, "as uniform", {})
    try:
        channel = FrozenValue(object)
        channel.update([controller])
        loaded = STRICT.loads_typed(STRICT.dumps_typed(channel.checkpoint()))
        assert channel.from_checkpoint(loaded).get() == controller
    finally:
        del METHODS["plain"]


def test_a_seal_tells_numbers_that_are_not_finite_from_each_other_and_from_none() -> None:
    values = (None, 1.0, float("inf"), float("-inf"), float("nan"))
    seals = {seal_of({"account": Account(granted=value)}, "key") for value in values}
    assert len(seals) == len(values)
