"""What a provider's export of usage says it has billed: for each request, or for spans of time."""

import csv
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import NamedTuple

from costada.values.usage import MAX_PRICE, Usage

Row = Mapping[str, str | None]

MAX_TOKENS = 10**15
MAX_DECIMALS = 30
"""Decimal places of an amount; a ledger cannot read smaller ones."""


@dataclass(frozen=True, slots=True)
class BilledUsage:
    """A line of an export: one request, or all requests to a model in a span of time.

    Attributes:
        request_id: The provider's id of the response; empty if the line may be of many requests.
        model: Name of the model.
        begins: Seconds since 1970 UTC at which the span begins, or the request was made.
        ends: The end of the span, which is not part of it; of one request the same as `begins`.
        usage: Billed tokens.
        dollars: What was billed, `None` where the export has tokens alone.
    """

    request_id: str
    model: str
    begins: float
    ends: float
    usage: Usage
    dollars: Decimal | None = None


@dataclass(frozen=True, slots=True)
class Bill:
    """An export: the provider whose form it has, and its lines in the order of time."""

    provider: str
    lines: Sequence[BilledUsage]

    @property
    def names_requests(self) -> bool:
        """Whether each line is of one request."""
        return all(each.request_id for each in self.lines)


class Form(NamedTuple):
    """The form of a provider's export: columns that it has, and how one of its rows is read."""

    provider: str
    columns: frozenset[str]
    read: Callable[[Row], BilledUsage]


def read_bill(path: Path) -> Bill:
    """Read an export of usage in CSV, as OpenRouter, OpenAI and Anthropic write it.

    Raises:
        ValueError: It has another form, or an invalid value; the text names the line.
        OSError: It cannot be read.
    """
    with path.open(encoding="utf-8-sig", newline="") as file:
        try:
            return _bill_of(path, csv.DictReader(file, strict=True))
        except (UnicodeDecodeError, csv.Error) as error:
            raise ValueError(f"{path}: is not a CSV file ({error})") from None


def _bill_of(path: Path, rows: "csv.DictReader[str]") -> Bill:
    columns = set(rows.fieldnames or ())
    form = next((each for each in FORMS if each.columns <= columns), None)
    if form is None:
        known = "; ".join(f"{each.provider}: {', '.join(sorted(each.columns))}" for each in FORMS)
        raise ValueError(
            f"{path}: has the columns {', '.join(sorted(columns)[:20]) or '(none)'}; expected those"
            f" of an export of one of these providers: {known}"
        )
    lines = sorted(_lines(path, rows, form), key=lambda each: (each.begins, each.request_id))
    if not lines:
        raise ValueError(f"{path}: has no line of usage")
    ids = [each.request_id for each in lines if each.request_id]
    if len(ids) != len(set(ids)):
        twice = next(each for each in ids if ids.count(each) > 1)
        raise ValueError(f"{path}: names the request {twice!r} twice, expected each once")
    return Bill(form.provider, lines)


def _lines(path: Path, rows: "csv.DictReader[str]", form: Form) -> Iterator[BilledUsage]:
    for row in rows:
        try:
            if None in row or None in row.values():
                raise ValueError("got another number of values than the file has columns")
            yield form.read(row)
        except ValueError as error:
            raise ValueError(f"{path}, line {rows.line_num}: {error}") from None


def _read_openrouter(row: Row) -> BilledUsage:
    made = _moment(row, "created_at")
    return BilledUsage(
        _text(row, "generation_id"),
        _text(row, "model_permaslug"),
        made,
        made,
        Usage(_count(row, "tokens_prompt"), _count(row, "tokens_completion")),
        _dollars(row, "cost_total"),
    )


def _read_openai(row: Row) -> BilledUsage:
    usage = Usage(
        _count(row, "input_tokens"),
        _count(row, "output_tokens"),
        cached_tokens=_count(row, "input_cached_tokens"),
    )
    begins, ends = _moment(row, "start_time"), _moment(row, "end_time")
    return BilledUsage("", _text(row, "model"), begins, ends, usage)


def _read_anthropic(row: Row) -> BilledUsage:
    inputs = {name: _count(row, name) for name in row if name.startswith(ANTHROPIC_INPUT)}
    cached = inputs.get(f"{ANTHROPIC_INPUT}cache_read", 0)
    written = sum(count for name, count in inputs.items() if "cache_write" in name)
    usage = Usage(
        sum(inputs.values()),
        _count(row, "usage_output_tokens"),
        cached_tokens=cached,
        cache_write_tokens=written,
        cache_write_1h_tokens=inputs.get(f"{ANTHROPIC_INPUT}cache_write_1h", 0),
    )
    day = _moment(row, "usage_date_utc")
    return BilledUsage("", _text(row, "model_version"), day, day + DAY, usage)


DAY = timedelta(days=1).total_seconds()
ANTHROPIC_INPUT = "usage_input_tokens_"

FORMS = (
    Form(
        "OpenRouter",
        frozenset(
            [
                "generation_id",
                "created_at",
                "model_permaslug",
                "tokens_prompt",
                "tokens_completion",
                "cost_total",
            ]
        ),
        _read_openrouter,
    ),
    Form(
        "OpenAI",
        frozenset(["start_time", "end_time", "model", "input_tokens", "output_tokens"]),
        _read_openai,
    ),
    Form(
        "Anthropic",
        frozenset(
            f"usage_date_utc model_version {ANTHROPIC_INPUT}no_cache usage_output_tokens".split()
        ),
        _read_anthropic,
    ),
)
"""Columns beyond these, such as those of keys and workspaces, are not needed."""


def _text(row: Row, name: str) -> str:
    text = (row.get(name) or "").strip()
    if not text:
        raise ValueError(f"{name}: is empty")
    return text


def _count(row: Row, name: str) -> int:
    """Tokens; none where a cell is empty."""
    text = (row.get(name) or "0").strip()
    number = _number(name, text, "an integer")
    # The range first: a short text can be a number of a billion digits.
    if not 0 <= number < MAX_TOKENS or number != int(number):
        raise ValueError(f"{name}: got {text!r}, expected an integer of at least 0")
    return int(number)


def _dollars(row: Row, name: str) -> Decimal:
    text = _text(row, name)
    number = _number(name, text, "dollars")
    if not 0 <= number < MAX_PRICE or int(number.as_tuple().exponent) < -MAX_DECIMALS:
        raise ValueError(f"{name}: got {text!r}, expected dollars")
    return number


def _number(name: str, text: str, expected: str) -> Decimal:
    try:
        number = Decimal(text)
    except InvalidOperation:
        number = Decimal("nan")
    if not number.is_finite():
        raise ValueError(f"{name}: got {text!r}, expected {expected}")
    return number


def _moment(row: Row, name: str) -> float:
    return moment(_text(row, name), name)


def moment(text: str, name: str) -> float:
    """Seconds since 1970 UTC of a date, a date and time, or such a number; raises `ValueError`."""
    try:
        if text.isdecimal():
            return datetime.fromtimestamp(int(text), UTC).timestamp()
        found = datetime.fromisoformat(text.removesuffix(" UTC"))
        return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        raise ValueError(
            f"{name}: got {text!r}, expected a time in UTC such as 2026-01-31T09:30:00"
        ) from None
