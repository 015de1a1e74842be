"""One model request: as it is about to leave, and as it ended."""

from dataclasses import dataclass
from decimal import Decimal


@dataclass(frozen=True, slots=True)
class SentCall:
    """A model request that is about to leave.

    Attributes:
        number: Of the request among those of its logical call, from 1.
        model: Name of the model that is asked, as its provider knows it.
        provider: Name of the provider as LangChain reports it, if it does.
        output_cap: Most answer tokens that the request allows a choice, if it says.
        choices: How many answers the request asks for; each of them is billed.
        input_bound: Most tokens that the prompt can have, tools and schemas included.
        is_all_text: Whether the model reads nothing but the text of the request.
    """

    number: int
    model: str
    provider: str | None
    output_cap: int | None
    choices: int
    input_bound: int
    is_all_text: bool = True


@dataclass(frozen=True, slots=True)
class MeteredCall:
    """One model request that was billed, or may have been.

    Attributes:
        model: Name of the model that was asked, as its provider knows it.
        provider: Name of the provider as LangChain reports it, if it does.
        input_tokens: Billed prompt tokens, those read from or written to a cache included (T_in,
            App. D.1).
        output_tokens: Billed answer tokens, reasoning ones included (T_out, App. D.1).
        cached_tokens: The part of the input read from the provider's prompt cache.
        reasoning_tokens: The part of the output that was thought and not shown.
        is_cache_hit: A LangChain cache answered; nothing was billed and all counts are zero.
        is_estimated: The counts are guessed from the text, the provider reported none.
        answer: Text of the answer, as `written` makes it of one that calls tools; for a stream
            that broke, the text that had arrived.
        finish_reason: Why the model stopped, in the provider's words.
        provider_id: The provider's id of the response.
        duration: Seconds from request to answer.
        error: What went wrong, or None. With zero counts nothing is known to be billed.
        may_be_billed: The provider may have billed more than the counts say.
        number: Of the request among those of its logical call, from 1.
        reported_cost: What the provider says it charged in dollars, if it does.
        cache_write_tokens: The part of the input written to the provider's prompt cache.
        cache_write_1h_tokens: The part of what was written that is kept for an hour.
    """

    model: str
    provider: str | None
    input_tokens: int
    output_tokens: int
    cached_tokens: int
    reasoning_tokens: int
    is_cache_hit: bool
    is_estimated: bool
    answer: str
    finish_reason: str | None
    provider_id: str | None
    duration: float
    error: str | None
    may_be_billed: bool = False
    number: int = 1
    reported_cost: Decimal | None = None
    cache_write_tokens: int = 0
    cache_write_1h_tokens: int = 0
