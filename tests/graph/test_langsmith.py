"""LangSmith follows a run as it follows any graph: its own client, against a loopback server."""

import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest
from langchain_core.tracers import LangChainTracer
from langsmith import Client
from toy_graph import graph_of

from costada.controller.constants import Constants


class Collector(BaseHTTPRequestHandler):
    """Takes in what the client posts about runs: what began, and what ended."""

    def do_POST(self):
        self._take_in()

    def do_PATCH(self):
        self._take_in()

    def _take_in(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        run = json.loads(body)
        self.server.runs.setdefault(run.get("id") or self.path.rsplit("/", 1)[1], {}).update(run)
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, format, *args):
        pass


@pytest.fixture
def langsmith():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Collector)
    server.runs = {}
    thread = Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def test_langsmith_sees_the_graph_its_nodes_and_the_calls_with_their_tokens(langsmith):
    client = Client(
        api_url=f"http://127.0.0.1:{langsmith.server_port}",
        api_key="none",
        auto_batch_tracing=False,
        info={},
    )
    graph, model = graph_of(constants=Constants(max_iterations=2))
    graph.invoke({}, {"callbacks": [LangChainTracer(client=client)]})
    runs = langsmith.runs.values()
    names = {run["id"]: run["name"] for run in runs if "name" in run}
    above = {run["name"]: names.get(run.get("parent_run_id")) for run in runs if "name" in run}
    assert above["costada"] is None
    assert above["allocate_frontier"] == above["gate_intervention"] == "costada"
    calls = [run for run in runs if run.get("run_type") == "llm"]
    assert len(calls) == len(model.prompts)
    for call in calls:
        assert names[call["parent_run_id"]] == "generate"
        assert call["extra"]["metadata"]["costada_role"] in ("generation", "retry")
        (generation,) = call["outputs"]["generations"][0]
        assert generation["message"]["kwargs"]["usage_metadata"]["total_tokens"] == 1500
    assert all(run.get("error") is None for run in runs)
