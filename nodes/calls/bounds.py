"""What a call will cost and the most that it can cost, known before it is made."""

from decimal import Decimal

from costada.models.prices import PriceBook, Quote, ReportedCost
from costada.models.replies import estimated_usage
from costada.models.requests import (
    FRAME_TOKENS,
    OUTPUT_CAPS,
    OutgoingRequest,
    byte_size,
    stated_caps,
)
from costada.models.runnable_tree import AskedModel, asked_models, sent_parameters
from costada.nodes.context import ChatModel, RunContext
from costada.prompts.render import Prompt
from costada.values.usage import Usage

COST_FACTOR, FEES = 10, 1
"""What a provider says it charged is believed up to so many times the upper bound of a request, and
dollars on top: for searches on the web, say."""

MESSAGE_TOKENS = 2 * FRAME_TOKENS
"""Tokens that a provider adds around the two messages of a prompt, at most."""

DEFAULT_OUTPUT_CAP = 32_000
"""Answer tokens allowed to a model that sets no limit itself."""

EXPECTED_ANSWER = 4_000
"""Tokens of an ordinary answer: what the paper's reference costs leave for it."""


def input_bound(prompt: Prompt) -> int:
    """Return the most tokens that a prompt can have: one for each byte, and what frames it."""
    return byte_size(prompt.system) + byte_size(prompt.user) + MESSAGE_TOKENS


def output_cap(asked: AskedModel) -> int:
    """Return the most tokens that an answer can have."""
    held = (getattr(asked.model, name, None) for name in OUTPUT_CAPS)
    own = next((cap for cap in held if cap), None)
    return max(stated_caps(sent_parameters(asked.bound)), default=own) or DEFAULT_OUTPUT_CAP


def expected_cost(model: ChatModel, prompt: Prompt, context: RunContext) -> Decimal:
    """Return the dollars of a request with an ordinary answer, to the model that is asked first."""
    first = asked_models(model)[0]
    tokens = estimated_usage((prompt.system, prompt.user), "").input_tokens
    quote = context.prices.listed(first.identity.name)
    return quote.cost(Usage(tokens, min(EXPECTED_ANSWER, output_cap(first))))


def upper_bound(model: ChatModel, prompt: Prompt, context: RunContext) -> Decimal:
    """Return the most dollars that one request can cost; of several models the dearest counts."""
    return max(
        call_bound(context.prices.listed(asked.identity.name), prompt, output_cap(asked))
        for asked in asked_models(model)
    )


def sent_bound(sent: OutgoingRequest, prices: PriceBook) -> Decimal:
    """Return the most dollars that a request under way can cost.

    Raises:
        ValueError: The model that is asked has no price.
    """
    cap = DEFAULT_OUTPUT_CAP if sent.output_cap is None else sent.output_cap
    return prices.listed(sent.model).worst_cost(sent.input_bound, cap * sent.choices)


def check_told_cost(model: str, quote: Quote, bound: Decimal) -> None:
    """Refuse to continue after a reported cost that the price cannot explain; it is charged.

    Raises:
        ValueError: The provider says that a request cost far more than it can have by its price.
    """
    if isinstance(quote, ReportedCost) and quote.dollars > COST_FACTOR * bound + FEES:
        raise ValueError(
            f"model {model!r}: the provider says that a request cost ${quote.dollars:,.2f},"
            f" expected at most ${bound:.6f} by its price; the call is charged as reported and"
            " nothing more is sent"
        )


def call_bound(quote: Quote, prompt: Prompt, cap: int) -> Decimal:
    """Return the dollars of a call with the longest prompt and the longest answer possible."""
    return quote.worst_cost(input_bound(prompt), cap)
