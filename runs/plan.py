"""A run that is ready to begin: everything checked, nothing spent, no file written."""

from dataclasses import dataclass, replace
from typing import Any

from langgraph.checkpoint.base import BaseCheckpointSaver

from costada.controller.constants import Constants
from costada.evaluators.problem import Problem, check_problem, confine, layer_of
from costada.evaluators.registry import problem
from costada.evaluators.sandbox.layers import Layer
from costada.graph.build import DiscoveryGraph, create_discovery_graph
from costada.models.chat_models import chat_model
from costada.nodes.context import ChatModel
from costada.nodes.settings import Settings
from costada.reports.run_view import OBJECT_MARK
from costada.runs.config import RunConfig, is_openai
from costada.runs.gateway import check_gateway
from costada.store.purse import Purse
from costada.store.run_store import RunStore
from costada.values.evaluation import Evaluation

SIMULATED, LANDSCAPE = "simulated", "landscape"


@dataclass(frozen=True, slots=True)
class Plan:
    """What a run needs besides the place where it keeps its results.

    Attributes:
        problem: What is improved.
        seed_evaluation: What the evaluator said of the initial program; `None` without preflight:
            the run then begins with that.
        sandbox: What holds candidates; `None` if the problem's own evaluate sees to that.
        model: The generating model.
        guide_model: The guide, `None` if it is the generating model.
        budget: `B` in dollars.
        settings: Constants, seed and prices.
        title: The run in a few words.
        keep_history: Whether all checkpoints are kept, not only the latest.
        gateway: Whether calls go through a journaling process of their own.
        purse: The purse that the run draws from, if it draws from one.
    """

    problem: Problem
    seed_evaluation: Evaluation | None
    sandbox: Layer | None
    model: ChatModel
    guide_model: ChatModel | None
    budget: float
    settings: Settings
    title: str
    keep_history: bool = False
    gateway: bool = False
    purse: Purse | None = None

    def graph(
        self,
        checkpointer: BaseCheckpointSaver[Any] | None = None,
        store: RunStore | None = None,
    ) -> DiscoveryGraph:
        """Return the graph that carries the plan out.

        Raises:
            ValueError: If a model that may be called has no price.
        """
        return create_discovery_graph(
            self.problem,
            self.model,
            budget=self.budget,
            guide_model=self.guide_model,
            settings=self.settings,
            checkpointer=checkpointer,
            store=store,
            purse=self.purse,
        )


def plan_run(
    config: RunConfig,
    *,
    given_problem: Problem | None = None,
    given_model: ChatModel | None = None,
    given_guide_model: ChatModel | None = None,
    purse: Purse | None = None,
) -> Plan:
    """Return a plan for what the settings ask for, checked as far as is possible without money.

    Args:
        config: The settings.
        given_problem: Used in place of the problem that the settings name.
        given_model: Used in place of the model that the settings name.
        given_guide_model: Used in place of the guide model that the settings name.
        purse: The purse that the run is to draw from.

    Raises:
        ValueError: If the problem, a model, a price or the sandbox asked for is missing or does
            not work.
    """
    found = confine(
        given_problem or problem(_nameable(config.problem)),
        sandbox=config.sandbox,
        timeout=config.timeout,
        memory_mb=config.memory_mb,
    )
    if config.allow_invalid_start:
        found = replace(found, allow_invalid_start=True)
    _check_simulated(found, config)
    if config.max_tokens is not None and (given_model or given_guide_model):
        raise ValueError(
            f"max_tokens: got {config.max_tokens} with a model given as an object, which has its"
            " own limit; expected none"
        )
    model = given_model or _model(config.model, config)
    guide_model = given_guide_model or _guide_model(config)
    seed_evaluation = check_problem(found) if config.preflight else None
    plan = Plan(
        problem=replace(found, seed_evaluation=seed_evaluation),
        seed_evaluation=seed_evaluation,
        sandbox=layer_of(found),
        model=model,
        guide_model=guide_model,
        budget=config.budget,
        settings=_settings(config),
        title=f"{found.name}, {config.method}, {config.model}, seed {config.seed}",
        keep_history=config.keep_history,
        gateway=config.gateway,
        purse=purse,
    )
    return _checked(plan)


def _checked(plan: Plan) -> Plan:
    """Return the plan; raises `ValueError` for a missing price or a gateway that has no use."""
    plan.graph()
    if plan.gateway:
        check_gateway(plan)
    return plan


def _check_simulated(found: Problem, config: RunConfig) -> None:
    for field in ("model", "guide_model"):
        if getattr(config, field) == SIMULATED and found.name != LANDSCAPE:
            raise ValueError(
                f"{field}: got {SIMULATED!r} for problem {found.name!r}, which it cannot improve;"
                f" expected problem {LANDSCAPE!r}"
            )


def _model(model_id: str, config: RunConfig) -> ChatModel:
    base_url = config.base_url if is_openai(model_id) else None
    return chat_model(
        _nameable(model_id),
        base_url=base_url,
        max_tokens=config.max_tokens,
        timeout=config.call_timeout,
        retry_wait=config.retry_wait,
        longest_wait=config.longest_wait,
        seed=config.seed,
    )


def _guide_model(config: RunConfig) -> ChatModel | None:
    """Return the guide that the settings name, `None` if it is the generating model."""
    if config.guide_model in (None, config.model):
        return None
    return _model(str(config.guide_model), config)


def _settings(config: RunConfig) -> Settings:
    return Settings(
        constants=Constants(
            reference_cost=config.reference_cost, max_iterations=config.max_iterations
        ),
        method=config.method,
        seed=config.seed,
        price=config.price,
        guide_price=config.guide_price,
        on_missing_usage=config.on_missing_usage,
        lost_calls=config.lost_calls,
        budget_policy=config.budget_policy,
        max_failures=config.max_failures,
        generator=config.generator,
        tool_evaluations=config.tool_evaluations,
        step_cap=config.step_cap,
        retry_policy=config.retry_policy,
    )


def _nameable(name: str) -> str:
    if name.startswith(OBJECT_MARK):
        raise ValueError(
            f"this run got {name.removeprefix(OBJECT_MARK)} as a Python object; go on with it"
            " from Python: discover(..., out=FOLDER, resume=True)"
        )
    return name
