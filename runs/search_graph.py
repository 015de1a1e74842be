"""`create_discovery_graph`: a search as a LangGraph graph, from names, ids or objects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

from langgraph.checkpoint.base import BaseCheckpointSaver
from pydantic import ValidationError
from typing_extensions import Unpack

from costada.controller.methods import METHODS
from costada.evaluators.problem import Problem
from costada.graph.build import compile_graph, saved_by, store_beside
from costada.graph.compiled import DiscoveryGraph
from costada.graph.graph_input import RunOverrides
from costada.graph.run_context import run_context
from costada.models.menu import MenuModel, ModelEntry
from costada.nodes.settings import Settings
from costada.runs.choices import (
    Choices,
    check_graph_settings,
    context_schema,
    merged_settings,
    read_context,
)
from costada.runs.config import GRAPH_SETTINGS
from costada.runs.keywords import GraphKeywords
from costada.runs.models_file import named_models
from costada.runs.plan import plan_search
from costada.runs.search_request import parse_request, problems_by_name
from costada.runs.user_input import explain
from costada.store.purse import Purse
from costada.store.run_store import RunStore

if TYPE_CHECKING:
    from costada.nodes.context import ChatModel, RunContext
    from costada.runs.models_file import GivenModel


@dataclass(frozen=True, slots=True)
class _Given:
    """The arguments of a graph that its choices may replace."""

    problem: str | Path | Problem
    model: str | ChatModel | MenuModel | None
    models: Sequence[ModelEntry | MenuModel]
    guide_model: str | ChatModel | None
    settings: Mapping[str, object]
    max_budget: float | None
    checkpointer: BaseCheckpointSaver[Any] | bool | None
    store: RunStore
    purse: Purse | None
    name: str


def create_discovery_graph(
    problem: str | Path | Problem,
    model: str | ChatModel | MenuModel | None = None,
    *,
    budget: float,
    models: str | Sequence[GivenModel] = (),
    models_file: str | Path | None = None,
    guide_model: str | ChatModel | None = None,
    checkpointer: BaseCheckpointSaver[Any] | bool | None = None,
    store: RunStore | None = None,
    purse: Purse | None = None,
    name: str = "costada",
    choices: Choices | None = None,
    **settings: Unpack[GraphKeywords],
) -> DiscoveryGraph:
    """Compile a graph whose every run improves a problem's program within a budget.

    Args:
        problem: A benchmark's name, a problem folder, or a `Problem`.
        model: A model id as for `costada run --model`, or any LangChain chat model, also wrapped in
            retries or fallbacks.
        budget: Dollars a run may spend (B). The step that crosses it completes, then the run stops.
        models: Models to choose from before each attempt, in place of `model`: texts as for
            `costada run --models`, chat models, or `MenuModel(name, model, price)` for a chat
            model with a name or a price of its own.
        models_file: TOML file that explains texts in `models`; by default `models.toml` in the
            working folder, if there is one.
        guide_model: The model that is asked for tactics, also by its name in `models`; by default
            `model`, or the first of `models`.
        checkpointer: A LangGraph saver, as for any graph.
        store: Where programs and calls are kept. When not given they are kept in the file of an
            SQLite `checkpointer`, and otherwise in memory.
        purse: A purse that each run draws its budget from, as an account named by its run id, and
            returns to at its end what it did not spend. Where less than the budget is left, a run
            gets what there is; a hard purse raises `OverBudget` when the run begins.
        name: Name of the graph.
        choices: What the caller of a run may choose by `graph.invoke(input, config, context={...})`
            or an assistant of `langgraph dev`: `budget`, `problem`, `models`, `seed`, `parallel`
            and `settings`, within these limits. By default nothing.
        **settings: Further settings, see [Settings](settings.md). `preflight=True` evaluates the
            initial program now, not when a run begins. Two are a graph's alone:
            `on_exhausted="interrupt"` asks the caller for more budget instead of ending the run,
            `approve_guides=True` asks before each guide is bought.

    Raises:
        ValueError: An argument is not what it should be, a model that may be called has no price
            or two, two models have one name, a model makes retries that cannot be seen, a guide
            price comes without a guide model, the caller is to be asked for more budget or about
            guides without a saver that could keep the question, the purse is hard and the budget
            policy is not, a model is to use tools and cannot, or the choices cannot work.
    """
    check_graph_settings(settings)
    if choices is not None and not isinstance(choices, Choices):
        raise ValueError(f"choices: got {choices!r}, expected Choices(...) or None")
    if store is not None and not isinstance(store, RunStore):
        raise ValueError(f"store: got {store!r}, expected a RunStore or None")
    given = _Given(
        problem=problem,
        model=model,
        models=named_models(models, models_file) if models or models_file else (),
        guide_model=guide_model,
        settings={"preflight": False, **settings, "budget": budget},
        max_budget=inf if choices is None else choices.max_budget,
        checkpointer=checkpointer,
        store=store or store_beside(checkpointer),
        purse=purse,
        name=name,
    )
    context = _search(given)
    overrides = None if choices is None else _choosing(choices, given, context)
    return compile_graph(context, checkpointer, overrides)


def _search(given: _Given, chosen: Mapping[str, object] | None = None) -> RunContext:
    """The search of what was given, and chosen."""
    own = {name: value for name, value in given.settings.items() if name in GRAPH_SETTINGS}
    shared = {name: value for name, value in given.settings.items() if name not in own}
    read = parse_request(given.problem, given.model, given.models, None, given.guide_model, shared)
    plan = plan_search(read, purse=given.purse)
    try:
        settings = Settings(**{**dict(plan.settings), **own})
    except ValidationError as error:
        raise ValueError(explain(error, Settings.model_fields)) from None
    if given.max_budget is None and settings.on_exhausted == "interrupt":
        raise ValueError(
            "on_exhausted: got 'interrupt' with choices without max_budget, expected the most that"
            " a caller may grant: Choices(max_budget=DOLLARS)"
        )
    context = run_context(
        plan.problem,
        plan.menu or plan.model,
        budget=plan.budget,
        guide_model=plan.guide_model,
        settings=settings,
        parallel=plan.parallel,
        order=plan.order,
        router=plan.router,
        chosen=chosen or {},
        max_budget=inf if given.max_budget is None else given.max_budget,
        granted=plan.granted,
        store=given.store,
        purse=given.purse,
        name=given.name,
    )
    return saved_by(given.checkpointer, context)


def _choosing(choices: Choices, given: _Given, search: RunContext) -> RunOverrides:
    """Check what may be chosen, and build what is; raises `ValueError`."""
    if choices.max_budget is not None and choices.max_budget < search.budget:
        raise ValueError(
            f"max_budget: got {choices.max_budget:g}, expected at least {search.budget:g},"
            " the budget of the graph"
        )
    chosen_from = zip(problems_by_name(choices.problems), choices.problems, strict=True)
    problems = {search.problem.name: given.problem, **dict(chosen_from)}
    own = {entry.name: entry for entry in given.models}
    picked = [own.get(each, each) if isinstance(each, str) else each for each in choices.models]
    models = {each.name: each for each in named_models(picked)} if picked else {}
    schema = context_schema(choices, tuple(problems), tuple(models))

    def build(chosen: Mapping[str, Any]) -> RunContext:
        settings = merged_settings(given.settings, chosen)
        model, menu = given.model, given.models
        if "models" in chosen:
            model, menu = None, [models[name] for name in chosen["models"]]
            # It is the price of the model that the graph was built with.
            settings.pop("price", None)
        problem = problems[chosen["problem"]] if "problem" in chosen else given.problem
        kept = replace(given, problem=problem, model=model, models=menu, settings=settings)
        return _search(kept, chosen)

    if models:
        build({"models": list(models)})  # each has a key and a price
    defaults = {
        "budget": search.budget,
        "problem": search.problem.name,
        "models": [entry.name for entry in search.menu],
        "parallel": search.parallel,
    }
    return RunOverrides(
        schema,
        defaults,
        partial(read_context, schema),
        build,
        choices.max_parallel or 1,
        [name for name in METHODS if "method" in choices.settings],
    )
