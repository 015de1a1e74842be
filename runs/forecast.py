"""What a run would do, told without a call: its first prompts, its costs, its number of steps."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from math import ceil, inf, isfinite
from typing import Any

from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatResult
from langchain_core.runnables import Runnable
from pydantic import Field

from costada.graph.build import create_discovery_graph
from costada.models.prices import Quote, price_book
from costada.models.replies import answer_text, estimated_usage
from costada.models.runnable_tree import asked_models
from costada.nodes.calls.budget import EXPECTED_ANSWER, call_bound, input_bound, output_cap
from costada.prompts.render import Prompt
from costada.reports.formats import count
from costada.runs.config import RunConfig
from costada.runs.plan import Plan
from costada.store.run_store import RunStore
from costada.values.prices import Price
from costada.values.usage import Usage

SHORT_ANSWER = 1_000
"""Tokens of the answers that make a run longest: a small change and few words."""

_AGENT_NOTE = (
    "  with tools      each answer of the model costs at least as much; a step takes several,"
    " so there will be fewer steps"
)


@dataclass(frozen=True, slots=True)
class PromptSize:
    """A prompt that would be sent: what for, its characters, and its tokens as estimated."""

    role: str
    characters: int
    tokens: int


@dataclass(frozen=True, slots=True)
class Forecast:
    """What a run would cost; dollars, dollars per million tokens, and tokens.

    Attributes:
        prompts: What would be sent first; the last of them asks for the first program.
        price_in: Price of the generating model's input.
        price_out: Likewise of its output.
        price_source: Who says so.
        step_cost: Expected cost of a step: the first program's prompt and `answer_tokens`.
        answer_tokens: The answer that the step cost expects.
        reference_cost: What an ordinary step costs by the settings (c-bar).
        steps: How many such steps the budget buys, the one that crosses it included. The run makes
            as many at most as its iteration limit says.
        fewest_steps: How many it buys if every answer is as long as the model may answer.
        most_steps: How many it buys if every answer has `SHORT_ANSWER` tokens.
        worst_call: The most that the call for the first program can cost.
        worst_tokens_in: Its tokens then.
        worst_tokens_out: Likewise of its answer.
        sandbox: What holds candidates; `None` if the problem's own evaluate sees to that.
    """

    prompts: tuple[PromptSize, ...]
    price_in: float
    price_out: float
    price_source: str
    step_cost: float
    answer_tokens: int
    reference_cost: float
    steps: int
    fewest_steps: int
    most_steps: int
    worst_call: float
    worst_tokens_in: int
    worst_tokens_out: int
    sandbox: str | None


def forecast(plan: Plan) -> Forecast:
    """Return what a run would do and cost; nothing is sent and nothing is written.

    Prompts grow while programs and their histories do, and guides and retries come on top, so the
    expected cost is that of an early step that succeeds at once.
    """
    prompts = first_prompts(plan)
    prompt, settings = prompts[-1][1], plan.settings
    book = price_book([(plan.model, settings.price)], settings.other_prices)
    parts = asked_models(plan.model)
    quotes = [book.listed(part.identity.name) for part in parts]
    caps = [output_cap(part) for part in parts]
    worst = max(call_bound(quote, prompt, cap) for quote, cap in zip(quotes, caps, strict=True))
    expected = _cost(quotes[0], prompt, EXPECTED_ANSWER)
    return Forecast(
        prompts=tuple(_size(role, text) for role, text in prompts),
        price_in=float(quotes[0].input_per_million),
        price_out=float(quotes[0].output_per_million),
        price_source=quotes[0].source,
        step_cost=expected,
        answer_tokens=EXPECTED_ANSWER,
        reference_cost=settings.constants.reference_cost,
        steps=_num_steps(expected, plan),
        fewest_steps=_num_steps(float(worst), plan),
        most_steps=_num_steps(_cost(quotes[0], prompt, SHORT_ANSWER), plan),
        worst_call=float(worst),
        worst_tokens_in=input_bound(prompt),
        worst_tokens_out=max(caps),
        sandbox=plan.sandbox,
    )


def forecast_text(told: Forecast, config: RunConfig) -> str:
    """Return a forecast in a few lines."""
    price = f"${told.price_in:g} in, ${told.price_out:g} out per million tokens"
    lines = [
        "Dry run: nothing was sent and nothing was written.",
        f"  problem         {config.problem}, method {config.method}, seed {config.seed}",
        f"  model           {config.model} ({price}; {told.price_source})",
        *([f"  guide model     {config.guide_model}"] if config.guide_model else []),
        *(
            f"  first {each.role:<8}  {each.characters:,} characters, about {each.tokens:,} tokens"
            for each in told.prompts
        ),
        f"  a step          about ${told.step_cost:.4f} with an answer of {told.answer_tokens:,}"
        f" tokens; reference cost ${told.reference_cost:g}",
        *([_AGENT_NOTE] if config.generator == "agent" else []),
        f"  steps           about {count(told.steps)} for the budget ({count(told.fewest_steps)} if"
        f" answers are as long as they may be, {count(told.most_steps)} if they have"
        f" {SHORT_ANSWER:,} tokens),"
        f" at most {config.max_iterations:,}",
        f"  worst call      ${told.worst_call:.4f} ({told.worst_tokens_in:,} tokens in,"
        f" {told.worst_tokens_out:,} out)",
        f"  budget          ${config.budget:g} ({config.budget_policy})",
        *([f"  sandbox         {told.sandbox}"] if told.sandbox else []),
    ]
    return "\n".join(lines)


def forecast_json(told: Forecast, config: RunConfig) -> str:
    """Return a forecast, and the settings it is for, as one JSON object."""
    names = ("problem", "method", "model", "guide_model", "seed", "budget", "budget_policy")
    asked = {name: getattr(config, name) for name in (*names, "max_iterations")}
    return json.dumps({**asked, **asdict(told)}, indent=2)


def first_prompts(plan: Plan) -> list[tuple[str, Prompt]]:
    """Return role and text of what a run would send until it asks for its first program.

    The graph of the run writes them; its models are exchanged for one that sends nothing.
    """
    taken: list[tuple[str, Prompt]] = []

    def take_last(prompt: Prompt) -> None:
        taken.append(("program", prompt))
        raise _AllTaken

    free = {"price": Price(0, 0), "guide_price": Price(0, 0)}
    graph = create_discovery_graph(
        plan.problem,
        _PromptTaker(take=take_last),
        budget=plan.budget,
        guide_model=_PromptTaker(take=lambda prompt: taken.append(("guide", prompt))),
        settings=plan.settings.model_copy(update=free),
        store=RunStore(),
    )
    try:
        graph.invoke({"seed": plan.settings.seed})
    except _AllTaken:
        return taken
    raise RuntimeError("the run ended before it asked for a program")


class _AllTaken(Exception):
    """The run has asked for a program, and that is all there was to learn."""


class _PromptTaker(BaseChatModel):
    """Stands in for a model: hands each prompt on and answers none."""

    take: Callable[[Prompt], None] = Field(exclude=True)

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
        self.take(Prompt(system=system, user=user))
        raise TimeoutError

    def bind_tools(
        self, tools: Sequence[Any], *, tool_choice: str | None = None, **kwargs: Any
    ) -> Runnable[LanguageModelInput, AIMessage]:
        """Return the model as it is: what it is told of tools makes no difference."""
        return self


def _size(role: str, prompt: Prompt) -> PromptSize:
    return PromptSize(role, len(prompt.system) + len(prompt.user), _tokens(prompt))


def _tokens(prompt: Prompt) -> int:
    return estimated_usage((prompt.system, prompt.user), "").input_tokens


def _cost(quote: Quote, prompt: Prompt, answer_tokens: int) -> float:
    return float(quote.cost(Usage(_tokens(prompt), answer_tokens)))


def _num_steps(step_cost: float, plan: Plan) -> int:
    """Return how many steps of a cost the budget buys; if they are as good as free, all made."""
    limit = plan.settings.constants.max_iterations
    ratio = plan.budget / step_cost if step_cost else inf
    return ceil(ratio) if isfinite(ratio) else limit
