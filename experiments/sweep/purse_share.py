"""Which waiting runs of a sweep the purse that they share can pay for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from costada.experiments.sweep.sweep import Status, SweepRun
from costada.runs.shared_purse import account_name
from costada.store.purse import Purse

NOTHING_LEFT = "too little is left in the purse"


def payable(runs: Sequence[SweepRun], purse: Purse) -> list[SweepRun]:
    """The runs for which a purse holds money already, or has enough left to begin them."""
    own, *others = purse.accounts()
    drawn = [each.name for each in others if each.parent == own.id and not each.is_closed]
    names = {name.partition(" (")[0] for name in drawn} | {*drawn}  # of one name: NAME (2)
    return [
        run
        for run in runs
        if account_name(run.folder) in names or (own.remaining > 0 and own.remaining >= run.least)
    ]


def unpaid(run: SweepRun, reason: str = NOTHING_LEFT) -> SweepRun:
    """A run that the purse cannot pay for: cut short if it has spent money, skipped otherwise."""
    return replace(run, status=Status.CUT_SHORT if run.step else Status.SKIPPED, error=reason)
