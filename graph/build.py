"""The discovery graph: its nodes, their edges in the order of a step, and its factory."""

from collections.abc import Callable, Hashable, Mapping
from functools import partial
from math import inf
from typing import Any, get_args

from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, StateGraph

from costada.controller.constants import Constants
from costada.controller.router import DEFAULT_ROUTER, start_router
from costada.evaluators.problem import Problem
from costada.graph.choosing import Chosen, SearchContext
from costada.graph.compiled import DiscoveryGraph as DiscoveryGraph
from costada.graph.menu import GivenModels, priced_models, with_reference_cost
from costada.graph.node_wrappers import CancellableNode, Node, Route, observed
from costada.graph.routes import (
    after_allocation,
    after_answer,
    after_approval,
    after_evaluation,
    after_generation,
    after_guide,
    next_step,
    step_or_question,
)
from costada.nodes.allocate_frontier import allocate_frontier
from costada.nodes.approve_guide import approve_guide
from costada.nodes.ask_for_budget import ask_for_budget
from costada.nodes.build_context import build_context, first_prompt
from costada.nodes.calls.budget import check_first_request
from costada.nodes.charge_ledger import charge_ledger
from costada.nodes.context import ChatModel, LandingOrder, RunContext
from costada.nodes.evaluate import evaluate
from costada.nodes.evox.nodes import NODES as EVOX_NODES
from costada.nodes.gate_intervention import gate_intervention
from costada.nodes.generate import generate
from costada.nodes.guide import guide
from costada.nodes.settings import LARGEST_PARALLEL, Settings
from costada.nodes.state import SearchInput, SearchOutput, SearchState
from costada.nodes.stored_value import FORMS, StoredValue
from costada.nodes.update_utility import update_utility
from costada.store.checkpoint_rules import RunCheckpoints
from costada.store.purse import Purse
from costada.store.run_store import RunStore

NODES: Mapping[str, Node] = {
    "allocate_frontier": allocate_frontier,
    "build_context": build_context,
    "generate": generate,
    "evaluate": evaluate,
    "charge_ledger": charge_ledger,
    "update_utility": update_utility,
    "gate_intervention": gate_intervention,
    "guide": guide,
    "ask_for_budget": ask_for_budget,
    "approve_guide": approve_guide,
}
"""The steps of the method, and the two nodes that ask the caller."""

METHOD_NODES: Mapping[str, Mapping[str, Node]] = {"evox": EVOX_NODES}
"""Nodes that a method puts in place of these, by its name."""

LONG_NODES = ("generate", "evaluate", "guide")
"""Nodes that wait for models and evaluations."""

CONTROL_NODES = 10
"""Nodes a step passes at most: allocate, approve, guide and its landing, and twice charge, update
and gate."""

ATTEMPT_NODES = 3
"""Nodes every attempt passes: build context, generate, evaluate."""


def build_discovery_graph(
    context: RunContext,
) -> StateGraph[SearchState, SearchContext, SearchInput, SearchOutput]:
    """Build the graph before it is compiled, for callers who add nodes of their own."""
    settings = context.settings
    asks_for_budget, approves_guides = settings.on_exhausted == "interrupt", settings.approve_guides
    skipped = {"ask_for_budget": not asks_for_budget, "approve_guide": not approves_guides}
    nodes = {**NODES, **METHOD_NODES.get(settings.method, {})}
    graph: StateGraph[SearchState, SearchContext, SearchInput, SearchOutput] = StateGraph(
        SearchState, input_schema=SearchInput, output_schema=SearchOutput
    )
    for key in FORMS:
        kept = graph.channels[key]
        graph.channels[key] = StoredValue(kept.ValueType, key, context.store)
    for name, node in nodes.items():
        if not skipped.get(name):
            ready = observed(node, name, context)
            graph.add_node(name, CancellableNode(ready, name) if name in LONG_NODES else ready)
    before_guide = "approve_guide" if approves_guides else "guide"

    def branch(source: str, route: Callable[..., str], ends: dict[Hashable, str]) -> None:
        graph.add_conditional_edges(
            source, Route(partial(route, context=context), route.__name__), ends
        )

    graph.add_edge(START, "allocate_frontier")
    graph.add_conditional_edges(
        "allocate_frontier",
        Route(after_allocation, after_allocation.__name__),
        {"attempt": "build_context", "preparation": before_guide},
    )
    graph.add_edge("build_context", "generate")
    branch("generate", after_generation, {"another": "allocate_frontier", "landing": "evaluate"})
    branch(
        "evaluate",
        after_evaluation,
        {
            "retry": "build_context",
            "charge": "charge_ledger",
            "prepared": "allocate_frontier",
            "no step": "gate_intervention",
        },
    )
    graph.add_edge("charge_ledger", "update_utility")
    graph.add_edge("update_utility", "gate_intervention")
    next_steps: dict[Hashable, str] = {
        "next step": "allocate_frontier",
        "landing": "evaluate",
        "intervention": before_guide,
        "stop": END,
    }
    if asks_for_budget:
        next_steps["question"] = "ask_for_budget"
        branch("gate_intervention", step_or_question, next_steps)
        branch("ask_for_budget", after_answer, next_steps)
    else:
        branch("gate_intervention", next_step, next_steps)

    after_call: dict[Hashable, str] = {
        "next step": "allocate_frontier",
        "landing": "evaluate",
        "settle": "charge_ledger",
    }
    if approves_guides:
        asked = {"buy": "guide", "question": "approve_guide", **after_call}
        branch("approve_guide", after_approval, asked)
    branch("guide", after_guide, after_call)
    return graph


def superstep_limit(constants: Constants, num_models: int = 1) -> int:
    """The most supersteps a run can take, so that no user has to raise a limit.

    Of several models all but one may refuse an attempt.
    """
    per_iteration = CONTROL_NODES + ATTEMPT_NODES * constants.max_attempts * num_models
    return constants.max_iterations * per_iteration + 1


def compile_search(
    problem: Problem,
    model: GivenModels,
    *,
    budget: float,
    guide_model: ChatModel | None = None,
    settings: Settings | None = None,
    checkpointer: BaseCheckpointSaver[Any] | bool | None = None,
    store: RunStore | None = None,
    purse: Purse | None = None,
    name: str = "costada",
    parallel: int = 1,
    order: LandingOrder = "landing",
    router: str = DEFAULT_ROUTER,
    chosen: Chosen | None = None,
    max_budget: float = inf,
) -> DiscoveryGraph:
    """Compile the graph of a search from a problem, chat models and settings.

    Args:
        problem: The starting program and its evaluator.
        model: The chat model that proposes programs; may be wrapped in retries or fallbacks. Of
            several, a menu, the router chooses one for each attempt; a bare model is called by its
            own name there, and `MenuModel` gives it another one, or a price.
        budget: Dollars a run may spend (B). The step that crosses it completes, then the run stops.
        guide_model: The chat model that is asked for tactics; by default `model`, of several the
            first.
        settings: Controller constants, seed and prices.
        checkpointer: A LangGraph saver, as for any graph.
        store: Where programs and calls are kept. When not given they are kept in the file of an
            SQLite `checkpointer`, and otherwise in memory.
        purse: A purse that each run draws its budget from, as an account named by its run id, and
            returns to at its end what it did not spend. Where less than the budget is left, a run
            gets what there is; a hard purse raises `OverBudget` when the run begins.
        name: Name of the graph.
        parallel: How many steps are in flight at a time (K). With more than one, model calls and
            evaluations overlap.
        order: Steps land in the order in which they finish, the fastest, or with `"launch"` in
            that of their launch, so that a seed gives the same run whatever the latencies.
        router: Who chooses among several models: a name in `ROUTERS`, or `fixed:NAME`.
        chosen: What a caller has chosen for a run, which the run's state keeps.
        max_budget: The most dollars that a caller may grant a run when it is asked for more.

    Raises:
        ValueError: An argument is not what it should be, a model that may be called has no price
            or two, two models have one name, a model makes retries that cannot be seen, a guide
            price comes without a guide model, the caller is to be asked for more budget or about
            guides without a saver that could keep the question, the purse is hard and the budget
            policy is not, a hard budget pays for no request and the caller is not to be asked for
            more, or a model is to use tools and cannot.
    """
    settings = settings or Settings()
    _check_arguments(problem, budget, guide_model, settings, store)
    _check_parallel(parallel, order)
    _check_saver(settings, checkpointer)
    _check_purse(purse, settings)
    models = priced_models(model, guide_model, problem, settings)
    start_router(router, [each.name for each in models.menu])
    if settings.budget_policy == "hard" and settings.on_exhausted == "stop":
        check_first_request(models.menu, first_prompt(problem), budget)
    settings = with_reference_cost(settings, models.menu)
    context = RunContext(
        name=name,
        problem=problem,
        menu=models.menu,
        guide_model=models.guide_model,
        router=router,
        budget=budget,
        settings=settings,
        store=store or store_beside(checkpointer),
        purse=purse,
        is_saved_by_time=not isinstance(checkpointer, RunCheckpoints),
        parallel=parallel,
        order=order,
        chosen=chosen or {},
        max_budget=max_budget,
    )
    graph = build_discovery_graph(context).compile(checkpointer=checkpointer, name=name)
    limit = superstep_limit(settings.constants, len(models.menu))
    return DiscoveryGraph.of(graph, context, limit)


def store_beside(checkpointer: BaseCheckpointSaver[Any] | bool | None) -> RunStore:
    """Open a store that lives as long as the checkpoints do.

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
        " process; expected RunStore(path) or RunStore.postgres(address), so that a resumed run"
        " finds its programs again"
    )


def _check_arguments(
    problem: object, budget: object, guide_model: object, settings: object, store: object
) -> None:
    if not isinstance(problem, Problem):
        raise ValueError(f"problem: got {problem!r}, expected a Problem such as problem(NAME)")
    if isinstance(budget, bool) or not isinstance(budget, int | float) or not 0 < budget < inf:
        raise ValueError(f"budget: got {budget!r}, expected finite dollars above 0")
    if not isinstance(settings, Settings):
        raise ValueError(f"settings: got {settings!r}, expected Settings(...)")
    if settings.guide_price is not None and guide_model is None:
        raise ValueError("guide_price: got one without guide_model, expected both or none")
    if not isinstance(store, RunStore | None):
        # without the value: an address may hold a password
        raise ValueError(
            f"store: got a {type(store).__name__}, expected None or a RunStore, such as"
            " RunStore.postgres(ADDRESS)"
        )


def _check_parallel(parallel: object, order: object) -> None:
    is_no_number = isinstance(parallel, bool) or not isinstance(parallel, int)
    if is_no_number or parallel not in range(1, LARGEST_PARALLEL + 1):
        raise ValueError(
            f"parallel: got {parallel!r}, expected a whole number from 1 to {LARGEST_PARALLEL}"
        )
    if order not in get_args(LandingOrder):
        raise ValueError(f"order: got {order!r}, expected 'landing' or 'launch'")


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


def _check_purse(purse: object, settings: Settings) -> None:
    """Refuse a hard purse for a run that may cross its budget."""
    if not isinstance(purse, Purse | None):
        raise ValueError(f"purse: got {purse!r}, expected Purse(BUDGET) or None")
    if purse and purse.policy == "hard" and settings.budget_policy != "hard":
        raise ValueError(
            f"budget_policy: got {settings.budget_policy!r} with a hard purse, expected 'hard'"
        )
