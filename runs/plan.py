"""A run that is ready to start: everything is checked, nothing is spent, no file is written."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from math import ceil, floor, inf, isfinite, log10
from statistics import fmean
from typing import Any, Literal

from langgraph.checkpoint.base import BaseCheckpointSaver

from costada.controller.methods import METHODS, chooses_guides
from costada.controller.router_rules import DEFAULT_ROUTER
from costada.evaluators.focus import with_focus
from costada.evaluators.problem import Problem, check_problem, confine, layer_of
from costada.evaluators.registry import problem
from costada.evaluators.remote.backend import EngineBackend, check_backend, evaluated_by
from costada.evaluators.sandbox.layers import Layer
from costada.graph.build import DiscoveryGraph, compile_search
from costada.graph.run_context import priced_models, with_reference_cost
from costada.models.menu import MenuModel
from costada.models.runnable_tree import asked_models
from costada.nodes.attempts import first_prompt, ordinary_input
from costada.nodes.calls.bounds import (
    evaluation_bound,
    expected_cost,
    expected_evaluation,
    least_budget,
)
from costada.nodes.calls.granted_calls import METERED_ENDPOINT
from costada.nodes.context import ChatModel, PricedModel
from costada.nodes.settings import Settings
from costada.reports.formats import budget_text
from costada.reports.tracking import check_trackers
from costada.runs.config import RunConfig
from costada.runs.configured_models import menu_model, models_of_problem, named_guide, named_model
from costada.runs.gateways import gateway_choice
from costada.runs.search_request import SearchRequest, importable
from costada.store.purse import Purse
from costada.store.run_store import RunStore
from costada.values.evaluation import SCORED_BY, Evaluation

UNUSED_PRICE = (
    "other_prices.{0}: the run asks no model of that name, so this price counts only for an answer"
    " that says it is from {0}"
)
ENOUGH_ITERATIONS = 10
"""Iterations that a budget should pay for."""

SIMULATED, LANDSCAPE = "simulated", "landscape"


@dataclass(frozen=True, slots=True)
class Plan:
    """All that a run needs except the folder of its files.

    Attributes:
        problem: The problem.
        seed_evaluation: The evaluation of the initial program; `None` without preflight: the run
            then starts with it.
        sandbox: The sandbox of the candidates; `None` if the problem's own evaluate handles that.
        model: The generating model; of several the first.
        guide_model: The guide, `None` if it is the generating model.
        budget: `B` in dollars.
        settings: Constants, seed and prices.
        title: The run in a few words.
        keep_history: Whether all checkpoints are kept, not only the latest.
        gateway: Whether calls go through a separate journaling process; `None`: if the run has
            used one before.
        gateway_notice: What the user is shown about the gateway; empty for nothing.
        purse: The purse that pays for the run, if any.
        parallel: Most iterations in flight at the same time.
        order: Whether iterations end as their answers arrive or as they were started.
        menu: The models to choose from; empty for one model without an entry.
        router: The rule that chooses one of them.
        granted: The models that evaluations ask, by the role of their calls and by name.
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
    menu: tuple[MenuModel, ...] = ()
    router: str = DEFAULT_ROUTER
    granted: Mapping[str, Mapping[str, MenuModel]] = field(default_factory=dict)

    @property
    def models(self) -> list[ChatModel]:
        """The models that the run calls, those that its evaluations ask included."""
        asked = [entry.model for entry in self.menu] or [self.model]
        guides = [] if self.guide_model is None else [self.guide_model]
        granted = [each.model for models in self.granted.values() for each in models.values()]
        return [*asked, *guides, *granted]

    @property
    def remarks(self) -> tuple[str, ...]:
        """What to know of the settings, and of what the score is made, line by line."""
        artifacts = self.seed_evaluation.artifacts if self.seed_evaluation else {}
        found = [*self.problem.notes, *filter(None, [artifacts.get(SCORED_BY)])]
        if prices := self.settings.other_prices:
            asked = {each.name for model in self.models for each in asked_models(model)}
            found += [UNUSED_PRICE.format(name) for name in prices if name not in asked]
        return tuple(found)

    @property
    def budget_remark(self) -> str:
        """That the budget is small beside what a run is expected to cost; empty where it is not.

        It should pay for ten iterations, or all where there are fewer, and for a guide beside one
        iteration where the method buys guides.
        """
        constants, method = self.settings.constants, METHODS[self.settings.method]
        models = priced_models(
            self.menu or self.model, self.guide_model, self.problem, self.settings
        )
        step, guide = self.iteration_cost, 0.0
        if chooses_guides(method) and constants.guides != "never":
            tokens = ordinary_input(self.problem, constants, self.settings.method)
            guide = float(expected_cost(models.guide_model or models.menu[0], tokens))
        count = min(ENOUGH_ITERATIONS, constants.max_iterations)
        if (paid := self.num_steps(step, self.set_aside)) < count:
            return (
                f"the budget of {budget_text(self.budget)} pays for about {paid} of {count}"
                f" iterations, each expected to cost ${step:.4g}; --budget"
                f" {_rounded_up(count * step + self.set_aside)} pays for {count} (costada forecast)"
            )
        if count > 1 and self.budget < step + guide:
            return (
                f"the budget of {budget_text(self.budget)} pays for no guide, expected to cost"
                f" ${guide:.4g} beside an iteration of ${step:.4g}; --budget"
                f" {_rounded_up(step + guide)} pays for one"
            )
        return ""

    @property
    def tiny_budget_remark(self) -> str:
        """That the budget pays for less than one iteration; empty if it pays for one."""
        step = self.iteration_cost
        if self.budget >= step + self.set_aside:
            return ""
        return (
            f"the budget of {budget_text(self.budget)} pays for less than one iteration, expected"
            f" to cost ${step:.4g}; --budget {_rounded_up(step + self.set_aside)} pays for one"
        )

    @property
    def iteration_cost(self) -> float:
        """Dollars that an iteration without a guide is expected to cost."""
        attempt = fmean(each.expected for each in self.priced_menu)
        return attempt + float(expected_evaluation(self.problem, self.settings))

    @property
    def set_aside(self) -> float:
        """Dollars that a hard budget keeps for an evaluation beyond what it is expected to cost.

        That is 0 if an evaluation has no bound, and under another policy.
        """
        if self.settings.budget_policy != "hard":
            return 0.0
        problem, settings = self.problem, self.settings
        if problem.asks_models and problem.evaluation_dollars is None:
            return 0.0
        return float(evaluation_bound(problem, settings) - expected_evaluation(problem, settings))

    def num_steps(self, step_cost: float, aside: float = 0.0) -> int:
        """Number of steps of a cost that the budget pays for; all iterations if they are free."""
        is_hard = self.settings.budget_policy == "hard"
        paid = paid_steps(step_cost, self.budget, is_hard=is_hard, aside=aside)
        return self.settings.constants.max_iterations if paid is None else paid

    @property
    def call_timeout(self) -> float:
        """Seconds of the longest call, its retries included."""
        own = (each.entry.timeout for each in self.menu)
        return max((self.settings.retry_policy.call_timeout, *filter(None, own)))

    @property
    def priced_menu(self) -> tuple[PricedModel, ...]:
        """The models that make attempts, with their prices."""
        given = self.menu or self.model
        return priced_models(given, self.guide_model, self.problem, self.settings).menu

    @property
    def least_budget(self) -> Decimal:
        """Least dollars worth starting with, 0 unless the budget is hard.

        That is the expected cost of an iteration (c-bar), or the whole budget if that is less, and
        never less than the first request and the evaluation of its program can cost.
        """
        if self.settings.budget_policy != "hard":
            return Decimal(0)
        menu = self.priced_menu
        expected = with_reference_cost(self.settings, menu).constants.reference_cost
        first_request, _ = least_budget(menu, first_prompt(self.problem))
        first_request += evaluation_bound(self.problem, self.settings)
        return max(first_request, Decimal(str(min(expected, self.budget))))

    def with_models_changed(self, change: Callable[[ChatModel], ChatModel]) -> Plan:
        """The plan with each model replaced by its change; a guide of the menu stays one of it."""
        menu = tuple(MenuModel.from_entry(each.entry, change(each.model)) for each in self.menu)
        # A guide that is one of the menu is recognised by identity, so it must become the same new
        # object.
        changed = [
            (before.model, after.model) for before, after in zip(self.menu, menu, strict=True)
        ]

        def changed_once(model: ChatModel) -> ChatModel:
            return next((after for before, after in changed if before is model), None) or change(
                model
            )

        guide = self.guide_model
        granted = {
            role: {
                name: MenuModel.from_entry(each.entry, change(each.model))
                for name, each in models.items()
            }
            for role, models in self.granted.items()
        }
        return replace(
            self,
            menu=menu,
            model=changed_once(self.model),
            guide_model=None if guide is None else changed_once(guide),
            granted=granted,
        )

    def graph(
        self, checkpointer: BaseCheckpointSaver[Any] | None = None, store: RunStore | None = None
    ) -> DiscoveryGraph:
        """The graph of the run; raises `ValueError` if a model has no price."""
        return compile_search(
            self.problem,
            self.menu or self.model,
            router=self.router,
            budget=self.budget,
            guide_model=self.guide_model,
            settings=self.settings,
            checkpointer=checkpointer,
            store=store,
            purse=self.purse,
            parallel=self.parallel,
            order=self.order,
            granted=self.granted,
        )


def plan_run(given: SearchRequest | RunConfig, *, purse: Purse | None = None) -> Plan:
    """Plan a run and check as much of it as costs no money.

    Args:
        given: The settings, with the objects that a Python caller gave.
        purse: The purse that pays for the run.

    Raises:
        ValueError: If the problem, a model, a price, a tracker or the requested sandbox is missing
            or does not work.
    """
    given = SearchRequest(given) if isinstance(given, RunConfig) else given
    config = given.config
    check_trackers(config.log)
    plan = _plan_without_evaluation(given, purse)
    gateway, notice = gateway_choice(config.gateway, config.parallel, plan.models, plan.menu)
    plan = _with_evaluation(plan, config)
    plan.graph()  # again, as prompts of a repository may be longer by now
    return replace(plan, gateway=gateway, gateway_notice=notice)


def check_models(config: RunConfig) -> None:
    """Check the problem, the models and their prices; evaluates nothing, and needs no keys.

    Raises:
        ValueError: As `plan_run` does.
    """
    _plan_without_evaluation(replace(SearchRequest(config), sends_requests=False), None)


def plan_search(given: SearchRequest, *, purse: Purse | None = None) -> Plan:
    """The problem, the models and the settings of a search; raises `ValueError` as `plan_run`."""
    return _with_evaluation(_plan_without_evaluation(given, purse), given.config)


def _plan_without_evaluation(given: SearchRequest, purse: Purse | None) -> Plan:
    """All of a plan that is known before the initial program is evaluated, which takes longest."""
    config, needs_key = given.config, given.sends_requests
    found = given.problem or problem(importable(config.problem))
    found = confine(
        evaluated_by(found, given.executor or importable(config.evaluate_on), config.endpoint),
        sandbox=config.sandbox,
        timeout=config.timeout,
        memory_mb=config.memory_mb,
        evaluations_at_once=config.evaluations_at_once,
    )
    if config.allow_invalid_start:
        found = replace(found, allow_invalid_start=True)
    named = [("models", entry.model) for entry in config.models] or [("model", config.model)]
    for setting, name in (*named, ("guide_model", config.guide_model)):
        if name == SIMULATED and found.name != LANDSCAPE:
            raise ValueError(
                f"{setting}: got {SIMULATED!r} for problem {found.name!r}, which it cannot improve;"
                f" expected problem {LANDSCAPE!r}"
            )
    if config.max_tokens is not None and (given.model or given.guide_model or given.models):
        raise ValueError(
            f"max_tokens: got {config.max_tokens} with a model given as an object, which has its"
            " own limit; expected none"
        )
    menu = tuple(
        given.models.get(entry.name) or menu_model(entry, config, needs_key=needs_key)
        for entry in config.models
    )
    model = menu[0].model if menu else given.model or named_model(config.model, config, needs_key)
    guide_model = given.guide_model or named_guide(menu, config, needs_key)
    plan = Plan(
        problem=found,
        seed_evaluation=found.seed_evaluation,
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
        menu=menu,
        router=config.router,
        granted=models_of_problem(found, config, needs_key=needs_key),
    )
    # Only for its checks: a model without a price or a budget below the first request is refused.
    plan.graph()
    return plan


def _with_evaluation(plan: Plan, config: RunConfig) -> Plan:
    """The plan with what evaluates programs checked, and the initial program evaluated there."""
    found = plan.problem
    if note := check_backend(found):
        found = replace(found, notes=(*found.notes, note))
    if plan.granted and isinstance(found.backend, EngineBackend):
        METERED_ENDPOINT.check(*found.backend.place_of_models())
    if config.preflight:
        found = with_focus(found)
    # Where the evaluator asks models, the run evaluates it: their calls belong on its ledger.
    is_free = config.preflight and not plan.granted
    evaluation = check_problem(found) if is_free else found.seed_evaluation
    return replace(
        plan, problem=replace(found, seed_evaluation=evaluation), seed_evaluation=evaluation
    )


def paid_steps(step_cost: float, budget: float, *, is_hard: bool, aside: float = 0.0) -> int | None:
    """Number of steps of a cost that a budget pays for, `None` if there is no limit.

    The step that crosses the budget counts, unless the budget is hard. Then no step begins without
    its evaluation's bound, which exceeds what the evaluation is expected to cost by `aside`.
    """
    ratio = (budget - aside) / step_cost if step_cost else inf
    if not isfinite(ratio):
        return None
    return max(0, floor(ratio)) if is_hard else ceil(ratio)


def _rounded_up(dollars: float) -> str:
    """Dollars with two digits that are not less."""
    unit = 10.0 ** (floor(log10(dollars)) - 1)
    return f"{ceil(dollars / unit) * unit:g}"
