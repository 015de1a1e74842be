"""The rows of a run file, as the nodes write and read them."""

from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum


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


@dataclass(frozen=True, slots=True)
class CallRow:
    """One model request of the search side and its price.

    `role` is generation, retry or guide; `attempt` counts from 1 within the iteration and role.
    `cached_tokens` and `cache_write_tokens` are parts of `input_tokens`, `cache_write_1h_tokens` of
    those written, `reasoning_tokens` of `output_tokens`. `cost` is in dollars, exact, at `price_in`
    and `price_out` (dollars per million tokens, before tiers and discounts), which `price_source`
    gave. `is_cache_hit` marks an answer of a local cache (free), `is_estimated` a token count that
    no provider reported. `ended_at` is seconds since 1970 UTC. `bound` is the most that a request
    whose bill is unknown can have cost beyond `cost`, 0 where the bill is known. `prompt` is what
    the user said and, in a conversation with tools, all that followed; `answer` is a message as
    `written` keeps it.
    """

    iteration: int
    role: str
    attempt: int
    model: str
    input_tokens: int
    output_tokens: int
    cached_tokens: int
    reasoning_tokens: int
    cost: Decimal
    price_in: str
    price_out: str
    price_source: str
    is_cache_hit: bool
    is_estimated: bool
    provider: str | None
    provider_id: str | None
    finish_reason: str | None
    ended_at: float
    seconds: float
    prompt: str
    answer: str
    error: str | None
    status: CallStatus = CallStatus.DONE
    request_hash: str = ""
    bound: Decimal = Decimal(0)
    cache_write_tokens: int = 0
    cache_write_1h_tokens: int = 0

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
