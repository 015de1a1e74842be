"""The rows of a run file, and how values are read from them within limits.

A run file may come from an untrusted party: a hostile one can be small and unpack to a lot.
"""

import json
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from enum import StrEnum
from hashlib import sha256
from typing import Any, NamedTuple

from pydantic_core import from_json

from costada.store.address import Place, RunAddress, damage_error
from costada.values.numbering import Iteration, TicketNumber
from costada.values.usage import NO_TOKENS, Price, Usage, cache_savings

MAX_TEXT = 16 * 2**20
"""Bytes of one text: a prompt, an answer, a program."""

MAX_CELL = 32 * 2**20
"""Bytes of one value in the file; SQLite refuses larger ones."""

MAX_READING = 128 * 2**20
"""Bytes of all texts in memory at the same time: of a part of the page, of a population."""

MAX_AMOUNT = 100
MAX_EXPONENT = 30
"""Characters of an amount in dollars, and its magnitude as a power of ten."""

_DECODER = json.JSONDecoder()
_STRICT_DECODER = json.JSONDecoder(parse_constant=lambda _: None)


def inflate(packed: bytes, another: bytes = b"") -> bytes:
    """Compressed bytes as they were, against another text if there is one.

    Raises:
        zlib.error: If they are damaged or larger than any text is.
    """
    decompressor = zlib.decompressobj(zdict=another) if another else zlib.decompressobj()
    data = decompressor.decompress(packed, MAX_TEXT + 1)
    if len(data) > MAX_TEXT:
        raise zlib.error(f"it unpacks to more than {MAX_TEXT:,} bytes")
    if not decompressor.eof:
        raise zlib.error("it is cut short")
    return data


def parse_json(text: str, *, has_constants: bool = True) -> Any:
    """What a row holds as JSON; without constants, what is not a number in JSON is `None`.

    Raises:
        ValueError: If it is not JSON, or is nested too deeply.
    """
    if isinstance(text, str):
        try:
            return from_json(text, allow_inf_nan=False)
        except (TypeError, ValueError):
            pass  # a constant, half a surrogate pair, or no JSON
    try:
        return (_DECODER if has_constants else _STRICT_DECODER).decode(text)
    except (RecursionError, TypeError) as error:
        raise ValueError(f"a row of the run file is not valid JSON ({error})") from None


def record(text: str, *, has_constants: bool = True) -> dict[str, Any]:
    """The JSON object that a row holds; raises `ValueError` if it holds none."""
    known = parse_json(text, has_constants=has_constants)
    if not isinstance(known, dict):
        raise ValueError(f"a row of the run file holds {str(text)[:20]!r}, expected a JSON object")
    return known


def amount(text: str) -> Decimal:
    """Dollars as a row holds them.

    Raises:
        ValueError: If they are not a number, or one that no bill can show: written out, a number of
            few characters can be very long.
    """
    try:
        dollars = Decimal(text) if len(text) <= MAX_AMOUNT else Decimal("nan")
    except (InvalidOperation, TypeError):
        dollars = Decimal("nan")
    if not dollars.is_finite() or abs(dollars.adjusted()) > MAX_EXPONENT:
        raise ValueError(f"a row of the run file holds {str(text)[:20]!r}, expected dollars")
    return dollars


@contextmanager
def checking_rows(place: Place | RunAddress) -> Iterator[None]:
    """Raise the error of a damaged file where rows in the block are not what they should be."""
    try:
        yield
    except (AttributeError, KeyError, TypeError) as error:
        raise damage_error(place, f"a row in it is damaged ({error!r})") from error


class LandedTickets(NamedTuple):
    """Which tickets had landed when something was decided: all up to `last` but the `open` ones."""

    last: TicketNumber
    open: tuple[TicketNumber, ...] = ()


class CallStatus(StrEnum):
    """How far a request came: sent, answered, failed, or sent by a process that died.

    `UNCOUNTED`: answered without token counts, which ended the run or disabled the model. The
    answer is kept.
    """

    STARTED = "started"
    DONE = "done"
    ERROR = "error"
    LOST = "lost"
    UNCOUNTED = "uncounted"


class OutcomeKind(StrEnum):
    """How a logical call ended; `NO_PROTOCOL`: the server that answered is not a chat API."""

    ANSWER = "answer"
    FAILURE = "failure"
    REFUSAL = "refusal"
    TIMEOUT = "timeout"
    NO_PROTOCOL = "no protocol"


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a forked run comes from: the folder and id of the original, its last iteration here."""

    folder: str
    run_id: str
    iteration: Iteration


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRow:
    """One model request of the search and its price.

    Attributes:
        ticket: That of the step which is charged for it.
        role: One of `costada.values.roles.ROLES`.
        attempt: Counts from 1 within the ticket and role.
        frontier: Index of the step's frontier, from 0; None for a guide.
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
        status: How far it came.
        request_hash: Identifies the request.
        entry: What the menu calls the model that was asked; empty in a run with one model, and for
            a guide model that is not in the menu.
        bound: The most that it can have cost beyond `cost`; 0 where the bill is known.
        gateway: Id of the journal of the gateway that it went through; empty without one.
        place: Position among equal requests of one piece of work, by which that gateway tells them
            apart.
    """

    ticket: TicketNumber
    role: str
    attempt: int
    frontier: int | None = None
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
    entry: str = ""
    bound: Decimal = Decimal(0)
    gateway: str = ""
    place: int = 0

    @property
    def is_in_doubt(self) -> bool:
        """Whether the provider may have billed more than the row says."""
        return self.bound > 0

    @property
    def saved(self) -> Decimal:
        """Dollars that the provider's prompt cache saved, by the rates of the call."""
        return cache_savings(self.usage, Price(self.price_in, self.price_out), self.cost)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a logical call, kept so that it is never made twice.

    `kind` says what `text` is: the answer, why there was none, or why the request was refused.
    """

    request_hash: str
    text: str
    kind: OutcomeKind


@dataclass(frozen=True, slots=True)
class Charge:
    """What the ledger holds after an iteration: its step cost, the money spent so far, its calls.

    `cost` and `spent` are dollars, exact (c_t and C_t, Sec. 3.1). `in_doubt` is the part of `cost`
    for requests whose bill is unknown, at their upper bound. `by_role` are the parts of `cost`.
    """

    cost: Decimal
    spent: Decimal
    guide_calls: int
    in_doubt: Decimal = Decimal(0)
    by_role: Mapping[str, Decimal] = field(default_factory=dict)


MAX_FACT = 80
"""Characters of a fact; a longer one is replaced by its hash."""

MAX_SHOWN = 200
"""Characters of a malformed setup that an error shows."""


@dataclass(frozen=True, slots=True)
class RunSetup:
    """What decides the result of a run besides method and seed, as it was when the run began.

    Attributes:
        problem: Facts of the problem and its evaluator, as texts by name.
        settings: Facts of the models and all settings, in the same form.
        task: Name of the stored text of the task; empty if the file has none.
        seal_key: Secret that seals the state of the run; empty if it has none.
        holdout_key: Secret that decides the held-out inputs; empty if only its state has it.
        seed: Start of its randomness, as a string; empty likewise.
        purse: Name of the purse that pays for the run, or has paid last; empty without one.
    """

    problem: Mapping[str, str]
    settings: Mapping[str, str]
    task: str = ""
    seal_key: str = field(default="", repr=False)
    holdout_key: str = field(default="", repr=False)
    seed: str = ""
    purse: str = ""

    @classmethod
    def read(cls, text: str) -> "RunSetup":
        """The setup that a run file holds as JSON.

        Raises:
            ValueError: It is malformed, or lacks what every reader needs.
        """
        known = parse_json(text)
        match known:
            case {"problem": {"name": str(), "direction": str()} as problem, "settings": dict()}:
                parts = problem, known["settings"]
                names = ("task", "seal_key", "holdout_key", "seed", "purse")
                others = [known.get(name, "") for name in names]
                texts = (*(each for part in parts for each in part.values()), *others)
                if all(isinstance(each, str) for each in texts):
                    return cls(*parts, *others)
        raise ValueError(f"setup of the run is {text[:MAX_SHOWN]!r}; expected facts as strings")


def changes(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """In words which facts are no longer what they were."""
    names = sorted({*before, *now})
    return [
        f"{name} was {before.get(name, 'not set')}, is {now.get(name, 'not set')}"
        for name in names
        if before.get(name) != now.get(name)
    ]


def as_texts(facts: Mapping[str, object]) -> dict[str, str]:
    """Plain values as texts, those of a mapping under names with dots; none for `None`."""
    texts: dict[str, str] = {}
    for name, value in facts.items():
        if isinstance(value, Mapping):
            inner = as_texts({str(key): each for key, each in value.items()})
            texts |= {f"{name}.{key}": text for key, text in inner.items()}
        elif value is not None:
            texts[name] = _text(value)
    return texts


def _text(value: object) -> str:
    plain = json.dumps(value, default=lambda odd: f"a {type(odd).__name__}", sort_keys=True)
    text = str(value) if isinstance(value, str) and value.isprintable() else plain
    return text if len(text) <= MAX_FACT else sha256(plain.encode()).hexdigest()[:16]
