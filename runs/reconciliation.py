"""Which requests a provider's bill settles: the join of a bill with what a ledger has sent.

A line of one request is known by its id. Where the response never came, the request is given the
dearest line that can be its own by model and time, so that no bill is higher than the ledger. An
export without ids says what a model has used in all: what the known requests do not explain was
billed for those in doubt.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

from costada.models.provider_bills import Bill, BilledUsage
from costada.store.call_log import CallKey
from costada.store.rows import CallRow, CallStatus
from costada.values.usage import MILLION, NO_TOKENS, Usage, exactly, total

CLOCKS_DIFFER = 120.0
"""Seconds by which the clocks of provider and run may differ."""

LONGEST_REQUEST = 3600.0
"""Seconds after it was sent in which a request without an end may have been billed."""

DATED = re.compile(r"(?P<name>.+?)(@|-)20\d\d-?\d\d-?\d\d")
"""The name of a model with the date of its release, which bills show and users leave out."""


@dataclass(frozen=True, slots=True)
class SentCall:
    """A request that a ledger has: which one, and its row without prompt and answer."""

    key: CallKey
    number: int
    row: CallRow

    @property
    def is_in_doubt(self) -> bool:
        """Whether its bill is unknown."""
        return self.row.bound > 0

    @property
    def most(self) -> Decimal:
        """The most that it can have cost."""
        return self.row.cost + self.row.bound

    @property
    def begins(self) -> float:
        """The first moment at which its provider can have billed it."""
        return self.row.ended_at - self.row.seconds - CLOCKS_DIFFER

    @property
    def ends(self) -> float:
        """The last such moment."""
        has_no_end = self.row.status in (CallStatus.STARTED, CallStatus.LOST)
        return self.row.ended_at + LONGEST_REQUEST * has_no_end + CLOCKS_DIFFER


@dataclass(frozen=True, slots=True)
class Billed:
    """What a bill says of a request that was in doubt: dollars, and its id and tokens if named."""

    dollars: Decimal
    request_id: str = ""
    usage: Usage = NO_TOKENS


@dataclass(frozen=True, slots=True)
class Reconciliation:
    """The join of a bill with requests.

    Attributes:
        settled: What each request in doubt that the bill settles has cost.
        in_doubt: Why each of the others stays in doubt.
        known: How many requests the bill knows by their ids.
        differing: Requests that cost other dollars by the bill than by the ledger.
        unexplained: Lines of requests that none of these runs has sent.
    """

    settled: Mapping[SentCall, Billed]
    in_doubt: Mapping[SentCall, str]
    known: int
    differing: Sequence[tuple[SentCall, Decimal]]
    unexplained: Sequence[BilledUsage]


def reconcile(bill: Bill, sent: Sequence[SentCall], since: float, until: float) -> Reconciliation:
    """Join a bill that covers a span of time, in seconds since 1970 UTC, with requests."""
    asked = [each for each in sent if not each.row.is_cache_hit]
    join = _by_request if bill.names_requests else _by_model
    return join(bill.lines, asked, since, until)


@exactly
def _by_request(
    lines: Sequence[BilledUsage], sent: Sequence[SentCall], since: float, until: float
) -> Reconciliation:
    """Join lines of one request each."""
    by_id = {each.request_id: each for each in lines}
    settled: dict[SentCall, Billed] = {}
    in_doubt: dict[SentCall, str] = {}
    differing, known = [], 0
    for call in sent:
        if line := by_id.pop(call.row.provider_id or "", None):
            known += 1
            dollars = _dollars(line)
            if call.is_in_doubt or call.row.is_estimated:
                settled[call] = _billed(line)
            elif dollars != call.row.cost:
                differing.append((call, dollars))
    doubtful = [each for each in sent if each.is_in_doubt and each not in settled]
    for call, line in _dearest(doubtful, list(by_id.values())):
        settled[call] = _billed(by_id.pop(line.request_id))
    for call in doubtful:
        if call in settled:
            continue
        if gap := _gap(call, since, until):
            in_doubt[call] = gap
        else:
            settled[call] = Billed(Decimal(0))
    return Reconciliation(settled, in_doubt, known, differing, list(by_id.values()))


def _dearest(
    calls: Sequence[SentCall], lines: Sequence[BilledUsage]
) -> Iterator[tuple[SentCall, BilledUsage]]:
    """Requests with lines that may be theirs: of all such pairings, the one of the most dollars."""
    from scipy.optimize import linear_sum_assignment

    possible = [each for each in lines if any(_may_be(each, call) for call in calls)]
    if not possible:
        return
    # One more than its dollars: a request gets a line of nothing rather than none.
    worth = [
        [(1 + float(_dollars(line))) * _may_be(line, call) for line in possible] for call in calls
    ]
    rows, columns = linear_sum_assignment(worth, maximize=True)
    for row, column in zip(rows.tolist(), columns.tolist(), strict=True):
        if worth[row][column]:
            yield calls[row], possible[column]


def _billed(line: BilledUsage) -> Billed:
    return Billed(_dollars(line), line.request_id, line.usage)


@exactly
def _by_model(
    lines: Sequence[BilledUsage], sent: Sequence[SentCall], since: float, until: float
) -> Reconciliation:
    """Join lines of spans of time: all of a model together."""
    settled: dict[SentCall, Billed] = {}
    in_doubt: dict[SentCall, str] = {}
    left = list(lines)
    for model, calls in _by_name(sent).items():
        if not any(each.is_in_doubt for each in calls):
            continue
        own = [each for each in left if is_model(each.model, model)]
        left = [each for each in left if each not in own]
        doubtful = [each for each in calls if each.is_in_doubt]
        reason = next(filter(None, (_gap(each, since, until) for each in calls)), "")
        rest = reason or _unexplained(own, [each for each in calls if not each.is_in_doubt])
        if isinstance(rest, str):
            in_doubt |= dict.fromkeys(doubtful, rest)
            continue
        dollars = _price(rest, doubtful)
        if dollars > sum((each.most for each in doubtful), Decimal(0)):
            in_doubt |= dict.fromkeys(doubtful, "others have used the model in this time as well")
            continue
        for call in doubtful:
            settled[call] = Billed(min(call.most, dollars))
            dollars -= settled[call].dollars
    return Reconciliation(settled, in_doubt, 0, (), left)


def is_model(billed: str, asked: str) -> bool:
    """Whether a bill means the model that was asked: its name, or that with a date."""
    dated = DATED.fullmatch(billed)
    return asked in (billed, dated and dated["name"])


def _may_be(line: BilledUsage, call: SentCall) -> bool:
    """Whether a line that no id explains can be that of a request in doubt."""
    is_in_time = call.begins <= line.begins <= call.ends
    return is_in_time and is_model(line.model, call.row.model) and _dollars(line) <= call.most


def _gap(call: SentCall, since: float, until: float) -> str:
    """Why a bill may lack a request; empty if it covers all its time."""
    if call.begins < since:
        return "the export begins after it was sent"
    if call.ends > until:
        return "the export ends before the last moment at which it can have been billed"
    return ""


def _unexplained(lines: Iterable[BilledUsage], known: Sequence[SentCall]) -> Usage | str:
    """The tokens that known requests do not explain, or why nothing can be said."""
    billed = total(each.usage for each in lines)
    counted = total(each.row.usage for each in known)
    if any(each.row.is_estimated for each in known):
        return "the tokens of other requests to the model are estimates"
    inputs = billed.input_tokens - counted.input_tokens
    outputs = billed.output_tokens - counted.output_tokens
    if inputs < 0 or outputs < 0:
        return "the export has fewer tokens of the model than the ledger"
    return Usage(inputs, outputs)


def _price(usage: Usage, calls: Sequence[SentCall]) -> Decimal:
    """The most that tokens can cost at the prices of some requests, in dollars."""
    dearest_in = max((Decimal(each.row.price_in) for each in calls), default=Decimal(0))
    dearest_out = max((Decimal(each.row.price_out) for each in calls), default=Decimal(0))
    return (usage.input_tokens * dearest_in + usage.output_tokens * dearest_out) / MILLION


def _by_name(sent: Iterable[SentCall]) -> Mapping[str, list[SentCall]]:
    found: dict[str, list[SentCall]] = defaultdict(list)
    for each in sent:
        found[each.row.model].append(each)
    return found


def _dollars(line: BilledUsage) -> Decimal:
    if line.dollars is None:
        raise ValueError(f"{line.request_id}: the export has no dollars of this request")
    return line.dollars
