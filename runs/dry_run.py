"""A dry run: the first prompts of a run, its expected cost and number of steps."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from statistics import fmean
from typing import Any

from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatResult
from langchain_core.runnables import Runnable, RunnableConfig
from langgraph.checkpoint.memory import InMemorySaver
from pydantic import Field

from costada.controller.router_rules import CAUTIOUS_ROUTER, DEFAULT_ROUTER, TRY_SHARE
from costada.graph.build import compile_search
from costada.graph.run_context import priced_models_by_role, with_reference_cost
from costada.models.prices import ListPrice
from costada.models.reply_content import answer_text
from costada.models.runnable_tree import asked_models
from costada.nodes.attempts import ordinary_input
from costada.nodes.calls.bounds import (
    EXPECTED_ANSWER,
    evaluation_bound,
    expected_cost,
    expected_evaluation,
    input_bound,
    output_cap,
    prompt_tokens,
    upper_bound,
)
from costada.nodes.context import PricedModel
from costada.nodes.generator_command import WITH_TOOLS, is_command
from costada.prompts.render import Prompt
from costada.reports.formats import budget_text, count
from costada.runs.config import RunConfig
from costada.runs.plan import Plan
from costada.store.run_store import RunStore
from costada.values.evaluation import Evaluation
from costada.values.usage import Price, Usage

SHORT_ANSWER = 1_000
"""Tokens of a short answer, with which a run has the most steps."""

_HEADING = "Dry run: nothing was sent and nothing was written."
_AGENT_NOTE = (
    "  with tools      each answer of the model costs at least as much; a step takes several,"
    " so there will be fewer steps"
)
_COMMAND_NOTE = (
    "  with a command  a step costs what the command's requests cost, not only one answer;"
    " --step-cap bounds it"
)


@dataclass(frozen=True, slots=True)
class PromptSize:
    """A prompt: its role, its characters and its estimated tokens."""

    role: str
    characters: int
    tokens: int


@dataclass(frozen=True, slots=True)
class ModelForecast:
    """What one model of a menu is expected to cost.

    Attributes:
        name: Its name in the menu.
        price_in: Dollars per million input tokens, at the service tier that it asks for.
        price_out: The same of output.
        price_source: The source of the prices.
        step_cost: Dollars of a step of one attempt by this model (e_m).
        worst_call: Upper bound of the cost of one call.
    """

    name: str
    price_in: float
    price_out: float
    price_source: str
    step_cost: float
    worst_call: float


@dataclass(frozen=True, slots=True)
class EvaluationForecast:
    """What the evaluation of a program is expected to cost, in dollars.

    Attributes:
        seconds: Of a worker, as the initial program took; `None` if it has not been evaluated.
        cost: Dollars of that time.
        worst: Most dollars that the time and the models of an evaluation can cost; `None` if only
            the budget limits its models.
        models: Models that evaluations ask: `role name` with the prices of its tokens.
    """

    seconds: float | None
    cost: float
    worst: float | None
    models: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class DryRun:
    """The expected cost of a run, in dollars, dollars per million tokens, and tokens.

    Attributes:
        prompts: The first prompts; the last of them asks for the first program.
        price_in: Price of the generating model's input; of several models the first.
        price_out: Price of its output.
        price_source: The source of the prices.
        step_cost: Expected cost of a step of one attempt: `prompt_tokens` and `answer_tokens`; of
            several models the mean.
        prompt_tokens: The expected length of a prompt, other programs included.
        answer_tokens: The expected length of an answer.
        reference_cost: The expected cost of a step in the settings (c-bar).
        steps: Number of such steps that the budget pays for, see `paid_steps`; the iteration limit
            applies as well.
        fewest_steps: The number if every answer has the maximum length.
        most_steps: The number if every answer has `SHORT_ANSWER` tokens.
        worst_call: Upper bound of the cost of the call for the first program.
        worst_tokens_in: Its input tokens then.
        worst_tokens_out: Its output tokens then.
        sandbox: The sandbox; `None` if the problem's own evaluate handles that.
        parallel: Most iterations in flight at the same time.
        most_in_flight: Upper bound of the cost of the requests in flight together.
        models: The models of a menu, each by itself; empty for one model.
        evaluation: What the evaluation of a step costs beside that; `None` if it is free.
    """

    prompts: tuple[PromptSize, ...]
    price_in: float
    price_out: float
    price_source: str
    step_cost: float
    prompt_tokens: int
    answer_tokens: int
    reference_cost: float
    steps: int
    fewest_steps: int
    most_steps: int
    worst_call: float
    worst_tokens_in: int
    worst_tokens_out: int
    sandbox: str | None
    parallel: int
    most_in_flight: float
    models: tuple[ModelForecast, ...] = ()
    evaluation: EvaluationForecast | None = None


def dry_run_of(plan: Plan, prompts: Sequence[tuple[str, Prompt]]) -> DryRun:
    """Forecast the cost of a run from its first prompts; nothing is sent and nothing is written.

    The expected cost is that of an ordinary step whose first attempt succeeds: guides and retries
    are not included. Its evaluation takes as long as that of the initial program.
    """
    prompt, settings = prompts[-1][1], plan.settings
    menu = plan.priced_menu
    tokens = ordinary_input(plan.problem, settings.constants, settings.method)
    models = tuple(_model_forecast(each, prompt, tokens) for each in menu)
    parts = [part for each in menu for part in asked_models(each.model)]
    worst = max(each.worst_call for each in models)
    most = plan.parallel * worst
    expected = fmean(each.step_cost for each in models)
    evaluation = _evaluation_forecast(plan)
    judging = evaluation.cost if evaluation else 0.0
    longest = (evaluation.worst or evaluation.cost) if evaluation else 0.0
    aside = plan.set_aside
    short = fmean(float(_quote(each).cost(Usage(tokens, SHORT_ANSWER))) for each in menu)
    return DryRun(
        prompts=tuple(
            PromptSize(role, len(each.system) + len(each.user), prompt_tokens(each))
            for role, each in prompts
        ),
        price_in=models[0].price_in,
        price_out=models[0].price_out,
        price_source=models[0].price_source,
        step_cost=expected,
        prompt_tokens=tokens,
        answer_tokens=EXPECTED_ANSWER,
        reference_cost=with_reference_cost(settings, menu).constants.reference_cost,
        steps=plan.num_steps(expected + judging, aside),
        fewest_steps=plan.num_steps(worst + longest),
        most_steps=plan.num_steps(short + judging, aside),
        worst_call=worst,
        worst_tokens_in=input_bound(prompt),
        worst_tokens_out=max(map(output_cap, parts)),
        sandbox=plan.sandbox,
        parallel=plan.parallel,
        most_in_flight=min(most, plan.budget) if settings.budget_policy == "hard" else most,
        models=models if len(models) > 1 else (),
        evaluation=evaluation,
    )


def _evaluation_forecast(plan: Plan) -> EvaluationForecast | None:
    """What the evaluation of a step costs, `None` if it is free."""
    problem, settings, known = plan.problem, plan.settings, plan.seed_evaluation
    models = {
        f"{role} {name}": _price_text(_quote(each))
        for role, granted in priced_models_by_role(problem, plan.granted, settings).items()
        for name, each in granted.items()
    }
    if settings.compute_price is None and not models:
        return None
    has_bound = not models or problem.evaluation_dollars is not None
    return EvaluationForecast(
        seconds=known.worker_seconds if known else None,
        cost=float(expected_evaluation(problem, settings)),
        worst=float(evaluation_bound(problem, settings)) if has_bound else None,
        models=models,
    )


def _model_forecast(asked: PricedModel, prompt: Prompt, tokens: int) -> ModelForecast:
    quote = _quote(asked)
    return ModelForecast(
        name=asked.name,
        price_in=float(quote.input_per_million),
        price_out=float(quote.output_per_million),
        price_source=quote.source,
        step_cost=float(expected_cost(asked, tokens)),
        worst_call=float(upper_bound(asked, prompt)),
    )


def _quote(asked: PricedModel) -> ListPrice:
    """The price of the model that is asked first, at the service tier that it asks for."""
    return asked.prices.expected(asked.first)


def dry_run_text(
    found: DryRun, config: RunConfig, prompts: Sequence[tuple[str, Prompt]] = ()
) -> str:
    """A forecast in a few lines, and below them the prompts given, in full."""
    mean = " on average" if found.models else ""
    lines = [
        _HEADING,
        f"  problem         {config.problem}, method {config.method}, seed {config.seed}",
        *_model_lines(found, config),
        *([f"  guide model     {config.guide_model}"] if config.guide_model else []),
        *(
            f"  first {each.role:<8}  {each.characters:,} characters, about {each.tokens:,} tokens"
            for each in found.prompts
        ),
        f"  a step          about ${found.step_cost:.4f}{mean} with a prompt of"
        f" {found.prompt_tokens:,} tokens and an answer of {found.answer_tokens:,}; reference cost"
        f" ${found.reference_cost:g}",
        *(_evaluation_lines(found.evaluation) if found.evaluation else []),
        *([_AGENT_NOTE] if config.generator == WITH_TOOLS else []),
        *([_COMMAND_NOTE] if is_command(config.generator) else []),
        f"  steps           {_steps_text(found)}, at most {config.max_iterations:,}",
        f"  worst call      ${found.worst_call:.4f} ({found.worst_tokens_in:,} tokens in,"
        f" {found.worst_tokens_out:,} out)",
        *(
            [
                f"  in flight       up to {found.parallel} requests, together at most"
                f" ${found.most_in_flight:.4f}"
            ]
            if found.parallel > 1
            else []
        ),
        f"  budget          {budget_text(config.budget)} ({config.budget_policy})",
        *([f"  sandbox         {found.sandbox}"] if found.sandbox else []),
    ]
    for role, prompt in prompts:
        lines += ["", f"--- first {role}, system message ---", prompt.system]
        lines += ["", f"--- first {role}, user message ---", prompt.user]
    return "\n".join(lines)


def _steps_text(found: DryRun) -> str:
    """How many steps the budget pays for; what models of evaluations cost is not known."""
    steps, fewest, most = map(count, (found.steps, found.fewest_steps, found.most_steps))
    judging = found.evaluation
    if judging and judging.models and judging.worst is None:
        return f"{steps} for the budget if evaluations cost nothing"
    if judging and judging.models:
        return (
            f"{fewest} for the budget if answers and evaluations cost as much as they may, {steps}"
            " if evaluations cost nothing"
        )
    both = " and evaluations" if judging else ""
    return (
        f"about {steps} for the budget ({fewest} if answers{both} are as long as they may be,"
        f" {most} if they have {SHORT_ANSWER:,} tokens)"
    )


def _evaluation_lines(found: EvaluationForecast) -> list[str]:
    """What evaluations cost, and the models that they ask."""
    parts = []
    if found.cost or not found.models:
        took = f" for {found.seconds:.3g} s like the initial program" if found.seconds else ""
        parts.append(f"about ${found.cost:.4f}{took}")
    if found.worst is not None:
        parts.append(f"at most ${found.worst:.4f}")
    elif found.models:
        parts.append("at most the budget, as evaluation_dollars is not set")
    known = "; costada check measures one, costada forecast --measured RUN those of a run"
    lines = [f"  an evaluation   {', '.join(parts)}{known if found.models else ''}"]
    return lines + [f"    {name}  {price}" for name, price in found.models.items()]


def _price_text(quote: ListPrice) -> str:
    price = f"${quote.input_per_million:g} in, ${quote.output_per_million:g} out"
    return f"{price} per million tokens; {quote.source}"


def _model_lines(found: DryRun, config: RunConfig) -> list[str]:
    """The model and its price; of several each with the expected cost of a step."""

    def price(of: DryRun | ModelForecast) -> str:
        prices = f"${of.price_in:g} in, ${of.price_out:g} out per million tokens"
        return f"({prices}; {of.price_source})"

    if not found.models:
        return [f"  model           {config.model} {price(found)}"]
    width = max(len(each.name) for each in found.models)
    costs = {each.name: each.step_cost for each in found.models}
    return [
        f"  models          {len(found.models)}, chosen by {config.router}; a step is expected to"
        " cost",
        *(
            f"    {each.name:<{width}}  ${each.step_cost:.4f}, first call at most"
            f" ${each.worst_call:.4f} {price(each)}"
            for each in found.models
        ),
        *(f"    {line}" for line in without_first_tries(costs, config.budget, config.router)),
    ]


def without_first_tries(costs: Mapping[str, float], budget: float, router: str) -> list[str]:
    """The models that are too expensive for first tries of budgeted Thompson, a sentence each.

    Args:
        costs: Expected dollars of an attempt by each model of the menu.
        budget: Dollars of the run.
        router: Name of the rule that chooses.
    """
    if len(costs) < 2 or router not in (DEFAULT_ROUTER, CAUTIOUS_ROUTER):
        return []
    most = TRY_SHARE * budget
    return [
        f"{name} gets no first tries: an attempt is expected to cost ${cost:.4f}, more than"
        f" {TRY_SHARE:.0%} of the budget (${most:.4f}); a random draw may still choose it."
        for name, cost in costs.items()
        if cost > most
    ]


def dry_run_json(
    found: DryRun, config: RunConfig, prompts: Sequence[tuple[str, Prompt]] = ()
) -> str:
    """A forecast and its settings as one JSON object, with the texts of the prompts given."""
    asked = _asked(config)
    if found.models:
        asked["router"] = config.router
    facts = {**asked, **asdict(found)}
    for size, (_, prompt) in zip(facts["prompts"], prompts, strict=False):
        size.update(system=prompt.system, user=prompt.user)
    return json.dumps(facts, indent=2)


def _asked(config: RunConfig) -> dict[str, Any]:
    names = ("problem", "method", "model", "guide_model", "seed", "budget", "budget_policy")
    return {name: getattr(config, name) for name in (*names, "max_iterations")}


def reached_target_text(config: RunConfig) -> str:
    """What a dry run says of a run whose initial program reaches the target."""
    cost = "nothing" if config.compute_price is None else "only that program's evaluation"
    return (
        f"{_HEADING}\n  The initial program reaches the target of {config.target:.10g}: the run"
        f" ends at once, asks no model and costs {cost}."
    )


def reached_target_json(config: RunConfig) -> str:
    """The same as a JSON object: no prompts, no steps, and why the run stops."""
    return json.dumps(
        {**_asked(config), "prompts": [], "steps": 0, "stop_reason": "target"}, indent=2
    )


def first_prompts(plan: Plan) -> list[tuple[str, Prompt]]:
    """Role and text of the prompts of a run, up to the one for its first program.

    There is none if the initial program reaches the target. The graph of the run writes them; its
    models are replaced by one that sends nothing.
    """
    recorded: list[tuple[str, Prompt]] = []

    def record_last(prompt: Prompt) -> None:
        recorded.append(("program", prompt))
        raise _AllRecorded

    # Free, so that no budget is too small for the first request.
    settings: dict[str, Any] = {"price": Price(0, 0), "guide_price": Price(0, 0)}
    settings["compute_price"] = None
    store, thread = RunStore(), RunnableConfig(configurable={"thread_id": "dry run"})
    # Models of the evaluator are not asked: what the first prompt shows of the start is a stand-in.
    problem = plan.problem
    if plan.granted:
        stand_in = Evaluation(score=0.0, objective=0.0, is_valid=True)
        problem = replace(problem, models={}, candidate_models={}, seed_evaluation=stand_in)
        settings["target"] = None
    graph = compile_search(
        problem,
        _PromptRecorder(record=record_last),
        budget=plan.budget,
        guide_model=_PromptRecorder(record=lambda prompt: recorded.append(("guide", prompt))),
        settings=plan.settings.model_copy(update=settings),
        store=store,
        checkpointer=InMemorySaver(),
    )
    # A command must not run: the run ends before it, with the prompt in its state.
    before = ["generate"] if is_command(plan.settings.generator) else None
    try:
        graph.invoke({"seed": plan.settings.seed}, thread, interrupt_before=before)
    except _AllRecorded:
        return recorded
    state = graph.get_state(thread).values
    if state["stop_reason"] == "target":
        return []
    if not before or "step" not in state:
        raise RuntimeError(f"the run ended before it asked for a program: {state['stop_reason']}")
    attempt = state["step"].attempt
    return [*recorded, ("program", Prompt(plan.problem.task, store.text(attempt.prompt)))]


class _AllRecorded(Exception):
    """The run has asked for its first program."""


class _PromptRecorder(BaseChatModel):
    """A model that records prompts and answers none."""

    record: Callable[[Prompt], None] = Field(exclude=True)

    @property
    def _llm_type(self) -> str:
        return "costada-dry-run"

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: Any = None,
        **kwargs: Any,
    ) -> ChatResult:
        system, user = (answer_text(message) for message in messages)
        self.record(Prompt(system=system, user=user))
        # An unanswered guide: the run continues without it and writes the prompt for a program.
        raise TimeoutError

    def bind_tools(
        self, tools: Sequence[Any], *, tool_choice: str | None = None, **kwargs: Any
    ) -> Runnable[LanguageModelInput, AIMessage]:
        """The model itself: tools do not matter here."""
        return self
