"""Spans of a command reach a collector that the usual environment variables name."""

import os
import subprocess
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

pytestmark = pytest.mark.process

RUN = ("run", "circle_packing", "--model=offline", "--budget=0.01", "--quiet")


@pytest.fixture
def collector():
    """A server that keeps what it is sent, with its address."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            assert self.path == "/v1/traces"
            body = self.rfile.read(int(self.headers["Content-Length"]))
            received.append(ExportTraceServiceRequest.FromString(body))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *given):
            pass

    received = []
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", received
        server.shutdown()


def run(tmp_path, out="run", **variables):
    """What the command says on standard error."""
    command = [sys.executable, "-m", "costada", *RUN, "--out", out]
    environment = {**os.environ, "OTEL_EXPORTER_OTLP_COMPRESSION": "none", **variables}
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )
    return done.stderr


def test_a_run_sends_the_spans_of_its_nodes_and_requests(collector, tmp_path):
    address, received = collector
    assert run(tmp_path, OTEL_EXPORTER_OTLP_ENDPOINT=address) == ""
    resources = [each for request in received for each in request.resource_spans]
    names = [span.name for each in resources for of in each.scope_spans for span in of.spans]
    assert {"costada.node generate", "costada.node evaluate", "chat offline"} <= set(names)
    facts = {each.key: each.value.string_value for each in resources[0].resource.attributes}
    assert facts["service.name"] == "costada"


def test_the_service_may_have_another_name_and_grpc_is_not_offered(collector, tmp_path):
    address, received = collector
    names = {"OTEL_RESOURCE_ATTRIBUTES": "team=a,service.name=mine"}
    run(tmp_path, OTEL_EXPORTER_OTLP_ENDPOINT=address, **names)
    (first, *_) = received[0].resource_spans
    facts = {each.key: each.value.string_value for each in first.resource.attributes}
    assert facts["service.name"] == "mine"
    received.clear()
    said = run(
        tmp_path, OTEL_EXPORTER_OTLP_ENDPOINT=address, OTEL_EXPORTER_OTLP_PROTOCOL="grpc", out="b"
    )
    assert "OTEL_EXPORTER_OTLP_PROTOCOL: got 'grpc', expected http/protobuf" in said
    assert received == []


def test_nothing_is_sent_where_the_exporter_is_none(collector, tmp_path):
    address, received = collector
    run(tmp_path, OTEL_EXPORTER_OTLP_ENDPOINT=address, OTEL_TRACES_EXPORTER="none")
    assert received == []


def test_a_missing_package_is_named_and_the_run_goes_on(tmp_path):
    hidden = tmp_path / "opentelemetry"
    hidden.mkdir()
    (hidden / "__init__.py").write_text("")
    words = "OTEL_EXPORTER_OTLP_ENDPOINT is set, but no spans are sent"
    said = run(tmp_path, OTEL_EXPORTER_OTLP_ENDPOINT="http://x", PYTHONPATH=str(tmp_path))
    assert words in said
