"""The runs of an index as metrics in the text format of Prometheus."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Gauge, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from costada.reports.indexed_run import Json
from costada.reports.page.opening import RUNNING
from costada.reports.run_index import RunIndex
from costada.store.history import RunHistory
from costada.store.purse import Purse

METRICS_PATH = "/metrics"
METRICS_TYPE = "text/plain; version=0.0.4"
LABELS = ("run", "problem", "method", "model")

COUNTERS = {
    "iterations": "Iterations that have ended.",
    "seconds": "Seconds at work: from the first request to the last, without the pauses of a"
    " sequential run.",
}
GAUGES = {
    "budget": ("budget_dollars", "Budget."),
    "spent": ("spent_dollars", "Dollars of the iterations that have ended."),
    "since_gain": ("dollars_since_gain", "Dollars since the last gain."),
    "hourly": ("dollars_per_hour", "Dollars an hour, averaged over the seconds at work."),
    "best": ("best_objective", "Objective of the best candidate."),
}
"""Columns of a row: what the metric is called, and what it means."""


def metrics_text(index: RunIndex, purse: Purse | None = None) -> str:
    """The runs of an index and the purse of a server as they are now.

    What is not known of a run is left out.

    Raises:
        OSError: The database of the runs or of the purse cannot be reached.
        ValueError: It is damaged; the same for `sqlite3.Error`.
    """
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Runs(index))
    if purse:
        for name, words, dollars in (
            ("budget", "Budget of the purse.", purse.budget),
            ("spent", "Dollars that the runs of the purse have spent.", purse.spent),
            ("left", "Dollars of the purse that no run has spent or reserved.", purse.remaining),
        ):
            gauge = Gauge(f"costada_purse_{name}_dollars", words, registry=registry)
            gauge.set(float(dollars))
    return generate_latest(registry).decode()


@dataclass(frozen=True, slots=True)
class _Runs:
    """Collects the metrics of runs."""

    index: RunIndex

    def collect(self) -> Iterator[Metric]:
        dollars = CounterMetricFamily(
            "costada_run_dollars", "Dollars of requests by their role.", labels=[*LABELS, "role"]
        )
        state = GaugeMetricFamily(
            "costada_run_state", "1 for the state that a run is in.", labels=[*LABELS, "state"]
        )
        alert = GaugeMetricFamily(
            "costada_run_alert", "1 for each alert of a run.", labels=[*LABELS, "alert"]
        )
        in_flight = GaugeMetricFamily(
            "costada_run_requests_in_flight", "Requests that wait for an answer.", labels=LABELS
        )
        by_column: dict[str, CounterMetricFamily | GaugeMetricFamily] = {
            column: CounterMetricFamily(f"costada_run_{column}", words, labels=LABELS)
            for column, words in COUNTERS.items()
        }
        for column, (name, words) in GAUGES.items():
            by_column[column] = GaugeMetricFamily(f"costada_run_{name}", words, labels=LABELS)
        for row in self.index.all_rows():
            labels = [row["id"], *(row.get(name, "") for name in LABELS[1:])]
            for role, spent in row.get("roles", ()):
                dollars.add_metric([*labels, role], spent)
            state.add_metric([*labels, row["state"]], 1)
            if row["state"] == RUNNING and (number := self._in_flight(row)) is not None:
                in_flight.add_metric(labels, number)
            for kind in row["alerts"]:
                alert.add_metric([*labels, kind], 1)
            for column, family in by_column.items():
                if (value := row.get(column)) is not None:
                    family.add_metric(labels, value)
        yield from (dollars, state, alert, in_flight, *by_column.values())

    def _in_flight(self, row: Json) -> int | None:
        """The requests of a running run that have not ended, `None` if it cannot be read."""
        try:
            run = self.index.run("" if self.index.is_one_run else row["id"])
            with RunHistory.of(run.database) as history:
                return len(history.open_calls(history.last_run()))
        except (LookupError, ValueError, OSError, sqlite3.Error):
            return None
