"""What a call or an evaluation is expected to cost, and the most that it can cost."""

from collections.abc import Sequence
from decimal import ROUND_UP, Decimal

from costada.evaluators.problem import Problem
from costada.models.metering import MeteredCall
from costada.models.prices import ListPrice, PriceBook, Quote, ReportedCost
from costada.models.reply_content import estimated_usage
from costada.models.runnable_tree import (
    FRAME_TOKENS,
    OUTPUT_CAPS,
    AskedModel,
    OutgoingRequest,
    asked_models,
    byte_size,
    sent_parameters,
    stated_caps,
)
from costada.nodes.context import PricedModel
from costada.nodes.settings import Settings
from costada.prompts.render import Prompt
from costada.values.usage import Usage, exactly

COST_FACTOR, FEES = 10, 1
"""A cost that a provider reports is accepted up to this multiple of the upper bound of a request,
and dollars on top: for searches on the web, say."""

MESSAGE_TOKENS = 2 * FRAME_TOKENS
"""Tokens that a provider adds around the two messages of a prompt, at most."""

DEFAULT_OUTPUT_CAP = 32_000
"""Answer tokens allowed to a model that sets no limit itself."""

EXPECTED_ANSWER = 5_300
"""Tokens of an ordinary answer, hidden reasoning included, as in recordings of GLM-5
(`python bench/expected_cost.py`)."""

EXPECTED_PROGRAM = 1_640
"""Tokens of a program in an ordinary prompt, at least: shorter ones grow to that, as in the same
recordings."""

ROOMY_ANSWER = 2 * EXPECTED_ANSWER
"""Tokens that nearly every answer fits in."""

MINIMAL_ANSWER = 256
"""Tokens of the shortest answer that is worth its money."""


def input_bound(prompt: Prompt) -> int:
    """Most tokens that a prompt can have: one for each byte, and what frames it."""
    return byte_size(prompt.system) + byte_size(prompt.user) + MESSAGE_TOKENS


def output_cap(asked: AskedModel) -> int:
    """Most tokens that an answer of a model can have."""
    held = (getattr(asked.model, name, None) for name in OUTPUT_CAPS)
    own = next((cap for cap in held if cap), None)
    return max(stated_caps(sent_parameters(asked.bound)), default=own) or DEFAULT_OUTPUT_CAP


def prompt_tokens(prompt: Prompt) -> int:
    """Estimated tokens of a prompt."""
    return estimated_usage((prompt.system, prompt.user), "").input_tokens


def expected_usage(asked: AskedModel, input_tokens: int) -> Usage:
    """Tokens of a request with an ordinary answer, which is shorter where the model's limit is."""
    return Usage(input_tokens, min(EXPECTED_ANSWER, output_cap(asked)))


def expected_cost(asked: PricedModel, input_tokens: int) -> Decimal:
    """Dollars of a request with an ordinary answer, to the model that is asked first."""
    return asked.prices.expected(asked.first).cost(expected_usage(asked.first, input_tokens))


def upper_bound(asked: PricedModel, prompt: Prompt) -> Decimal:
    """Most dollars that one request can cost; of several models the most expensive counts."""
    return max(
        call_bound(asked.prices.listed(each.name), prompt, output_cap(each))
        for each in asked_models(asked.model)
    )


def minimal_bound(asked: AskedModel, prices: PriceBook, prompt: Prompt) -> Decimal:
    """Most dollars that the shortest answer worth its money can cost."""
    return call_bound(prices.listed(asked.name), prompt, min(MINIMAL_ANSWER, output_cap(asked)))


SECONDS_PER_HOUR = 3600
SMALLEST_AMOUNT = Decimal("1e-12")
"""Dollars to which the cost of an evaluation is rounded up."""


@exactly
def compute_cost(seconds: float, problem: Problem, settings: Settings) -> Decimal:
    """Dollars of a worker for some seconds, or of the GPUs that the problem asks for."""
    price = Decimal(str(settings.compute_price or 0)) * Decimal(str(problem.gpus or 1))
    dollars = price * Decimal(str(seconds)) / SECONDS_PER_HOUR
    return dollars.quantize(SMALLEST_AMOUNT, ROUND_UP)


def expected_evaluation(problem: Problem, settings: Settings) -> Decimal:
    """Dollars of the time of an evaluation like that of the initial program, 0 if it is unknown."""
    known = problem.seed_evaluation
    return compute_cost(known.worker_seconds if known else 0.0, problem, settings)


def compute_bound(problem: Problem, settings: Settings) -> Decimal:
    """Most dollars that the time of one evaluation can cost by the limits of the problem."""
    return compute_cost(problem.longest_seconds, problem, settings)


@exactly
def evaluation_bound(problem: Problem, settings: Settings) -> Decimal:
    """Most dollars that one evaluation can cost by the limits of the problem: its time, its models.

    So much is left by a request for a program under a hard budget, or it could not be evaluated,
    and so much for each other program in flight whose evaluation has not ended.
    Models without `evaluation_dollars` have no bound but the budget, and nothing is left for them.
    """
    dollars = problem.evaluation_dollars if problem.asks_models else None
    return compute_bound(problem, settings) + Decimal(str(dollars or 0))


def least_budget(menu: Sequence[PricedModel], prompt: Prompt) -> tuple[Decimal, str]:
    """Least dollars that pay for a request of a run at its worst, and the name of its model."""
    return min(
        (minimal_bound(part, each.prices, prompt), part.name)
        for each in menu
        for part in asked_models(each.model)
    )


def check_first_request(
    menu: Sequence[PricedModel], prompt: Prompt, budget: float, evaluation: Decimal = Decimal(0)
) -> None:
    """Refuse a hard budget that pays for no request of a run, fallbacks included.

    Args:
        menu: The models.
        prompt: The first prompt.
        budget: Dollars.
        evaluation: Most dollars that the evaluation of its program can cost.

    Raises:
        ValueError: Naming the least that is needed.
    """
    least, name = least_budget(menu, prompt)
    if evaluation and least + evaluation > Decimal(str(budget)):
        raise ValueError(
            f"budget: got ${budget:g} under a hard budget, expected at least"
            f" ${least + evaluation:.6f}: ${least:.6f} for the first request to {name!r}, and"
            f" ${evaluation:.6f} for an evaluation that costs as much as it may; a lower timeout or"
            " lower evaluation_dollars make that cheaper"
        )
    if least > Decimal(str(budget)):
        raise ValueError(
            f"budget: got ${budget:g} under a hard budget, expected at least ${least:.6f}: what"
            f" the first request to {name!r} can cost"
            f" ({input_bound(prompt):,} tokens in, {MINIMAL_ANSWER} out)"
        )


def call_bound(quote: ListPrice, prompt: Prompt, cap: int) -> Decimal:
    """Dollars of a call with the longest prompt and the longest answer possible."""
    return quote.worst_cost(input_bound(prompt), cap)


def sent_bound(sent: OutgoingRequest, prices: PriceBook) -> Decimal:
    """Most dollars that a request can cost; raises `ValueError` if its model has no price."""
    cap = request_output_cap(sent)
    return prices.listed(sent.model).worst_cost(sent.input_bound, cap * sent.choices)


def request_output_cap(request: OutgoingRequest) -> int:
    """Most tokens of an answer to a request; embeddings have none."""
    return DEFAULT_OUTPUT_CAP if request.output_cap is None else request.output_cap


def check_reported_cost(model: str, quote: Quote, bound: Decimal) -> None:
    """Refuse to continue after a reported cost that the price cannot explain; it is charged.

    Raises:
        ValueError: The provider reports that a request cost far more than it can by its price.
    """
    if isinstance(quote, ReportedCost) and quote.dollars > COST_FACTOR * bound + FEES:
        raise ValueError(
            f"model {model!r}: the provider says that a request cost ${quote.dollars:,.2f},"
            f" expected at most ${bound:.6f} by its price; the call is charged as reported and"
            " nothing more is sent"
        )


def check_service_tier(call: MeteredCall, prices: PriceBook, cost: Decimal, bound: Decimal) -> None:
    """Refuse to continue after an answer at a service tier that exceeds the request's bound.

    A project's settings at the provider may choose a tier where requests choose none.
    Answers at the standard price are not looked at.

    Raises:
        ValueError: The answer cost more than the upper bound of its request; it is charged.
    """
    model, tier = call.request.model, call.reply.service_tier
    listed = prices.listed(model)
    has_price = listed.at_tier(tier) is not listed
    if has_price and call.reply.cost is None and not call.is_estimated and cost > bound:
        raise ValueError(
            f"model {model!r}: answered by service tier {tier!r}, which the"
            f" request did not ask for, and cost ${cost:.6f}, expected at most ${bound:.6f}; the"
            " call is charged and nothing more is sent. Ask for the standard tier:"
            ' service_tier="default", or --models openai:NAME@default'
        )
