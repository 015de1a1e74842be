"""What a resumed run needs first: changed settings, and a check for what was paid for and lost.

Requests are lost when the file that notes them shows more than the run file or the database: an
older copy has replaced it, a power failure has cost its last transactions, or a standby lagged
behind. The trace shows the iterations that were lost with them, and in a folder of an earlier
version, which has no such file, also what these cost.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from time import time
from typing import NamedTuple

from costada.reports.formats import budget_text
from costada.runs.config import EXECUTION, STORED, RunConfig
from costada.runs.folder import RunFolder
from costada.runs.gateways import uses_gateway
from costada.runs.stored_run import StoredRun
from costada.store.address import is_there
from costada.store.files import read_end
from costada.store.request_marker import Request, RequestNote, noted_requests
from costada.store.rows import CallRow, CallStatus, amount, parse_json
from costada.store.run_store import RunStore
from costada.values.numbering import Iteration, TicketNumber, next_iteration
from costada.values.usage import exactly

RAISED = ("budget", "max_iterations")
"""Settings that may be raised in a run that has started."""

CHANGEABLE = (
    *RAISED,
    *EXECUTION,
    *("target", "allow_invalid_start", "longest_pause", "on_missing_usage"),
)

TRACE, RUN_FILE = "steps.jsonl", "run.sqlite"
LOST_STEPS = "lost steps"
"""Role of the row that stands for the calls of lost steps."""

END_BYTES = 2**20
"""Bytes at the end of a trace that are searched for its last row."""

CAUSE = "as after a power failure, a failover, or when an older copy was restored"

MIN_DOLLARS = Decimal("1e-9")
"""Smaller amounts are rounding errors: a trace holds floats."""


def extended_config(saved: RunConfig, given: Mapping[str, object]) -> RunConfig:
    """The settings of a run that is resumed with changes; `None` leaves a setting as it is.

    Args:
        saved: The settings of the run.
        given: Values of settings in `CHANGEABLE`. An invalid start that was allowed stays allowed.

    Raises:
        ValueError: If budget or iteration limit is lower than before.
        pydantic.ValidationError: If one of them is invalid.
    """
    known = {name: value for name, value in given.items() if value is not None}
    if saved.allow_invalid_start:
        known["allow_invalid_start"] = True
    config = RunConfig.model_validate({**saved.model_dump(), **known}, context=STORED)
    for name in RAISED:
        before, now = getattr(saved, name), getattr(config, name)
        if now < before:
            raise ValueError(
                f"{name}: got {now:g}, expected at least {before:g}, which the run has;"
                " it can be raised, not lowered"
            )
    return config


def extend_to(folder: RunFolder, wanted: RunConfig) -> None:
    """Save the changes in the folder of a run that is resumed.

    Raises:
        ValueError: If the folder holds no run, a limit is lower or a setting differs that is not
            in `CHANGEABLE`, or another process works on the run.
    """
    folder.load()
    with folder.hold():
        save_extension(folder, wanted)


def save_extension(folder: RunFolder, wanted: RunConfig) -> None:
    """Do what `extend_to` does for a caller that holds the run."""
    saved = folder.load()  # another process may have changed them before the lease
    changed = extended_config(saved, {name: getattr(wanted, name) for name in CHANGEABLE})
    folder.check_same(wanted.model_copy(update={name: getattr(saved, name) for name in CHANGEABLE}))
    if changed != saved:
        folder.save(changed)


REFUSED_NAMES = (
    " (its gateway has answers, but in this order the steps can ask otherwise: an attempt that it"
    " refuses because a lost request had its name counts at the most that it can cost)"
)
IN_GATEWAY = "the gateway has kept the answers"
STORED_ANSWERS = "the answers are stored, and the iterations are repeated from them"


class TracedStep(NamedTuple):
    """A row of a trace; `spent` is what the run had spent with it."""

    iteration: Iteration
    ticket: TicketNumber
    spent: Decimal


@dataclass(frozen=True, slots=True)
class LostSteps:
    """What a run has lost.

    Attributes:
        words: What is missing, in one line.
        source: The file that still shows it.
        first: The first iteration that is repeated.
        dollars: The most that the lost calls can have cost, which no row of the call log shows.
        spent: The cost of the calls that it shows.
        answers: Where the answers are that the repeated iterations get; empty if they are paid for
            again.
        kept: The lost requests that a gateway answers again.
    """

    words: str
    source: str
    first: Iteration
    dollars: Decimal
    spent: Decimal
    answers: str
    kept: Mapping[Request, RequestNote]

    def check(self, folder: RunFolder, budget: float, *, is_accepted: bool) -> None:
        """Refuse to resume until the caller accepts that these steps are paid for twice.

        Raises:
            ValueError: Saying what is lost and what to do; also if nothing is left of the budget.
        """
        if not self.answers and not is_accepted:
            raise ValueError(
                f"{folder.place}: {self.words}, {CAUSE}. What is lost would be repeated and"
                " paid for again. To count these dollars as spent and resume from what is stored:"
                f" {folder.resume_command} --accept-loss (Python: accept_loss=True)"
            )
        if self.dollars and self.spent + self.dollars >= Decimal(str(budget)):
            raise ValueError(
                f"{folder.place}: {self.words}; with these, ${self.spent + self.dollars:.6f} of the"
                f" budget of {budget_text(budget)} are spent. Resume with a higher --budget"
            )

    def charge(self, store: RunStore) -> TicketNumber:
        """Charge a step that has not landed for the calls of the lost steps; returns its ticket."""
        (*_, run_id) = store.run_ids()
        # The dollars of landed steps stand in their rows, which never change.
        ticket = store.ledger.first_open(run_id)
        row = CallRow(
            ticket=ticket,
            role=LOST_STEPS,
            attempt=0,
            cost=self.dollars,
            price_source=self.source,
            is_estimated=True,
            ended_at=time(),
            error=self.words,
            status=CallStatus.LOST,
        )
        store.call_log.put_call(run_id, row)
        return ticket


@exactly
def lost_steps(
    folder: RunFolder, store: RunStore, *, counts_lost: bool, journals: Collection[str] | None = ()
) -> LostSteps | None:
    """The steps that a run has lost, `None` if none are missing.

    Args:
        folder: The run's files.
        store: Its run file.
        counts_lost: Whether requests with an unknown outcome count at their upper bound.
        journals: Those of the gateways that answer lost requests again; `None` for any.
    """
    rows = [] if isinstance(folder, StoredRun) else _lost_rows(folder.steps, store)
    noted = noted_requests(folder.requests)
    if not noted:
        return _lost_by_trace(rows, store, counts_lost, journals) if rows else None
    stored = store.call_log.requests(next(iter(noted)).run_id, counts_lost=counts_lost)
    lost, charged = _lost_requests(noted, stored, counts_lost=counts_lost)
    if not rows and not lost.keys() - stored.keys():
        return None  # at most answers, as of requests in flight at a kill
    kept = {
        each: note
        for each, note in lost.items()
        if note.gateway and (journals is None or note.gateway in journals)
    }
    paid_again = {each: note for each, note in lost.items() if each not in kept}
    answers = "" if paid_again else IN_GATEWAY if kept else STORED_ANSWERS
    dollars = max(_dollars(paid_again or kept) - charged, Decimal(0))
    words = _words(rows, store, dollars) or (
        f"{'the database' if isinstance(folder, StoredRun) else RUN_FILE} has lost {len(lost)} of"
        f" {len(noted)} requests that {folder.requests.name} has noted, or their answers, and"
        f" ${dollars:.6f} that they can have cost beyond what it still counts"
    )
    if any(note.gateway for note in paid_again.values()):
        words += REFUSED_NAMES
    if not store.run_ids():
        raise ValueError(f"{folder.place}: {words}, {CAUSE}, and the run itself; begin another one")
    first, spent = next_iteration(store.last_step(store.last_run())), _dollars(stored)
    return LostSteps(words, folder.requests.name, first, dollars, spent, answers, kept)


def _lost_requests(
    noted: Mapping[Request, RequestNote],
    stored: Mapping[Request, RequestNote],
    *,
    counts_lost: bool,
) -> tuple[dict[Request, RequestNote], Decimal]:
    """Noted requests without an answer in the run, and what it was charged for them already.

    Of one that was in flight when the copy was made, the run lacks no dollars where bounds count:
    its own counts there, which stands for no other request.
    """
    # One that cost nothing may be missing for good: a gateway is not asked for it again.
    missing = {each: note for each, note in noted.items() if each not in stored and note.dollars}
    # By a process that died before it could note that.
    new = stored.keys() - noted.keys()
    charged = _dollars({each: stored[each] for each in new if each.role == LOST_STEPS})
    if _dollars(missing) <= charged:
        missing = {}
    unanswered = {
        each: note._replace(dollars=Decimal(0)) if counts_lost else note
        for each, note in noted.items()
        if each in stored and stored[each].is_open and not note.is_open
    }
    return missing | unanswered, charged


@exactly
def _dollars(requests: Mapping[Request, RequestNote]) -> Decimal:
    return sum((each.dollars for each in requests.values()), Decimal(0))


@exactly
def _lost_by_trace(
    rows: Sequence[TracedStep],
    store: RunStore,
    counts_lost: bool,
    journals: Collection[str] | None = (),
) -> LostSteps:
    """What lost steps have cost where nothing has noted their requests."""
    run_id = store.last_run()
    kept = store.last_step(run_id)
    spent = store.ledger.spent(run_id, kept)
    # Of a call in flight only the trace says what it has cost: its bound would hide other calls.
    known = sum(
        (store.ledger.step_cost(run_id, each.ticket, counts_lost=False) for each in rows), spent
    )
    missing = rows[-1].spent - known
    dollars = missing if missing >= MIN_DOLLARS else Decimal(0)
    answers = IN_GATEWAY if journals is None or journals else "" if dollars else STORED_ANSWERS
    spent += store.ledger.unsettled_cost(run_id, kept, counts_lost=counts_lost)
    words, first = _words(rows, store, dollars), next_iteration(kept)
    return LostSteps(words, TRACE, first, dollars, spent, answers, {})


def _words(rows: Sequence[TracedStep], store: RunStore, dollars: Decimal) -> str:
    """Which iterations are lost; empty if the trace shows none."""
    if not rows:
        return ""
    first = next_iteration(store.last_step(store.last_run()))
    return (
        f"{RUN_FILE} has lost iterations {first} to {rows[-1].iteration}, which {TRACE} still has,"
        f" and ${dollars:.6f} that their calls cost"
    )


def check_lost_steps(folder: RunFolder, config: RunConfig, *, is_accepted: bool) -> None:
    """Refuse to resume a run that has lost steps, as `LostSteps.check` does.

    A gateway has the responses of lost steps, so nothing is paid for again that is repeated.
    """
    if not is_there(folder.database):
        return
    has_answers = uses_gateway(config.gateway, folder) and repeats_steps(
        config.parallel, config.order
    )
    counts_lost = config.lost_calls == "count"
    with RunStore.at(folder.database, is_read_only=True) as store:
        lost = lost_steps(
            folder, store, counts_lost=counts_lost, journals=None if has_answers else ()
        )
    if lost:
        lost.check(folder, config.budget, is_accepted=is_accepted)


def repeats_steps(parallel: int, order: str) -> bool:
    """Whether a run sends the requests of lost steps again as they were.

    Steps that end as their answers arrive may follow each other in another order.
    """
    return parallel == 1 or order == "launch"


def _lost_rows(steps: Path, store: RunStore) -> list[TracedStep]:
    """The last rows of a trace whose steps the run file lacks; power may have cut the trace."""
    try:
        end = read_end(steps, END_BYTES)
    except FileNotFoundError:
        return []
    if not (run_id := store.last_run()):
        return []
    kept, rows = store.last_step(run_id), list[TracedStep]()
    for line in reversed(end.splitlines()):
        try:
            row = parse_json(line)
            iteration, spent = Iteration(int(row["iteration"])), amount(str(float(row["spent"])))
            ticket = TicketNumber(int(row.get("ticket", iteration)))
        except (AttributeError, ValueError, KeyError, TypeError, OverflowError):
            continue
        if iteration <= kept:
            break
        rows.append(TracedStep(iteration, ticket, spent))
    return rows[::-1]
