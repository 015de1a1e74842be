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

from costada.controller.money import remaining
from costada.controller.step import stop_reason
from costada.runs.config import RunConfig
from costada.runs.folder import RunFolder
from costada.runs.lease import hold_lease
from costada.store.files import read_end, replace_text
from costada.store.read_limits import amount, parsed
from costada.store.rows import CallRow, CallStatus
from costada.store.run_store import RunStore

if TYPE_CHECKING:
    from costada.nodes.state import SearchState
    from costada.runs.config import RunConfig
    from costada.runs.folder import RunFolder


RAISED = ("budget", "max_iterations")
"""The settings that may change once a run has begun, and only upwards."""


CHANGEABLE = (*RAISED, "allow_invalid_start")
"""All settings that may change once a run has begun."""


def extended(
    saved: RunConfig,
    *,
    budget: float | None = None,
    max_iterations: int | None = None,
    allow_invalid_start: bool = False,
) -> RunConfig:
    """Return the settings of a run with a higher budget or limit; `None` leaves one as it is.

    An invalid start can be allowed as well, and stays allowed.

    Raises:
        ValueError: If one of them is lower than before.
        pydantic.ValidationError: If one of them can be no budget or limit at all.
    """
    wanted = {"budget": budget, "max_iterations": max_iterations}
    given: dict[str, object] = {k: value for k, value in wanted.items() if value is not None}
    if allow_invalid_start:
        given["allow_invalid_start"] = True
    config = RunConfig.model_validate({**saved.model_dump(), **given})
    for name in RAISED:
        before, now = getattr(saved, name), getattr(config, name)
        if now < before:
            raise ValueError(
                f"{name}: got {now:g}, expected at least {before:g}, which the run has;"
                " it can be raised, not lowered"
            )
    return config


def extend_to(folder: RunFolder, wanted: RunConfig) -> None:
    """Save a higher budget or limit in a folder whose run is to go on.

    Raises:
        ValueError: If the folder holds no run, a limit is lower or another setting differs, or
            another process is at work in the run.
    """
    folder.load()
    with hold_lease(folder.path):
        saved = folder.load()
        raised = extended(
            saved,
            budget=wanted.budget,
            max_iterations=wanted.max_iterations,
            allow_invalid_start=wanted.allow_invalid_start,
        )
        kept = {name: getattr(saved, name) for name in CHANGEABLE}
        folder.check_same(wanted.model_copy(update=kept))
        if raised != saved:
            save_settings(folder, raised)


def save_settings(folder: RunFolder, config: RunConfig) -> None:
    """Replace the settings in a folder; whoever reads them sees the old ones or the new ones."""
    replace_text(folder.settings, config.text)


def can_go_on(state: SearchState, budget: float, max_iterations: int) -> bool:
    """Return whether a run that stopped has something left to do.

    That is so when its budget or its iteration limit was raised, and after any other stop: what
    stood in its way may be gone by now.

    Args:
        state: The run as it stopped.
        budget: Dollars it may spend by now (B).
        max_iterations: Iterations it may make by now (T_max).
    """
    if stop_reason(budget, state["spent"], state["iterations"], max_iterations):
        return False
    if state["stop_reason"] == "budget":
        return remaining(budget, state["spent"]) > state["remaining"]
    return True


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
    known = store.call_log.spent(run_ids[-1], kept)
    known += store.call_log.cost_after(run_ids[-1], kept, counts_lost=counts_lost)
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
    store.call_log.put_call(store.run_ids()[-1], row)


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
