"""Alerts about runs: which of them hold."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from costada.reports.formats import short_dollars
from costada.reports.page.opening import FINISHED, RUNNING, WAITING

UNREADABLE = "unreadable"
FAILED, NO_GAIN, HOURLY = "failed", "no-gain", "hourly"
"""Kinds of alerts."""

MIN_SECONDS = 60.0
"""Time at work before which dollars an hour raise no alert: one request makes no rate."""


@dataclass(frozen=True, slots=True)
class AlertLimits:
    """From where on a running run raises an alert; `None`: never.

    Attributes:
        no_gain: Dollars since its last gain.
        hourly: Dollars an hour of its time at work.
    """

    no_gain: float | None = None
    hourly: float | None = None


def alerts_of(
    row: Mapping[str, Any], before: Mapping[str, Any], limits: AlertLimits
) -> dict[str, str]:
    """The alerts of a row of an index: their words by kind.

    A run has failed if it was running in the row before, and is neither running nor finished now.
    One that is running but cannot be read keeps its alerts.
    """
    known = before.get("alerts", {})
    if row["state"] == UNREADABLE and row["is_running"]:
        return dict(known)
    if row["state"] not in (RUNNING, FINISHED):
        is_failed = before.get("is_running") or FAILED in known
        words = "ended before its first iteration" if row["state"] == WAITING else row["words"]
        return {FAILED: words} if is_failed else {}
    found = {}
    if row["state"] == RUNNING:
        if limits.no_gain is not None and row["since_gain"] >= limits.no_gain:
            found[NO_GAIN] = f"no gain for {short_dollars(Decimal(row['since_gain']))}"
        hourly = row["hourly"] or 0.0
        if limits.hourly is not None and hourly > limits.hourly and row["seconds"] >= MIN_SECONDS:
            found[HOURLY] = f"{short_dollars(Decimal(hourly))} an hour"
    return found
