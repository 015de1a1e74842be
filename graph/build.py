"""The discovery graph: its nodes, their edges in the order of a step, and its factory."""

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, StateGraph
from typing_extensions import Unpack

from costada.controller.methods import METHODS
from costada.evaluators.problem import Problem
from costada.graph.compiled import DiscoveryGraph as DiscoveryGraph
from costada.graph.graph_input import RunOverrides, SearchContext
from costada.graph.node_execution import CancellableNode, takes_config, wrap_node
from costada.graph.routes import (
    AFTER_CALL,
    AFTER_GATE,
    Branch,
    after_allocation,
    after_answer,
    after_approval,
    after_choice,
    after_context,
    after_evaluation,
    after_generation,
    after_guide,
)
from costada.graph.run_context import GivenModels, SearchOptions, run_context
from costada.models.menu import MenuModel
from costada.nodes.allocate_frontier import allocate_frontier
from costada.nodes.approve_guide import approve_guide
from costada.nodes.ask_for_budget import ask_for_budget
from costada.nodes.attempts import take_user_input
from costada.nodes.build_context import build_context
from costada.nodes.charge_ledger import charge_ledger
from costada.nodes.choose_model import choose_model, teach_router
from costada.nodes.context import ChatModel, Node, PayingNode, RunContext
from costada.nodes.evaluate import evaluate
from costada.nodes.gate_intervention import gate_intervention
from costada.nodes.generate import generate
from costada.nodes.guide import guide
from costada.nodes.in_flight import land_tickets, launch_attempts, launch_guides
from costada.nodes.saved_state import STORED_KEYS, StoredValue
from costada.nodes.settings import Settings
from costada.nodes.state import SearchInput, SearchOutput, SearchState
from costada.nodes.update_utility import update_utility
from costada.store.checkpoints import RunCheckpoints
from costada.store.run_store import RunStore

NODES: Mapping[str, Node | PayingNode] = {
    "allocate_frontier": allocate_frontier,
    "build_context": take_user_input(build_context),
    "choose_model": choose_model,
    "generate": generate,
    "evaluate": teach_router(land_tickets(evaluate, generate, guide)),
    "charge_ledger": charge_ledger,
    "update_utility": update_utility,
    "gate_intervention": gate_intervention,
    "guide": guide,
    "ask_for_budget": ask_for_budget,
    "approve_guide": approve_guide,
}
"""The steps of the method, and the two nodes that ask the caller.

A run with one step at a time lands what an earlier process has left in flight.
"""

IN_FLIGHT: Mapping[str, Node | PayingNode] = {
    "generate": launch_attempts(generate, evaluate),
    "guide": launch_guides(guide),
}
"""What stands in their place where several steps may be in flight (K > 1)."""

BRANCHES: Mapping[str, Branch] = {
    "allocate_frontier": Branch(
        after_allocation,
        {
            "attempt": "build_context",
            "preparation": "guide",
            "approval": "approve_guide",
            "landing": "evaluate",
            "stop": END,
        },
    ),
    "build_context": Branch(
        after_context,
        {"proposal": "generate", "choice": "choose_model", "submission": "evaluate"},
    ),
    "choose_model": Branch(after_choice, {"proposal": "generate", "unaffordable": "charge_ledger"}),
    "generate": Branch(after_generation, {"another": "allocate_frontier", "landing": "evaluate"}),
    "evaluate": Branch(
        after_evaluation,
        {
            "retry": "build_context",
            "other model": "choose_model",
            "charge": "charge_ledger",
            "prepared": "allocate_frontier",
            "no step": "gate_intervention",
        },
    ),
    "gate_intervention": AFTER_GATE,
    "ask_for_budget": replace(AFTER_GATE, route=after_answer),
    "approve_guide": Branch(
        after_approval, {"buy": "guide", "question": "approve_guide", **AFTER_CALL}
    ),
    "guide": Branch(after_guide, AFTER_CALL),
}
"""Who may go next after a node; `charge_ledger` and `update_utility` have one follower each."""


def build_discovery_graph(
    context: RunContext, *, max_parallel: int = 1, methods: Collection[str] = ()
) -> StateGraph[SearchState, SearchContext, SearchInput, SearchOutput]:
    """Build the graph before it is compiled, for callers who add nodes of their own.

    Args:
        context: That of a run whose caller chooses nothing.
        max_parallel: Most steps that a run may have in flight.
        methods: Methods that a run may use beside that of the context.
    """
    graph: StateGraph[SearchState, SearchContext, SearchInput, SearchOutput] = StateGraph(
        SearchState, input_schema=SearchInput, output_schema=SearchOutput
    )
    for key in STORED_KEYS:
        kept = graph.channels[key]
        graph.channels[key] = StoredValue(kept.ValueType, key, context.store)
    nodes = {**NODES, **IN_FLIGHT} if max(max_parallel, context.parallel) > 1 else {**NODES}
    branches = {**BRANCHES}
    for name in (context.method.name, *methods):
        if (inner := METHODS[name].inner) is None:
            continue
        nodes.update(inner.nodes)
        for source, (route, ends) in inner.routes.items():
            branches[source] = Branch(route, {**ends, "charge": "charge_ledger"})
        evaluated = branches["evaluate"]
        first = {name: next(iter(inner.nodes))}
        branches["evaluate"] = replace(evaluated, ends={**first, **evaluated.ends})
    for name, node in nodes.items():
        branch = branches.get(name)
        # LangGraph has no type for a node that takes a config and a runtime
        ready: Any = wrap_node(node, name, context, branch)
        graph.add_node(
            name,
            CancellableNode(ready, name) if takes_config(node) else ready,
            destinations={end: label for label, end in branch.ends.items()} if branch else None,
        )
    graph.add_edge(START, "allocate_frontier")
    graph.add_edge("charge_ledger", "update_utility")
    graph.add_edge("update_utility", "gate_intervention")
    return graph


def compile_search(
    problem: Problem,
    model: GivenModels,
    *,
    guide_model: ChatModel | None = None,
    settings: Settings | None = None,
    granted: Mapping[str, Mapping[str, MenuModel]] | None = None,
    checkpointer: BaseCheckpointSaver[Any] | bool | None = None,
    store: RunStore | None = None,
    **options: Unpack[SearchOptions],
) -> DiscoveryGraph:
    """Compile the graph of a search from a problem, chat models and settings.

    Args:
        problem: See `run_context`, which also takes the options.
        model: The same.
        guide_model: The same.
        settings: The same.
        granted: The same.
        checkpointer: A LangGraph saver, as for any graph.
        store: Where programs and calls are kept. When not given they are kept in the file of an
            SQLite `checkpointer`, and otherwise in memory.
        **options: The budget and further `SearchOptions`.

    Raises:
        ValueError: As `run_context`, or the caller is to be asked for more budget or about
            guides without a saver that could keep the question.
    """
    context = run_context(
        problem,
        model,
        store=store or store_beside(checkpointer),
        guide_model=guide_model,
        settings=settings,
        granted=granted,
        **options,
    )
    return compile_graph(context, checkpointer)


def compile_graph(
    context: RunContext,
    checkpointer: BaseCheckpointSaver[Any] | bool | None = None,
    overrides: RunOverrides | None = None,
) -> DiscoveryGraph:
    """Compile the graph of a search.

    Args:
        context: That of a run whose caller chooses nothing.
        checkpointer: A LangGraph saver, as for any graph.
        overrides: What the caller of a run may choose.

    Raises:
        ValueError: The caller is to be asked something without a saver to keep the question.
    """
    context = saved_by(checkpointer, context)
    max_parallel = overrides.max_parallel if overrides else 1
    methods = overrides.methods if overrides else ()
    graph = build_discovery_graph(context, max_parallel=max_parallel, methods=methods)
    compiled = graph.compile(checkpointer=checkpointer, name=context.name)
    return DiscoveryGraph.of(compiled, context, overrides)


def saved_by(
    checkpointer: BaseCheckpointSaver[Any] | bool | None, context: RunContext
) -> RunContext:
    """The context of a search with a saver.

    Raises:
        ValueError: The caller is to be asked something, and the saver would not keep the question.
    """
    _check_saver(context.settings, checkpointer)
    return replace(context, is_saved_by_time=not isinstance(checkpointer, RunCheckpoints))


def store_beside(checkpointer: BaseCheckpointSaver[Any] | bool | None) -> RunStore:
    """Open a store that lasts as long as the checkpoints.

    With an SQLite saver, it is in the saver's file. Without a saver, or with one in memory or of a
    parent graph, it is in memory.

    Raises:
        ValueError: The saver keeps its checkpoints somewhere this function does not know.
    """
    if isinstance(checkpointer, SqliteSaver):
        ((_, _, path), *_) = checkpointer.conn.execute("PRAGMA database_list").fetchall()
        return RunStore(path or None)
    if isinstance(checkpointer, InMemorySaver | bool | None):
        return RunStore()
    raise ValueError(
        f"store: got None with a {type(checkpointer).__name__}, whose checkpoints outlive this"
        " process; expected RunStore(path) or RunStore.postgres(address), so that a resumed run"
        " finds its programs again"
    )


def _check_saver(settings: Settings, checkpointer: BaseCheckpointSaver[Any] | bool | None) -> None:
    """Refuse to ask the caller anything where no checkpoint would keep the run."""
    asks = {
        "on_exhausted": settings.on_exhausted == "interrupt",
        "approve_guides": settings.approve_guides,
    }
    for field, is_asking in asks.items():
        if is_asking and not checkpointer:
            raise ValueError(
                f"{field}: got {getattr(settings, field)!r} with checkpointer {checkpointer!r},"
                " expected a LangGraph saver, or True below a parent graph that has one"
            )
