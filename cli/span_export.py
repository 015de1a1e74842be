"""OpenTelemetry spans of a command, sent where the usual environment variables say."""

import os

from costada.cli.command_errors import say

ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
EXPORTER, OTLP = "OTEL_TRACES_EXPORTER", "otlp"
SERVICE = "OTEL_SERVICE_NAME"


def send_spans() -> None:
    """Send the spans of this process by OTLP, if the environment names a collector.

    The variables are those of OpenTelemetry's specification; its SDK reads the others. Spans that
    wait are sent when the process ends. Without the packages it says so, and nothing is sent.
    """
    endpoint = next((name for name in ENDPOINTS if os.environ.get(name)), "")
    exporters = os.environ.get(EXPORTER, OTLP if endpoint else "")
    if OTLP not in exporters.split(","):
        return
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
        from opentelemetry.trace import set_tracer_provider
    except ImportError:
        needed = 'pip install "costada[telemetry]"'
        say(f"{endpoint or EXPORTER} is set, but no spans are sent: run `{needed}`")
        return
    os.environ.setdefault(SERVICE, "costada")
    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    set_tracer_provider(provider)
