"""OpenTelemetry spans of a command, sent where the usual environment variables say."""

import os

from costada.cli.command_errors import say

ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
EXPORTER, OTLP = "OTEL_TRACES_EXPORTER", "otlp"
PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
PROTOCOL = "http/protobuf"
SERVICE, ATTRIBUTES = "OTEL_SERVICE_NAME", "OTEL_RESOURCE_ATTRIBUTES"


def send_spans() -> None:
    """Send the spans of this process by OTLP, if the environment names a collector.

    The variables are those of OpenTelemetry's specification; its SDK reads the others. Spans that
    wait are sent when the process ends. Where none can be sent, it says why.
    """
    endpoint = next((name for name in ENDPOINTS if os.environ.get(name)), "")
    exporters = os.environ.get(EXPORTER) or (OTLP if endpoint else "")
    if OTLP not in exporters.split(","):
        return
    protocol = next((name for name in PROTOCOLS if os.environ.get(name)), "")
    if protocol and os.environ[protocol] != PROTOCOL:
        say(f"{protocol}: got {os.environ[protocol]!r}, expected {PROTOCOL}; no spans are sent")
        return
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
        from opentelemetry.trace import set_tracer_provider
    except ImportError:
        needed = 'pip install "costada[telemetry]"'
        say(f"{endpoint or EXPORTER} is set, but no spans are sent: run `{needed}`")
        return
    is_named = SERVICE in os.environ or "service.name=" in os.environ.get(ATTRIBUTES, "")
    provider = TracerProvider(
        resource=Resource.create({} if is_named else {"service.name": "costada"})
    )
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    set_tracer_provider(provider)
