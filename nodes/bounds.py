"""What a call will cost and the most that it can cost, known before it is made."""

from decimal import Decimal

from costada.models.announcements import FRAME_TOKENS, OUTPUT_CAPS, byte_size
from costada.models.identity import model_identity, underlying_models
from costada.models.metering import SentCall
from costada.models.token_counts import estimate_counts
from costada.nodes.context import ChatModel, RunContext
from costada.nodes.pricing import PriceBook, Quote
from costada.prompts.render import Prompt

MESSAGE_TOKENS = 2 * FRAME_TOKENS
"""Tokens that a provider adds around the two messages of a prompt, at most."""

DEFAULT_OUTPUT_CAP = 32_000
"""Answer tokens allowed to a model that sets no limit itself."""

EXPECTED_ANSWER = 4_000
"""Tokens of an ordinary answer: what the paper's reference costs leave for it."""


def input_bound(prompt: Prompt) -> int:
    """Return the most tokens that a prompt can have: one for each byte, and what frames it."""
    return byte_size(prompt.system) + byte_size(prompt.user) + MESSAGE_TOKENS


def output_cap(model: ChatModel) -> int:
    """Return the most tokens that an answer can have; of several models the largest number."""
    caps = [
        next((cap for name in OUTPUT_CAPS if (cap := getattr(part, name, None))), None)
        for part in underlying_models(model)
    ]
    return max((cap or DEFAULT_OUTPUT_CAP for cap in caps), default=DEFAULT_OUTPUT_CAP)


def expected_cost(model: ChatModel, prompt: Prompt, context: RunContext) -> Decimal:
    """Return the dollars of a request with an ordinary answer, to the model that is asked first."""
    first = model_identity(underlying_models(model)[0]).name
    tokens = estimate_counts((prompt.system, prompt.user), "").input_tokens
    return context.prices.quotes[first].cost(tokens, min(EXPECTED_ANSWER, output_cap(model)), 0)


def upper_bound(model: ChatModel, prompt: Prompt, context: RunContext) -> Decimal:
    """Return the most dollars that one request can cost; of several models the dearest counts."""
    return max(
        call_bound(context.prices.quotes[model_identity(part).name], prompt, output_cap(part))
        for part in underlying_models(model)
    )


def sent_bound(sent: SentCall, prices: PriceBook) -> Decimal:
    """Return the most dollars that a request under way can cost; 0 without a known price."""
    quote = prices.quotes.get(sent.model)
    cap = DEFAULT_OUTPUT_CAP if sent.output_cap is None else sent.output_cap
    return Decimal(0) if quote is None else quote.worst_cost(sent.input_bound, cap * sent.choices)


def call_bound(quote: Quote, prompt: Prompt, cap: int) -> Decimal:
    """Return the dollars of a call with the longest prompt and the longest answer possible."""
    return quote.worst_cost(input_bound(prompt), cap)
