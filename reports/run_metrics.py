"""The runs of an index as metrics in the text format of Prometheus."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Gauge, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from costada.reports.run_index import RunIndex
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
    "in_flight": ("requests_in_flight", "Requests that wait for an answer."),
}
"""Columns of a row: what the metric is called, and what it means."""


def metrics_text(index: RunIndex, purse: Purse | None = None) -> str:
    """The runs of an index and the purse of a server as they are now.

    What is not known of a run is left out, and so are runs that have not been read yet.

    Raises:
        OSError: The database of the runs or of the purse cannot be reached.
        ValueError: It is damaged; the same for `sqlite3.Error`.
    """
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Runs(index))
    if purse:
        account = purse.accounts()[0]
        for name, words, dollars in (
            ("budget", "Budget of the purse.", account.budget),
            ("spent", "Dollars that the runs of the purse have spent.", account.spent),
            ("left", "Dollars of the purse that no run has spent or reserved.", account.remaining),
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
            for kind in row["alerts"]:
                alert.add_metric([*labels, kind], 1)
            for column, family in by_column.items():
                if (value := row.get(column)) is not None:
                    family.add_metric(labels, value)
        unread = GaugeMetricFamily("costada_runs_unread", "Runs that have not been read yet.")
        unread.add_metric((), self.index.num_unread)
        yield from (dollars, state, alert, unread, *by_column.values())
