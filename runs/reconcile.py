"""`reconcile`: what a provider has billed settles the requests of runs whose bill was unknown."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path

from costada.models.provider_bills import Bill, moment, read_bill
from costada.nodes.calls.run_account import (
    has_slice,
    put_cost,
    reported_tickets,
    settle,
)
from costada.nodes.charge_ledger import charged_with
from costada.nodes.state import Flight, SearchState
from costada.reports.run_index import runs_below
from costada.runs.config import RunConfig
from costada.runs.folder import RunFolder
from costada.runs.reconciliation import BILL, Billed, Reconciliation, SentCall, reconcile
from costada.runs.resume import LOST_STEPS
from costada.runs.runner import saved_state
from costada.runs.shared_purse import PurseAddress
from costada.runs.stored_run import StoredRun, named_runs, run_at
from costada.store.address import is_database, is_there
from costada.store.purse import Purse
from costada.store.rows import CallRow, CallStatus
from costada.store.run_store import RunStore
from costada.values.numbering import Iteration
from costada.values.usage import NO_TOKENS, exactly


@dataclass(frozen=True, slots=True)
class KnownRun:
    """A run with the requests that it has sent to models."""

    folder: RunFolder
    config: RunConfig
    run_id: str
    sent: Sequence[SentCall]


@dataclass(frozen=True, slots=True)
class ReconciledRuns:
    """What a bill says of some runs."""

    bill: Bill
    runs: Sequence[KnownRun]
    found: Reconciliation


def reconcile_runs(
    places: Sequence[str],
    bill_file: Path,
    *,
    since: str = "",
    until: str = "",
    purse: PurseAddress | None = None,
    is_dry_run: bool = False,
) -> ReconciledRuns:
    """Settle the requests in doubt of runs by an export of their provider.

    What they were charged too much goes back to the budget, and to the purse. A run that has
    stopped can then be resumed with it.

    Args:
        places: Run folders, folders of runs, and databases or runs in one.
        bill_file: The export.
        since: The beginning of the time that it covers; by default that of its first line.
        until: The end of that time; by default that of its last line. No export covers more than
            the time until its file was written.
        purse: The one that the runs drew from.
        is_dry_run: Whether nothing is written.

    Raises:
        ValueError: A place holds no run, a run is at work, the export has no known form, or an
            argument is invalid.
        OSError: A file cannot be read or written, or a server cannot be reached.
    """
    bill = read_bill(bill_file)
    begins = moment(since, "--since") if since else bill.lines[0].begins
    last = moment(until, "--until") if until else max(each.ends for each in bill.lines)
    # The end of a day is still to come where the export of it was made earlier.
    ends = min(last, bill_file.stat().st_mtime)
    folders = [folder for place in places for folder in _folders(place)]
    runs = [_known(folder) for folder in {_identity(each): each for each in folders}.values()]
    found = reconcile(bill, [each for run in runs for each in run.sent], begins, ends)
    if not is_dry_run:
        for run in runs:
            _settle(run, found)
        if purse:
            with purse.open() as opened:
                for run in runs:
                    _correct_purse(run, opened)
    return ReconciledRuns(bill, runs, found)


def _folders(place: str) -> Iterator[RunFolder]:
    """The runs at a place."""
    if is_database(place) and "#" not in place:
        yield from named_runs(place)
        return
    folder = run_at(place)
    below = [] if is_database(place) or folder.settings.exists() else _below(folder)
    yield from below or [folder]


def _identity(folder: RunFolder) -> str:
    """Equal for a run that is named twice."""
    return folder.place if isinstance(folder, StoredRun) else str(folder.path.resolve())


def _below(folder: RunFolder) -> list[RunFolder]:
    found = runs_below(folder.path, folder.settings.name).found
    return [RunFolder(folder.path / each) for each in found]


def _known(folder: RunFolder) -> KnownRun:
    """A run with its requests; raises `ValueError` while a process works on it."""
    config = folder.load()
    if folder.is_running:
        raise ValueError(f"{folder.place}: is running, expected a run that has ended or stopped")
    if not is_there(folder.database):
        return KnownRun(folder, config, "", ())
    with RunStore.at(folder.database, is_read_only=True) as store:
        run_id = store.last_run()
        calls = [*store.call_log.numbered(run_id)]
        lost_at = max((row.ended_at for key, _, row in calls if key.role == LOST_STEPS), default=0)
        sent = [
            SentCall(key, number, row, is_before_loss=row.ended_at - row.seconds <= lost_at)
            for key, number, row in calls
            if row.model
        ]
    return KnownRun(folder, config, run_id, sent)


def _settle(run: KnownRun, found: Reconciliation) -> None:
    """Write what the requests of a run have cost, and give back what it was charged too much."""
    settled = [(each, found.settled[each]) for each in run.sent if each in found.settled]
    if not settled:
        return
    with run.folder.hold(), RunStore.at(run.folder.database) as store:
        state = saved_state(run.folder) or SearchState()
        counts_lost = run.config.lost_calls == "count"
        try:
            settle_requests(
                store, run.run_id, state.get("flight", Flight()), settled, counts_lost=counts_lost
            )
        except ValueError as error:
            raise ValueError(f"{run.folder.place}: {error}") from None


@exactly
def settle_requests(
    store: RunStore,
    run_id: str,
    flight: Flight,
    settled: Sequence[tuple[SentCall, Billed]],
    *,
    counts_lost: bool,
) -> None:
    """Write what requests of a run have cost, and correct its account, all at once.

    Args:
        store: That of the run, which this process holds.
        run_id: The run.
        flight: The tickets as of its last checkpoint.
        settled: The requests with what a bill says of them.
        counts_lost: Whether requests whose bill is unknown count at their upper bound.

    Raises:
        ValueError: A request has changed since it was read.
    """
    with store.ledger.unchanged():
        landed = store.iterations(run_id)
        too_much: dict[Iteration, Decimal] = defaultdict(Decimal)
        for call, billed in settled:
            row = store.call_log.request(call.key, call.number)
            if replace(row, prompt="", answer="") != call.row:
                raise ValueError("has gone on meanwhile; try again")
            store.call_log.settle_call(run_id, _settled_row(row, billed), call.number)
            charged = row.cost + row.bound * counts_lost
            if (iteration := charged_with(row.ticket, landed, flight)) is not None:
                too_much[iteration] += charged - billed.dollars
        store.ledger.give_back(run_id, too_much)


def _settled_row(row: CallRow, billed: Billed) -> CallRow:
    """A request with what a bill says of it."""
    was_answered = row.status is CallStatus.UNCOUNTED
    had_no_end = row.status is CallStatus.STARTED
    has_tokens = billed.usage != NO_TOKENS
    return replace(
        row,
        cost=billed.dollars,
        bound=Decimal(0),
        usage=billed.usage if has_tokens else row.usage,
        provider_id=row.provider_id or billed.request_id or None,
        is_estimated=row.is_estimated and not has_tokens,
        status=CallStatus.DONE if was_answered else CallStatus.LOST if had_no_end else row.status,
        error=None if was_answered else row.error,
        price_source=BILL,
    )


def _correct_purse(run: KnownRun, purse: Purse) -> None:
    """Bring what bills have settled in a run into its purse, also after a crash before this.

    Other entries stay: a run file that has lost requests knows less of them than the purse.
    """
    account = purse.below(run.run_id) if run.run_id else None
    if account is None:
        return
    with run.folder.hold(), RunStore.at(run.folder.database) as store:
        calls = store.call_log.calls(run.run_id, with_texts=False)
        settled = {each.ticket for each in calls if each.price_source == BILL}
        counts_lost = run.config.lost_calls == "count"
        if has_slice(account):  # of a process that died
            settle(account, store, run.run_id, counts_lost=counts_lost)
        for ticket in settled & reported_tickets(account):
            put_cost(account, store, run.run_id, ticket, counts_lost=counts_lost)
