"""The runs of an index as metrics in the text format of Prometheus."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from time import time
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from costada.reports.run_index import RunIndex
from costada.store.accounts import Account, purses_in
from costada.store.purse import Purse

METRICS_PATH = "/metrics"
METRICS_TYPE = "text/plain; version=0.0.4"
LABELS = ("run", "problem", "method", "model", "purse")

COUNTERS = {
    "iterations": "Iterations that have ended.",
    "seconds": "Seconds at work: from the first request to the last, without the pauses of a"
    " sequential run.",
    "evaluation_seconds": "Seconds of evaluations, as the evaluator reports them.",
}
GAUGES = {
    "budget": ("budget_dollars", "Budget."),
    "spent": ("spent_dollars", "Dollars of the iterations that have ended."),
    "since_gain": ("dollars_since_gain", "Dollars since the last gain."),
    "hourly": ("dollars_per_hour", "Dollars an hour, averaged over the seconds at work."),
    "best": ("best_objective", "Objective of the best candidate."),
    "in_flight": ("requests_in_flight", "Requests that wait for an answer."),
}
"""Columns of a row: what the metric is called, and what it means."""


def metrics_text(
    index: RunIndex, purse: Purse | None = None, purse_files: Iterable[Path] = ()
) -> str:
    """The runs of an index, the purse of a server and those in files as they are now.

    What is not known of a run is left out, and so are runs that have not been read yet.

    Raises:
        OSError: The database of the runs or of a purse cannot be reached.
        ValueError: It is damaged; the same for `sqlite3.Error`.
    """
    registry = CollectorRegistry(auto_describe=False)
    rows = index.all_rows()
    registry.register(_Runs(rows, index.num_unread))
    named = {row.get("purse") for row in rows}
    purses = {each.name: each for each in index.purses() if each.name in named}
    purses |= {each.name: each for file in purse_files for each in purses_in(file)}
    if purse:
        own = purse.accounts()[0]
        purses[own.name] = own
    registry.register(_Purses(purses.values()))
    registry.register(_Jobs(index.jobs()))
    return generate_latest(registry).decode()


@dataclass(frozen=True, slots=True, eq=False)
class _Purses:
    """Collects the metrics of purses."""

    accounts: Collection[Account]

    def collect(self) -> Iterator[Metric]:
        for name, words, dollars_of in (
            ("budget", "Budget of the purse.", attrgetter("budget")),
            ("spent", "Dollars that the runs of the purse have spent.", attrgetter("spent")),
            ("left", "Dollars that no run has spent or reserved.", attrgetter("remaining")),
        ):
            family = GaugeMetricFamily(f"costada_purse_{name}_dollars", words, labels=["purse"])
            for each in self.accounts:
                family.add_metric([each.name], float(dollars_of(each)))
            yield family


@dataclass(frozen=True, slots=True, eq=False)
class _Jobs:
    """Collects the metric of a queue."""

    counts: Mapping[tuple[str, str], int]

    def collect(self) -> Iterator[Metric]:
        jobs = GaugeMetricFamily("costada_jobs", "Jobs of a queue.", labels=["purse", "state"])
        for labels, number in self.counts.items():
            jobs.add_metric(labels, number)
        yield jobs


@dataclass(frozen=True, slots=True, eq=False)
class _Runs:
    """Collects the metrics of runs."""

    rows: Sequence[Mapping[str, Any]]
    num_unread: int

    def collect(self) -> Iterator[Metric]:
        dollars = CounterMetricFamily(
            "costada_run_dollars", "Dollars of requests by their role.", labels=[*LABELS, "role"]
        )
        requests = CounterMetricFamily(
            "costada_run_requests",
            "Requests of the iterations that have ended, by how far they came.",
            labels=[*LABELS, "status"],
        )
        state = GaugeMetricFamily(
            "costada_run_state", "1 for the state that a run is in.", labels=[*LABELS, "state"]
        )
        alert = GaugeMetricFamily(
            "costada_run_alert", "1 for each alert of a run.", labels=[*LABELS, "alert"]
        )
        info = GaugeMetricFamily(
            "costada_run_info",
            "1 for the sandbox in which a run began.",
            labels=[*LABELS, "sandbox"],
        )
        lease = GaugeMetricFamily(
            "costada_run_lease_seconds",
            "Seconds for which a process has held the run.",
            labels=LABELS,
        )
        by_column: dict[str, CounterMetricFamily | GaugeMetricFamily] = {
            column: CounterMetricFamily(f"costada_run_{column}", words, labels=LABELS)
            for column, words in COUNTERS.items()
        }
        for column, (name, words) in GAUGES.items():
            by_column[column] = GaugeMetricFamily(f"costada_run_{name}", words, labels=LABELS)
        for row in self.rows:
            labels = [row["id"], *(row.get(name, "") for name in LABELS[1:])]
            for role, spent in row.get("roles", ()):
                dollars.add_metric([*labels, role], spent)
            for status, number in row.get("requests", ()):
                requests.add_metric([*labels, status], number)
            state.add_metric([*labels, row["state"]], 1)
            for kind in row["alerts"]:
                alert.add_metric([*labels, kind], 1)
            if sandbox := row.get("sandbox"):
                info.add_metric([*labels, sandbox], 1)
            if since := row["held_since"]:  # 0 where nobody knows
                lease.add_metric(labels, max(0.0, time() - since))
            for column, family in by_column.items():
                if (value := row.get(column)) is not None:
                    family.add_metric(labels, value)
        unread = GaugeMetricFamily("costada_runs_unread", "Runs that have not been read yet.")
        unread.add_metric((), self.num_unread)
        yield from (dollars, requests, state, alert, info, lease, unread, *by_column.values())
