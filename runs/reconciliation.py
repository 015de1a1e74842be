"""Which requests a provider's bill settles: the join of a bill with what a ledger has sent.

A line of one request is known by its id. Where the response never came, the request is given the
dearest line that can be its own by model and time, so that no bill is higher than the ledger. An
export without ids says what a model has used in all: what the known requests do not explain was
billed for those in doubt. A request that may have been billed outside the export stays in doubt.
"""

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal

from costada.models.provider_bills import Bill, BilledUsage
from costada.store.call_log import ANSWERED, CallKey
from costada.store.rows import CallRow
from costada.values.usage import MILLION, NO_TOKENS, Usage, exactly, total

BILL = "bill"
"""What the ledger says of the price of a request that a bill has settled."""

CLOCKS_DIFFER = 120.0
"""Seconds by which the clocks of provider and run may differ."""

BEFORE_LOSS = "it was sent before requests that the run has lost, for which its bound may stand"
"""Why a request stays in doubt in a run that counts lost requests."""

LONGEST_REQUEST = 3600.0
"""Seconds after it was sent in which a request without an end may have been billed."""

DATED = re.compile(r"(?P<name>.+?)(@|-)20\d\d-?\d\d-?\d\d")
"""The name of a model with the date of its release."""

Names = Mapping[str, Collection[str]]
"""What a bill calls each model that was asked, as known requests show."""


@dataclass(frozen=True, slots=True)
class SentCall:
    """A request that a ledger has: which one, and its row without prompt and answer.

    `is_before_loss` if its run has counted lost requests after it was sent.
    """

    key: CallKey
    number: int
    row: CallRow
    is_before_loss: bool = False

    @property
    def is_in_doubt(self) -> bool:
        """Whether its bill is unknown."""
        return self.row.bound > 0

    @property
    def most(self) -> Decimal:
        """The most that it can have cost."""
        return self.row.cost + self.row.bound

    @property
    def origin(self) -> tuple[object, ...]:
        """Equal for a request and its copies in forks of its run."""
        key, row = self.key, self.row
        return key.ticket, key.role, key.attempt, self.number, row.request_hash, row.ended_at

    @property
    def begins(self) -> float:
        """The first moment at which its provider can have billed it."""
        return self.row.ended_at - self.row.seconds - CLOCKS_DIFFER

    @property
    def ends(self) -> float:
        """The last such moment: after a timeout the provider may still write its answer."""
        has_no_end = self.row.status not in ANSWERED
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
    copies: dict[object, list[SentCall]] = defaultdict(list)
    for each in sent:
        if not each.row.is_cache_hit:
            copies[each.origin].append(each)
    # Forks share the requests before them. Of several copies, one that is settled says the most.
    chosen = [
        min(group, key=lambda call: (call.is_in_doubt, call.row.is_estimated))
        for group in copies.values()
    ]
    join = _by_request if bill.names_requests else _by_model
    kept = {
        each: BEFORE_LOSS
        for each in chosen
        if any(copy.is_in_doubt and copy.is_before_loss for copy in copies[each.origin])
    }
    found = join(bill.lines, [each for each in chosen if each not in kept], since, until)
    found = replace(found, in_doubt={**found.in_doubt, **kept})
    return _with_copies(found, zip(chosen, copies.values(), strict=True))


def _with_copies(
    found: Reconciliation, groups: Iterable[tuple[SentCall, Sequence[SentCall]]]
) -> Reconciliation:
    """What is settled and in doubt, with all copies of each request."""
    settled: dict[SentCall, Billed] = {}
    in_doubt: dict[SentCall, str] = {}
    for chosen, copies in groups:
        for each in copies:
            if chosen in found.settled:
                settled[each] = found.settled[chosen]
            elif chosen in found.in_doubt:
                in_doubt[each] = found.in_doubt[chosen]
            elif each.is_in_doubt:
                row = chosen.row
                settled[each] = Billed(row.cost, row.provider_id or "", row.usage)
    return replace(found, settled=settled, in_doubt=in_doubt)


@exactly
def _by_request(
    lines: Sequence[BilledUsage], sent: Sequence[SentCall], since: float, until: float
) -> Reconciliation:
    """Join lines of one request each."""
    by_id = {each.request_id: each for each in lines}
    settled: dict[SentCall, Billed] = {}
    differing, known, incomplete = [], 0, set()
    names: dict[str, set[str]] = defaultdict(set)
    for call in sent:
        if line := by_id.pop(call.row.provider_id or "", None):
            known += 1
            names[call.row.model].add(line.model)
            dollars = _dollars(line)
            if call.is_in_doubt or call.row.is_estimated:
                settled[call] = _billed(line)
            elif dollars != call.row.cost:
                differing.append((call, dollars))
        elif _was_billed(call) and not _gaps([call], since, until):
            incomplete.add(call.row.model)
    doubtful = [each for each in sent if each.is_in_doubt and each not in settled]
    in_doubt = {
        each: "the export lacks an answered request to its model"
        for each in doubtful
        if each.row.model in incomplete
    } | _gaps(doubtful, since, until)
    covered = [each for each in doubtful if each not in in_doubt]
    for call, line in _dearest(covered, list(by_id.values()), names):
        settled[call] = _billed(by_id.pop(line.request_id))
    for call in covered:
        if call not in settled:
            if reason := _why_unknown(call, by_id.values(), names):
                in_doubt[call] = reason
            else:
                settled[call] = Billed(Decimal(0))
    return Reconciliation(settled, in_doubt, known, differing, list(by_id.values()))


def _why_unknown(call: SentCall, lines: Iterable[BilledUsage], names: Names) -> str:
    """Why a request that no line can be of may have been billed; empty if it was not."""
    if call.row.model not in names:
        return "the export has no known request to its model"
    if any(_is_like(each, call, names) for each in lines):
        return "the export has an unknown request that cost more than its bound"
    return ""


def _dearest(
    calls: Sequence[SentCall], lines: Sequence[BilledUsage], names: Names
) -> Iterator[tuple[SentCall, BilledUsage]]:
    """Requests with lines that may be theirs: of all such pairings, the one of the most dollars."""
    from scipy.optimize import linear_sum_assignment

    possible = [each for each in lines if any(_may_be(each, call, names) for call in calls)]
    if not possible:
        return
    # One more than its dollars: a request gets a line of nothing rather than none.
    worth = [
        [(1 + float(_dollars(line))) * _may_be(line, call, names) for line in possible]
        for call in calls
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
        own = [each for each in left if undated(each.model) == model]
        left = [each for each in left if undated(each.model) != model]
        doubtful = [each for each in calls if each.is_in_doubt]
        if not doubtful:
            continue
        gaps = _gaps(calls, since, until)
        dollars = next(iter(gaps.values()), None) or _unexplained(own, calls)
        if isinstance(dollars, str):
            in_doubt |= dict.fromkeys(doubtful, dollars)
            continue
        if dollars > sum((each.most for each in doubtful), Decimal(0)):
            in_doubt |= dict.fromkeys(doubtful, "others have used the model in this time as well")
            continue
        for call in doubtful:
            settled[call] = Billed(min(call.most, dollars))
            dollars -= settled[call].dollars
    return Reconciliation(settled, in_doubt, 0, (), left)


def undated(model: str) -> str:
    """The name of a model without its date, which bills show and users leave out."""
    dated = DATED.fullmatch(model)
    return dated["name"] if dated else model


def _is_like(line: BilledUsage, call: SentCall, names: Names) -> bool:
    """Whether a line that no id explains has the model and the time of a request."""
    is_in_time = call.begins <= line.begins <= call.ends
    is_known = line.model in names.get(call.row.model, ())
    return is_in_time and (is_known or undated(line.model) == undated(call.row.model))


def _may_be(line: BilledUsage, call: SentCall, names: Names) -> bool:
    """Whether such a line can be that of a request in doubt."""
    return _is_like(line, call, names) and _dollars(line) <= call.most


def _was_billed(call: SentCall) -> bool:
    """Whether the provider has given the request an id and answered it."""
    return bool(call.row.provider_id) and call.row.status in ANSWERED


def _gaps(calls: Iterable[SentCall], since: float, until: float) -> dict[SentCall, str]:
    """The requests that a bill may lack as it does not cover all their time, and why."""
    found = {}
    for call in calls:
        if call.begins < since:
            found[call] = "the export begins after it was sent"
        elif call.ends > until:
            found[call] = "the export ends before the last moment at which it can have been billed"
    return found


def _unexplained(lines: Sequence[BilledUsage], calls: Sequence[SentCall]) -> Decimal | str:
    """Dollars of what known requests to a model do not explain, or why nothing can be said."""
    known = [each.row for each in calls if not each.is_in_doubt]
    if not lines:
        return "the export has no line of its model"
    if len({each.row.provider for each in calls}) > 1:
        return "several providers were asked for its model"
    if any(each.is_estimated for each in known):
        return "the tokens of other requests to the model are estimates"
    billed = total(each.usage for each in lines)
    counted = total(each.usage for each in known)
    inputs = billed.input_tokens - counted.input_tokens
    outputs = billed.output_tokens - counted.output_tokens
    if inputs < 0 or outputs < 0:
        return "the export has fewer tokens of the model than the ledger"
    if billed.cache_write_tokens > counted.cache_write_tokens:
        return "tokens were written to a cache, at a price that the ledger does not have"
    # Those that an earlier bill has settled, of which the ledger has no tokens.
    settled = (each.cost for each in known if each.price_source == BILL and each.usage == NO_TOKENS)
    dollars = _most(inputs, outputs, calls) - sum(settled, Decimal(0))
    return max(dollars, Decimal(0))


def _most(inputs: int, outputs: int, calls: Sequence[SentCall]) -> Decimal:
    """What tokens cost at the dearest prices of some requests, in dollars."""
    price_in = max(Decimal(each.row.price_in) for each in calls)
    price_out = max(Decimal(each.row.price_out) for each in calls)
    return (inputs * price_in + outputs * price_out) / MILLION


def _by_name(sent: Iterable[SentCall]) -> Mapping[str, list[SentCall]]:
    found: dict[str, list[SentCall]] = defaultdict(list)
    for each in sent:
        found[undated(each.row.model)].append(each)
    return found


def _dollars(line: BilledUsage) -> Decimal:
    if line.dollars is None:
        raise ValueError(f"{line.request_id}: the export has no dollars of this request")
    return line.dollars
