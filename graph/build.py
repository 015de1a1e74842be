"""The discovery graph: its nodes, their edges in the order of a step, and the public factory."""

from collections.abc import Callable, Hashable
from functools import partial
from typing import Any

from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.graph import END, START, StateGraph
from langgraph.graph.state import CompiledStateGraph

from costada.controller.constants import Constants
from costada.controller.ledger import Price
from costada.evaluators.problem import Problem
from costada.graph.arguments import check_arguments, check_saver
from costada.graph.routes import (
    after_allocation,
    after_answer,
    after_evaluation,
    after_guide,
    next_step,
    step_or_question,
)
from costada.graph.state import SearchInput, SearchOutput, SearchState
from costada.graph.storage import store_beside
from costada.models.quiet import accountable
from costada.nodes.allocate_frontier import allocate_frontier
from costada.nodes.ask_for_budget import ask_for_budget
from costada.nodes.build_context import build_context
from costada.nodes.cancellable import cancellable
from costada.nodes.charge_ledger import charge_ledger
from costada.nodes.context import ChatModel, RunContext
from costada.nodes.evaluate import evaluate
from costada.nodes.gate_intervention import gate_intervention
from costada.nodes.generate import generate
from costada.nodes.guide import guide
from costada.nodes.pricing import price_book
from costada.nodes.settings import Settings
from costada.nodes.update_utility import update_utility
from costada.store.run_store import RunStore

DiscoveryGraph = CompiledStateGraph[SearchState, None, SearchInput, SearchOutput]

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

CONTROL_NODES = 8
"""Nodes a step passes at most: allocate, guide, and twice charge, update and gate."""

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
        name: Name of the graph.

    Raises:
        ValueError: An argument is not what it should be, a model that may be called has no price
            or two, or retries by itself where nobody could see it, a guide price comes without a
            guide model, or the caller is to be asked for more budget without a saver that could
            keep the question.
    """
    settings = settings or Settings()
    check_arguments(problem, budget, guide_model, settings, store)
    check_saver(settings, checkpointer)
    model = accountable(model)
    guide_model = None if guide_model is None else accountable(guide_model)
    context = RunContext(
        name=name,
        problem=problem,
        model=model,
        guide_model=guide_model or model,
        budget=budget,
        settings=settings,
        prices=price_book(_priced_models(model, guide_model, settings), settings.other_prices),
        store=store or store_beside(checkpointer),
    )
    graph = build_discovery_graph(context).compile(checkpointer=checkpointer, name=name)
    return graph.with_config(recursion_limit=superstep_limit(settings.constants))


def build_discovery_graph(
    context: RunContext,
) -> StateGraph[SearchState, None, SearchInput, SearchOutput]:
    """Return the graph before it is compiled, for callers who add nodes of their own."""
    graph = StateGraph(SearchState, input_schema=SearchInput, output_schema=SearchOutput)
    for node in NODES:
        ready = partial(node, context=context)
        is_long = node is evaluate
        graph.add_node(node.__name__, cancellable(ready, "evaluate") if is_long else ready)

    before_attempt: dict[Hashable, str] = {"attempt": "build_context", "preparation": "guide"}
    after_call: dict[Hashable, str] = {"next step": "allocate_frontier", "settle": "charge_ledger"}
    retry = partial(after_evaluation, settings=context.settings)
    after_attempt: dict[Hashable, str] = {"retry": "build_context", "charge": "charge_ledger"}
    graph.add_edge(START, "allocate_frontier")
    graph.add_conditional_edges("allocate_frontier", after_allocation, before_attempt)
    graph.add_edge("build_context", "generate")
    graph.add_edge("generate", "evaluate")
    graph.add_conditional_edges("evaluate", retry, after_attempt)
    graph.add_edge("charge_ledger", "update_utility")
    graph.add_edge("update_utility", "gate_intervention")
    _add_end_of_step(graph, context)
    graph.add_conditional_edges("guide", after_guide, after_call)
    return graph


def _add_end_of_step(
    graph: StateGraph[SearchState, None, SearchInput, SearchOutput], context: RunContext
) -> None:
    """Add the edges behind the last node of a step, by way of the caller if it is to be asked."""
    ways: dict[Hashable, str] = {
        "next step": "allocate_frontier",
        "intervention": "guide",
        "stop": END,
    }
    if context.settings.on_exhausted == "stop":
        graph.add_conditional_edges("gate_intervention", next_step, ways)
        return
    route = partial(step_or_question, constants=context.settings.constants)
    with_question: dict[Hashable, str] = {**ways, "question": "ask_for_budget"}
    graph.add_node("ask_for_budget", partial(ask_for_budget, context=context))
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
