"""The rows of a run file, as the nodes write and read them."""

from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum

from costada.values.usage import NO_TOKENS, Usage


class CallStatus(StrEnum):
    """How far a request came: sent, answered, failed, or sent by a process that died."""

    STARTED = "started"
    DONE = "done"
    ERROR = "error"
    LOST = "lost"


class OutcomeKind(StrEnum):
    """What a logical call came to."""

    ANSWER = "answer"
    FAILURE = "failure"
    REFUSAL = "refusal"
    TIMEOUT = "timeout"


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a forked run comes from: the folder and id of the original, its last iteration here."""

    folder: str
    run_id: str
    iteration: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRow:
    """One model request of the search and its price.

    Attributes:
        iteration: Iteration that is charged for it (t).
        role: Generation, retry or guide.
        attempt: Counts from 1 within the iteration and role.
        model: Name of the model, as its provider knows it.
        usage: Billed tokens.
        cost: Dollars, exact.
        price_in: Dollars per million input tokens, before tiers and discounts.
        price_out: The same for output tokens.
        price_source: Where the prices are from.
        is_cache_hit: Whether a local cache answered, free of charge.
        is_estimated: Whether no provider reported the tokens.
        provider: Name of the provider, if known.
        provider_id: The provider's id of the answer, if known.
        finish_reason: Why the model stopped, in the provider's words.
        ended_at: Seconds since 1970 UTC.
        seconds: From request to answer.
        prompt: What the user said and, in a conversation with tools, all that followed.
        answer: A message as `message_to_text` writes it.
        error: What went wrong, or None.
        status: Whether it was sent, answered, failed or lost.
        request_hash: Identifies the request.
        bound: The most that it can have cost beyond `cost`; 0 where the bill is known.
    """

    iteration: int
    role: str
    attempt: int
    model: str = ""
    usage: Usage = NO_TOKENS
    cost: Decimal = Decimal(0)
    price_in: str = "0"
    price_out: str = "0"
    price_source: str = ""
    is_cache_hit: bool = False
    is_estimated: bool = False
    provider: str | None = None
    provider_id: str | None = None
    finish_reason: str | None = None
    ended_at: float = 0.0
    seconds: float = 0.0
    prompt: str = ""
    answer: str = ""
    error: str | None = None
    status: CallStatus = CallStatus.DONE
    request_hash: str = ""
    bound: Decimal = Decimal(0)

    @property
    def is_in_doubt(self) -> bool:
        """Whether the provider may have billed more than the row says."""
        return self.status is not CallStatus.DONE and self.bound > 0


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a logical call came to, kept so that it is never made twice.

    `kind` says what `text` is: the answer, why there was none, or why the request was refused.
    """

    request_hash: str
    text: str
    kind: OutcomeKind


@dataclass(frozen=True, slots=True)
class Charge:
    """What the ledger holds after an iteration: its step cost, the money spent so far, its calls.

    `cost` and `spent` are dollars, exact (c_t and C_t, Sec. 3.1). `in_doubt` is the part of `cost`
    that stands for requests whose bill is unknown, at their upper bound.
    """

    cost: Decimal
    spent: Decimal
    guide_calls: int
    in_doubt: Decimal = Decimal(0)
