"""What a resumed run needs first: changed settings, and a check for what was paid for and lost.

Steps are lost when the trace shows them but the run file does not: a power failure may cost the
last transactions of a file, or an older copy may have replaced it. Requests are lost when a file
beside a stored run shows more than its database, which was restored or lagged behind.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from time import time
from typing import NamedTuple

from costada.reports.formats import budget_text
from costada.reports.trace import ticket_of
from costada.runs.config import EXECUTION, STORED, RunConfig
from costada.runs.folder import RunFolder
from costada.runs.gateways import uses_gateway
from costada.runs.stored_run import StoredRun
from costada.store.address import is_there
from costada.store.files import read_end
from costada.store.request_marker import noted_requests
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

TRACE = "steps.jsonl"
LOST_STEPS = "lost steps"
"""Role of the row that stands for the calls of lost steps."""

END_BYTES = 2**20
"""Bytes at the end of a trace that are searched for its last row."""

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


class TracedStep(NamedTuple):
    """What a row of the trace says of the dollars of a step."""

    iteration: Iteration
    ticket: TicketNumber
    step_cost: Decimal
    spent: Decimal


@dataclass(frozen=True, slots=True)
class LostSteps:
    """What a run has lost.

    Attributes:
        words: What is missing, in one line.
        cause: How that comes about.
        source: The file that still shows it.
        first: The first iteration that is repeated.
        dollars: The cost of the lost calls, which no row of the call log shows.
        spent: The cost of the calls that it shows.
        is_paid_again: Whether what is lost is paid for again when it is repeated.
    """

    words: str
    cause: str
    source: str
    first: Iteration
    dollars: Decimal
    spent: Decimal
    is_paid_again: bool

    def check(self, folder: RunFolder, budget: float, *, is_accepted: bool) -> None:
        """Refuse to resume until the caller accepts that these steps are paid for twice.

        Raises:
            ValueError: Saying what is lost and what to do; also if nothing is left of the budget.
        """
        if self.is_paid_again and not is_accepted:
            raise ValueError(
                f"{folder.place}: {self.words}, {self.cause}. What is lost would be repeated and"
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


def lost_steps(folder: RunFolder, store: RunStore, *, counts_lost: bool) -> LostSteps | None:
    """The steps that a run has lost, `None` if none are missing.

    Args:
        folder: The run's files.
        store: Its run file.
        counts_lost: Whether requests with an unknown outcome count at their upper bound.
    """
    if isinstance(folder, StoredRun):
        return _lost_requests(folder, store, counts_lost=counts_lost)
    run_id = store.last_run()
    kept = store.last_step(run_id)
    rows = _lost_rows(folder.steps, kept) if run_id else []
    if not rows:
        return None
    spent = store.ledger.spent(run_id, kept)
    missing = rows[-1].spent - spent - _kept_cost(rows, store, kept, counts_lost)
    dollars = missing if missing >= MIN_DOLLARS else Decimal(0)
    spent += store.ledger.unsettled_cost(run_id, kept, counts_lost=counts_lost)
    first = next_iteration(kept)
    words = (
        f"run.sqlite has lost iterations {first} to {rows[-1].iteration}, which {TRACE} still"
        f" has, and ${dollars:.6f} that their calls cost"
    )
    cause = "as after a power failure, or when an older copy replaced it"
    return LostSteps(words, cause, TRACE, first, dollars, spent, is_paid_again=dollars > 0)


@exactly
def _kept_cost(
    rows: Sequence[TracedStep], store: RunStore, kept: Iteration, counts_lost: bool
) -> Decimal:
    """What the run file still has of the dollars of steps that it has lost."""
    run_id, total = store.last_run(), Decimal(0)
    traced = {row.ticket: row.step_cost for row in rows}
    for ticket in store.ledger.unsettled_tickets(run_id, kept):
        sums = store.call_log.sums.of(run_id, ticket)
        cost = sum((each.cost for each in sums.values()), Decimal(0))
        bound = sum((each.bound * counts_lost for each in sums.values()), Decimal(0))
        own = cost - sums[LOST_STEPS].cost if LOST_STEPS in sums else cost
        # A bound stands for no more than its own step cost, or one would hide many steps.
        total += cost + min(bound, max(traced.get(ticket, Decimal(0)) - own, Decimal(0)))
    return total


def _lost_requests(folder: StoredRun, store: RunStore, *, counts_lost: bool) -> LostSteps | None:
    """What the database of a run lacks of the requests that were sent from this machine."""
    noted = noted_requests(folder.requests)
    if noted is None:
        return None
    kept = store.call_log.requests(noted.run_id, counts_lost=counts_lost)
    if noted.number <= kept.number:
        return None
    # Requests in flight at that time are there, at bounds that can be more than all that is lost.
    dollars = max(noted.dollars - kept.dollars, Decimal(0))
    words = (
        f"the database has lost {noted.number - kept.number} of {noted.number} requests that"
        f" {folder.requests.name} has noted, and ${dollars:.6f} that they can have cost beyond"
        " what it still counts"
    )
    cause = "as after a restore, or a failover to a standby that does not commit synchronously"
    if not store.run_ids():
        raise ValueError(f"{folder.place}: {words}, {cause}, and the run itself; begin another one")
    first = next_iteration(store.last_step(store.last_run()))
    return LostSteps(
        words, cause, folder.requests.name, first, dollars, kept.dollars, is_paid_again=True
    )


def check_lost_steps(folder: RunFolder, config: RunConfig, *, is_accepted: bool) -> None:
    """Refuse to resume a run that has lost steps, as `LostSteps.check` does.

    A gateway has the responses of lost steps, so nothing is paid for again that is repeated.
    """
    has_answers = uses_gateway(config.gateway, folder) and repeats_steps(
        config.parallel, config.order
    )
    if has_answers or not is_there(folder.database):
        return
    with RunStore.at(folder.database, is_read_only=True) as store:
        lost = lost_steps(folder, store, counts_lost=config.lost_calls == "count")
    if lost:
        lost.check(folder, config.budget, is_accepted=is_accepted)


def repeats_steps(parallel: int, order: str) -> bool:
    """Whether a run sends the requests of lost steps again as they were.

    Steps that end as their answers arrive may follow each other in another order.
    """
    return parallel == 1 or order == "launch"


def _lost_rows(steps: Path, kept: Iteration) -> list[TracedStep]:
    """The last rows of a trace, after an iteration; power may have cut the file."""
    try:
        end = read_end(steps, END_BYTES)
    except FileNotFoundError:
        return []
    rows = []
    for line in reversed(end.splitlines()):
        try:
            row = parse_json(line)
            traced = TracedStep(
                iteration=Iteration(int(row["iteration"])),
                ticket=ticket_of(row),
                step_cost=amount(str(float(row.get("step_cost", 0)))),
                spent=amount(str(float(row["spent"]))),
            )
        except (AttributeError, ValueError, KeyError, TypeError, OverflowError):
            continue
        if traced.iteration <= kept:
            break
        rows.append(traced)
    return rows[::-1]
