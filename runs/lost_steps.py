"""Steps that are in the trace of a run and no longer in its run file.

A machine that loses its power may lose the last transactions of a file, and a copy may be put in
its place that is older. What these steps cost was paid all the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from time import time
from typing import TYPE_CHECKING

from costada.runs.files import read_end
from costada.store.bounds import amount, parsed
from costada.store.rows import CallRow, CallStatus
from costada.store.run_store import RunStore

if TYPE_CHECKING:
    from costada.runs.config import RunConfig
    from costada.runs.folder import RunFolder

LOST_STEPS = "lost steps"
"""Role of the row that stands for the calls of lost steps."""

END_BYTES = 2**20
"""Bytes at the end of a trace in which its last row is looked for."""

LEAST_DOLLARS = Decimal("1e-9")
"""Dollars that count: a trace holds floats."""


@dataclass(frozen=True, slots=True)
class LostSteps:
    """The steps from `first` to `last`, whose calls cost `dollars` that no row of the ledger shows.

    `spent` are the dollars that the ledger shows.
    """

    first: int
    last: int
    dollars: Decimal
    spent: Decimal

    def check(self, folder: RunFolder, budget: float, *, is_accepted: bool) -> None:
        """Refuse to resume until the caller accepts that these steps are paid for twice.

        Raises:
            ValueError: Saying what is lost and what to do; also if, with what they cost, nothing is
                left of the budget.
        """
        if self.dollars and not is_accepted:
            raise ValueError(
                f"{folder.path}: {self.words}, as after a power failure, or when an older copy was"
                " put in its place. These iterations would be made and paid for again. To count"
                " these dollars as spent and go on from the run file:"
                f" {folder.resume_command} --accept-loss (Python: accept_loss=True)"
            )
        if self.dollars and self.spent + self.dollars >= Decimal(str(budget)):
            raise ValueError(
                f"{folder.path}: {self.words}; with these, ${self.spent + self.dollars:.6f} of the"
                f" budget of ${budget:g} are spent. Go on with a higher --budget"
            )

    @property
    def words(self) -> str:
        """What is missing, in one line."""
        return (
            f"run.sqlite has lost iterations {self.first} to {self.last}, which steps.jsonl still"
            f" has, and ${self.dollars:.6f} that their calls cost"
        )


def lost_steps(folder: RunFolder, store: RunStore, *, counts_lost: bool) -> LostSteps | None:
    """Return the steps that a run has lost, `None` if none are missing.

    Args:
        folder: The run's files.
        store: Its run file.
        counts_lost: Whether requests whose bill is unknown count at their upper bound.
    """
    run_ids = store.run_ids()
    row = _last_row(folder.steps)
    if not run_ids or row is None:
        return None
    iteration, spent_by_trace = row
    kept = store.last_step(run_ids[-1])
    if iteration <= kept:
        return None
    known = store.ledger.spent(run_ids[-1], kept)
    known += store.ledger.cost_after(run_ids[-1], kept, counts_lost=counts_lost)
    missing = spent_by_trace - known
    dollars = missing if missing >= LEAST_DOLLARS else Decimal(0)
    return LostSteps(kept + 1, iteration, dollars, known)


def check_lost_steps(folder: RunFolder, config: RunConfig, *, is_accepted: bool) -> None:
    """Refuse to resume a run that has lost steps, as `LostSteps.check` does.

    A gateway has the answers of lost steps, so nothing is paid for again.
    """
    if config.gateway or not folder.database.is_file():
        return
    with RunStore(folder.database, is_read_only=True) as store:
        lost = lost_steps(folder, store, counts_lost=config.lost_calls == "count")
    if lost:
        lost.check(folder, config.budget, is_accepted=is_accepted)


def count(lost: LostSteps, store: RunStore) -> None:
    """Charge the next step of a run for the calls of its lost steps."""
    row = CallRow(
        iteration=lost.first,
        role=LOST_STEPS,
        attempt=0,
        model="",
        input_tokens=0,
        output_tokens=0,
        cached_tokens=0,
        reasoning_tokens=0,
        cost=lost.dollars,
        price_in="0",
        price_out="0",
        price_source="steps.jsonl",
        is_cache_hit=False,
        is_estimated=True,
        provider=None,
        provider_id=None,
        finish_reason=None,
        ended_at=time(),
        seconds=0.0,
        prompt="",
        answer="",
        error=lost.words,
        status=CallStatus.LOST,
    )
    store.ledger.put_call(store.run_ids()[-1], row)


def _last_row(steps: Path) -> tuple[int, Decimal] | None:
    """Return number and dollars of the last whole row of a trace; power may have cut the file."""
    try:
        end = read_end(steps, END_BYTES)
    except FileNotFoundError:
        return None
    for line in reversed(end.splitlines()):
        try:
            row = parsed(line)
            return int(row["iteration"]), amount(str(float(row["spent"])))
        except (ValueError, KeyError, TypeError, OverflowError):
            continue
    return None
