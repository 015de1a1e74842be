"""The discovery graph: its nodes, their edges in the order of a step, and the public factory."""

from collections.abc import Callable, Hashable
from functools import partial
from typing import Any

from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, StateGraph

from costada.controller.constants import Constants
from costada.evaluators.problem import Problem
from costada.graph.arguments import check_arguments, check_generator, check_purse, check_saver
from costada.graph.compiled import DiscoveryGraph as DiscoveryGraph
from costada.graph.observed_nodes import cancellable, watched
from costada.graph.routes import (
    after_allocation,
    after_answer,
    after_approval,
    after_evaluation,
    after_guide,
    next_step,
    step_or_question,
)
from costada.models.prices import price_book
from costada.models.retries import with_visible_requests
from costada.nodes.allocate_frontier import allocate_frontier
from costada.nodes.approve_guide import approve_guide
from costada.nodes.ask_for_budget import ask_for_budget
from costada.nodes.build_context import build_context
from costada.nodes.charge_ledger import charge_ledger
from costada.nodes.context import ChatModel, RunContext
from costada.nodes.evaluate import evaluate
from costada.nodes.gate_intervention import gate_intervention
from costada.nodes.generate import generate
from costada.nodes.guide import guide
from costada.nodes.settings import Settings
from costada.nodes.state import SearchInput, SearchOutput, SearchState
from costada.nodes.update_utility import update_utility
from costada.store.checkpoints import RunSaver
from costada.store.purse import Purse
from costada.store.run_store import RunStore
from costada.values.prices import Price


def store_beside(checkpointer: BaseCheckpointSaver[Any] | bool | None) -> RunStore:
    """Return a store that lives as long as the checkpoints do.

    An SQLite saver shares its file; without a saver, with one in memory or with a parent graph's
    the store is in memory.

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
        " process; expected RunStore(path), so that a resumed run finds its programs again"
    )


NODES: tuple[Callable[..., SearchState], ...] = (
    allocate_frontier,
    build_context,
    generate,
    evaluate,
    charge_ledger,
    update_utility,
    gate_intervention,
    guide,
)

CONTROL_NODES = 9
"""Nodes a step passes at most: allocate, approve, guide, and twice charge, update and gate."""

ATTEMPT_NODES = 3
"""Nodes every attempt passes: build context, generate, evaluate."""


def create_discovery_graph(
    problem: Problem,
    model: ChatModel,
    *,
    budget: float,
    guide_model: ChatModel | None = None,
    settings: Settings | None = None,
    checkpointer: BaseCheckpointSaver[Any] | bool | None = None,
    store: RunStore | None = None,
    purse: Purse | None = None,
    name: str = "costada",
) -> DiscoveryGraph:
    """Return a compiled graph whose every run improves a problem's program within a budget.

    Args:
        problem: The starting program and its evaluator.
        model: The chat model that proposes programs; may be wrapped in retries or fallbacks.
        budget: Dollars a run may spend (B). The step that crosses it completes, then the run stops.
        guide_model: The chat model that is asked for tactics; `model` when not given.
        settings: Controller constants, seed and prices.
        checkpointer: A LangGraph saver, as for any graph.
        store: Where programs and calls are kept. When not given they are kept in the file of an
            SQLite `checkpointer`, and otherwise in memory.
        purse: A purse that each run draws its budget from, as an account named by its run id, and
            returns to at its end what it did not spend. Where less than the budget is left, a run
            is lent what there is; a hard purse raises `OverBudget` when the run begins.
        name: Name of the graph.

    Raises:
        ValueError: An argument is not what it should be, a model that may be called has no price
            or two, or retries by itself where nobody could see it, a guide price comes without a
            guide model, the caller is to be asked for more budget or about guides without a saver
            that could keep the question, the purse is hard and the budget policy is not, or the
            model is to use tools and cannot.
    """
    settings = settings or Settings()
    check_arguments(problem, budget, guide_model, settings, store)
    check_saver(settings, checkpointer)
    check_purse(purse, settings)
    model = with_visible_requests(model, settings.retry_policy)
    check_generator(settings, model)
    if guide_model is not None:
        guide_model = with_visible_requests(guide_model, settings.retry_policy)
    context = RunContext(
        name=name,
        problem=problem,
        model=model,
        guide_model=guide_model or model,
        budget=budget,
        settings=settings,
        prices=price_book(_priced_models(model, guide_model, settings), settings.other_prices),
        store=store or store_beside(checkpointer),
        purse=purse,
        is_saved_by_time=not isinstance(checkpointer, RunSaver),
    )
    return _compiled(context, checkpointer)


def _compiled(
    context: RunContext, checkpointer: BaseCheckpointSaver[Any] | bool | None
) -> DiscoveryGraph:
    graph = build_discovery_graph(context).compile(checkpointer=checkpointer, name=context.name)
    limit = superstep_limit(context.settings.constants)
    return DiscoveryGraph.of(graph).with_config(recursion_limit=limit)


def build_discovery_graph(
    context: RunContext,
) -> StateGraph[SearchState, None, SearchInput, SearchOutput]:
    """Return the graph before it is compiled, for callers who add nodes of their own."""
    settings = context.settings
    graph = StateGraph(SearchState, input_schema=SearchInput, output_schema=SearchOutput)
    _add_nodes(graph, context)
    guide_first = "approve_guide" if settings.approve_guides else "guide"
    before_attempt: dict[Hashable, str] = {"attempt": "build_context", "preparation": guide_first}
    retry = partial(after_evaluation, settings=settings)
    after_attempt: dict[Hashable, str] = {"retry": "build_context", "charge": "charge_ledger"}
    graph.add_edge(START, "allocate_frontier")
    graph.add_conditional_edges("allocate_frontier", after_allocation, before_attempt)
    graph.add_edge("build_context", "generate")
    graph.add_edge("generate", "evaluate")
    graph.add_conditional_edges("evaluate", retry, after_attempt)
    graph.add_edge("charge_ledger", "update_utility")
    graph.add_edge("update_utility", "gate_intervention")
    _add_end_of_step(graph, guide_first, context)
    _add_guide(graph, context)
    return graph


def _add_nodes(
    graph: StateGraph[SearchState, None, SearchInput, SearchOutput], context: RunContext
) -> None:
    for node in NODES:
        ready = watched(node, context)
        is_long = node in (generate, evaluate, guide)
        graph.add_node(node.__name__, cancellable(ready, node.__name__) if is_long else ready)


def _add_guide(
    graph: StateGraph[SearchState, None, SearchInput, SearchOutput], context: RunContext
) -> None:
    """Add the edges around the guide, by way of the caller if guides are to be approved."""
    after_call: dict[Hashable, str] = {"next step": "allocate_frontier", "settle": "charge_ledger"}
    if context.settings.approve_guides:
        graph.add_node("approve_guide", watched(approve_guide, context))
        decided: dict[Hashable, str] = {"buy": "guide", "question": "approve_guide", **after_call}
        graph.add_conditional_edges("approve_guide", after_approval, decided)
    graph.add_conditional_edges("guide", after_guide, after_call)


def _add_end_of_step(
    graph: StateGraph[SearchState, None, SearchInput, SearchOutput],
    guide_first: str,
    context: RunContext,
) -> None:
    """Add the edges behind the last node of a step, by way of the caller if it is to be asked."""
    ways: dict[Hashable, str] = {
        "next step": "allocate_frontier",
        "intervention": guide_first,
        "stop": END,
    }
    if context.settings.on_exhausted == "stop":
        graph.add_conditional_edges("gate_intervention", next_step, ways)
        return
    route = partial(step_or_question, constants=context.settings.constants)
    with_question: dict[Hashable, str] = {**ways, "question": "ask_for_budget"}
    graph.add_node("ask_for_budget", watched(ask_for_budget, context))
    graph.add_conditional_edges("gate_intervention", route, with_question)
    graph.add_conditional_edges("ask_for_budget", after_answer, with_question)


def superstep_limit(constants: Constants) -> int:
    """Return the most supersteps a run can take, so that no user has to raise a limit."""
    per_iteration = CONTROL_NODES + ATTEMPT_NODES * constants.max_attempts
    return constants.max_iterations * per_iteration + 1


def _priced_models(
    model: ChatModel, guide_model: ChatModel | None, settings: Settings
) -> list[tuple[ChatModel, Price | None]]:
    guides = [] if guide_model is None else [(guide_model, settings.guide_price)]
    return [(model, settings.price), *guides]
