"""A run that is ready to start: everything is checked, nothing is spent, no file is written."""

from dataclasses import dataclass, replace
from typing import Any, Literal

from langgraph.checkpoint.base import BaseCheckpointSaver

from costada.evaluators.problem import Problem, check_problem, confine, layer_of
from costada.evaluators.registry import problem
from costada.evaluators.sandbox.layers import Layer
from costada.graph.build import DiscoveryGraph, create_discovery_graph
from costada.models.chat_models import chat_model
from costada.nodes.context import ChatModel
from costada.nodes.settings import Settings
from costada.reports.run_view import OBJECT_MARK
from costada.runs.config import RunConfig, is_openai
from costada.runs.gateway import check_gateway, gateway_choice
from costada.store.purse import Purse
from costada.store.run_store import RunStore
from costada.values.evaluation import Evaluation

SIMULATED, LANDSCAPE = "simulated", "landscape"


@dataclass(frozen=True, slots=True)
class Plan:
    """All that a run needs except the folder of its files.

    Attributes:
        problem: The problem.
        seed_evaluation: The evaluation of the initial program; `None` without preflight: the run
            then starts with it.
        sandbox: The sandbox of the candidates; `None` if the problem's own evaluate handles that.
        model: The generating model.
        guide_model: The guide, `None` if it is the generating model.
        budget: `B` in dollars.
        settings: Constants, seed and prices.
        title: The run in a few words.
        keep_history: Whether all checkpoints are kept, not only the latest.
        gateway: Whether calls go through a separate journaling process; `None`: if the run has
            used one before.
        gateway_notice: The line that says so to the user; empty for none.
        purse: The purse that pays for the run, if any.
        parallel: Most iterations in flight at the same time.
        order: Whether iterations end as their answers arrive or as they were begun.
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
    gateway: bool | None = None
    gateway_notice: str = ""
    purse: Purse | None = None
    parallel: int = 1
    order: Literal["landing", "launch"] = "landing"

    @property
    def models(self) -> list[ChatModel]:
        """The models that the run calls."""
        return [model for model in (self.model, self.guide_model) if model is not None]

    def graph(
        self, checkpointer: BaseCheckpointSaver[Any] | None = None, store: RunStore | None = None
    ) -> DiscoveryGraph:
        """The graph of the run; raises `ValueError` if a model has no price."""
        return create_discovery_graph(
            self.problem,
            self.model,
            budget=self.budget,
            guide_model=self.guide_model,
            settings=self.settings,
            checkpointer=checkpointer,
            store=store,
            purse=self.purse,
            parallel=self.parallel,
            order=self.order,
        )


def plan_run(
    config: RunConfig,
    *,
    given_problem: Problem | None = None,
    given_model: ChatModel | None = None,
    given_guide_model: ChatModel | None = None,
    purse: Purse | None = None,
) -> Plan:
    """Plan a run and check as much of it as costs no money.

    Args:
        config: The settings.
        given_problem: Replaces the problem that the settings name.
        given_model: Replaces the model that the settings name.
        given_guide_model: Replaces the guide model that the settings name.
        purse: The purse that pays for the run.

    Raises:
        ValueError: If the problem, a model, a price or the requested sandbox is missing or does
            not work.
    """
    found = confine(
        given_problem or problem(_importable(config.problem)),
        sandbox=config.sandbox,
        timeout=config.timeout,
        memory_mb=config.memory_mb,
        evaluators=config.evaluators,
    )
    if config.allow_invalid_start:
        found = replace(found, allow_invalid_start=True)
    for field, name in (("model", config.model), ("guide_model", config.guide_model)):
        if name == SIMULATED and found.name != LANDSCAPE:
            raise ValueError(
                f"{field}: got {SIMULATED!r} for problem {found.name!r}, which it cannot improve;"
                f" expected problem {LANDSCAPE!r}"
            )
    if config.max_tokens is not None and (given_model or given_guide_model):
        raise ValueError(
            f"max_tokens: got {config.max_tokens} with a model given as an object, which has its"
            " own limit; expected none"
        )
    has_guide = config.guide_model not in (None, config.model)
    model = given_model or _model(config.model, config)
    guide_model = given_guide_model or (
        _model(str(config.guide_model), config) if has_guide else None
    )
    seed_evaluation = check_problem(found) if config.preflight else None
    plan = Plan(
        problem=replace(found, seed_evaluation=seed_evaluation),
        seed_evaluation=seed_evaluation,
        sandbox=layer_of(found),
        model=model,
        guide_model=guide_model,
        budget=config.budget,
        settings=config.search,
        title=f"{found.name}, {config.method}, {config.model}, seed {config.seed}",
        keep_history=config.keep_history,
        purse=purse,
        parallel=config.parallel,
        order=config.order,
    )
    plan.graph()
    gateway, notice = gateway_choice(config.gateway, config.parallel, plan.models)
    plan = replace(plan, gateway=gateway, gateway_notice=notice)
    if plan.gateway:
        check_gateway(plan)
    return plan


def _model(model_id: str, config: RunConfig) -> ChatModel:
    return chat_model(
        _importable(model_id),
        base_url=config.base_url if is_openai(model_id) else None,
        max_tokens=config.max_tokens,
        timeout=config.call_timeout,
        retry_wait=config.retry_wait,
        longest_wait=config.longest_wait,
        seed=config.seed,
    )


def _importable(name: str) -> str:
    if name.startswith(OBJECT_MARK):
        raise ValueError(
            f"this run got {name.removeprefix(OBJECT_MARK)} as a Python object; resume it from"
            " Python: discover(..., out=FOLDER, resume=True)"
        )
    return name
