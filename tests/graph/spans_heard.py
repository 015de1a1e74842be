"""What OpenTelemetry hears in this test process, which can have one provider only."""

from functools import cache
from typing import Any

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter


@cache
def exporter() -> InMemorySpanExporter:
    """Configure the process as a host does, and return where its spans end up."""
    kept = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(kept))
    trace.set_tracer_provider(provider)
    return kept


def spans_of(act: Any) -> list[Any]:
    """Return the finished spans of what `act` does, in the order in which they began."""
    exporter().clear()
    act()
    return sorted(exporter().get_finished_spans(), key=lambda span: span.start_time)


def named(spans: list[Any], name: str) -> list[Any]:
    return [span for span in spans if span.name == name]


def parents(spans: list[Any]) -> dict[str, set[str]]:
    """Return the names of the spans above those of each name; empty for none."""
    by_id = {span.context.span_id: span.name for span in spans}
    found: dict[str, set[str]] = {}
    for span in spans:
        above = by_id.get(span.parent.span_id, "elsewhere") if span.parent else ""
        found.setdefault(span.name, set()).add(above)
    return found
