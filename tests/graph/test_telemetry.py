"""What OpenTelemetry and LangSmith record of a run, and how long its nodes took."""

import asyncio
import json
import subprocess
import sys
from decimal import Decimal
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from threading import Thread
from time import perf_counter, sleep
from typing import Any

import pytest
from fakes import IDEAS, evaluate_value, hashed_answer, is_guide_prompt, rewrite, toy_problem
from langchain_core.tracers import LangChainTracer
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command
from langsmith import Client
from opentelemetry import trace as otel
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes
from opentelemetry.semconv.attributes import error_attributes
from opentelemetry.trace import SpanKind, StatusCode
from rows import call_row
from toy_graph import THREAD, discovery, graph_of, rows_of, run_until, trace

from costada.controller.constants import Constants
from costada.graph.build import NODES
from costada.nodes.calls.telemetry import record_call
from costada.store.call_log import CallKey
from costada.store.run_store import RunStore


@cache
def exporter() -> InMemorySpanExporter:
    """Configure the process as a host does, and return where its spans end up."""
    kept = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(kept))
    otel.set_tracer_provider(provider)
    return kept


def spans_of(act: Any) -> list[Any]:
    exporter().clear()
    act()
    return sorted(exporter().get_finished_spans(), key=lambda span: span.start_time)


def named(spans: list[Any], name: str) -> list[Any]:
    return [span for span in spans if span.name == name]


def parents(spans: list[Any]) -> dict[str, set[str]]:
    by_id = {span.context.span_id: span.name for span in spans}
    found: dict[str, set[str]] = {}
    for span in spans:
        above = by_id.get(span.parent.span_id, "elsewhere") if span.parent else ""
        found.setdefault(span.name, set()).add(above)
    return found


SHORT = Constants(max_iterations=3)
SKIPPED = ("choose_model", "guide", "ask_for_budget", "approve_guide")
"""Nodes that routes skip in a run with one model, which buys no guide and asks nothing."""

ALWAYS_RUN = [name for name in NODES if name not in SKIPPED]


def call_span(**changes):
    row = call_row(ticket=4, role="retry", attempt=2, **changes)
    (span,) = spans_of(lambda: record_call(CallKey("run", 4, "retry", 2), row))
    return span


def test_a_run_is_one_trace_of_nodes_and_the_calls_they_make():
    graph, _ = graph_of(constants=SHORT)
    spans = spans_of(lambda: graph.invoke({}))
    assert len({span.context.trace_id for span in spans}) == 1
    assert parents(spans) == {
        "costada.run": {""},
        **{f"costada.node {name}": {"costada.run"} for name in ALWAYS_RUN},
        "chat scripted": {"costada.node generate"},
    }


def test_nodes_say_which_step_they_worked_for_and_what_it_cost():
    store, values = RunStore(), iter([0.3, 0.5, 0.4])
    graph, _ = graph_of(lambda prompt: rewrite(next(values)), constants=SHORT, store=store)
    spans = spans_of(lambda: graph.invoke({}))
    rows = rows_of(store)
    for name in ALWAYS_RUN:
        facts = [span.attributes for span in named(spans, f"costada.node {name}")]
        assert [each["costada.iteration"] for each in facts] == [1, 2, 3]
        assert [each["costada.frontier"] for each in facts] == [row["frontier"] for row in rows]
        assert {each["costada.run.id"] for each in facts} == set(store.run_ids())
    charged = [span.attributes for span in named(spans, "costada.node charge_ledger")]
    assert [each["costada.step.cost"] for each in charged] == [pytest.approx(0.002)] * 3
    assert charged[-1]["costada.spent"] == pytest.approx(0.006)
    calls = [span.attributes for span in named(spans, "chat scripted")]
    assert sum(call["costada.cost"] for call in calls) == pytest.approx(0.006)
    ended = [span.attributes for span in named(spans, "costada.node gate_intervention")]
    assert [each.get("costada.stop_reason") for each in ended] == [None, None, "iterations"]
    assert ended[-1]["costada.best_score"] == 0.5
    (run,) = named(spans, "costada.run")
    assert run.attributes == {
        "costada.problem": "toy",
        "costada.method": "costada",
        "costada.run.id": store.run_ids()[0],
    }


def test_a_guide_stands_in_the_step_that_pays_for_it():
    values = count(1)
    graph, _ = graph_of(
        lambda prompt: IDEAS if is_guide_prompt(prompt) else rewrite(0.05 / next(values)),
        constants=Constants(max_iterations=5),
        budget=1.0,
    )
    spans = spans_of(lambda: graph.invoke({}))
    (guide,) = named(spans, "costada.node guide")
    assert guide.attributes["costada.iteration"] == 5
    assert "costada.frontier" not in guide.attributes
    calls = [span for span in named(spans, "chat scripted") if span.parent == guide.context]
    assert [span.attributes["costada.role"] for span in calls] == ["guide"]


def test_an_async_run_has_the_same_spans():
    graph, _ = graph_of(constants=SHORT)
    spans = spans_of(lambda: graph.invoke({}))
    waited = spans_of(lambda: asyncio.run(graph.ainvoke({})))
    assert [span.name for span in waited] == [span.name for span in spans]
    assert parents(waited) == parents(spans)


def test_a_run_stands_under_the_span_that_its_host_has_open():
    graph, _ = graph_of(constants=SHORT)

    def pipeline():
        with otel.get_tracer("host").start_as_current_span("pipeline"):
            graph.invoke({})

    spans = spans_of(pipeline)
    assert parents(spans)["costada.run"] == {"pipeline"}
    assert len({span.context.trace_id for span in spans}) == 1


def test_a_stopped_run_continues_in_its_trace_and_the_next_one_gets_its_own():
    graph, _ = graph_of(constants=SHORT, checkpointer=InMemorySaver())
    began = spans_of(lambda: run_until(graph, THREAD, 1))
    resumed = spans_of(lambda: graph.invoke(None, THREAD))
    another = spans_of(lambda: graph.invoke({}, THREAD))
    (trace_id,) = {span.context.trace_id for span in began}
    assert {span.context.trace_id for span in resumed} == {trace_id}
    assert named(resumed, "costada.run") == []
    assert trace_id not in {span.context.trace_id for span in another}
    assert len(named(another, "costada.run")) == 1


def test_a_resumed_run_that_ends_at_its_target_is_traced_to_its_end():
    """No step lands there, so nothing of a best program is new."""
    options = {"store": RunStore(), "saver": InMemorySaver()}
    run_until(discovery(**options), THREAD, 1)
    spans = spans_of(lambda: discovery(**options, target=0.01).invoke(None, THREAD))
    facts = [span.attributes for span in spans]
    (end,) = [each for each in facts if "costada.stop_reason" in each]
    assert end["costada.stop_reason"] == "target"


def test_a_call_has_the_attributes_of_the_genai_conventions_and_its_dollars():
    span = call_span()
    assert (span.name, span.kind) == ("chat stand-in", SpanKind.CLIENT)
    assert (span.start_time, span.end_time) == (998_250_000_000, 1_000_500_000_000)
    assert dict(span.attributes) == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "stand-in",
        "gen_ai.response.id": "answer-1",
        "gen_ai.response.finish_reasons": ("stop",),
        "gen_ai.usage.input_tokens": 1000,
        "gen_ai.usage.output_tokens": 500,
        "gen_ai.usage.cache_read.input_tokens": 300,
        "gen_ai.usage.reasoning.output_tokens": 200,
        "costada.run.id": "run",
        "costada.ticket": 4,
        "costada.role": "retry",
        "costada.attempt": 2,
        "costada.cost": 0.002,
        "costada.cost.in_doubt": 0.0,
        "costada.price_source": "given",
        "costada.is_cache_hit": False,
        "costada.is_estimated": False,
    }


def test_every_name_that_looks_like_a_convention_is_one():
    known = {value for name, value in vars(gen_ai_attributes).items() if name.isupper()}
    span = call_span(error="TimeoutError: too slow")
    ours = {name for name in span.attributes if not name.startswith("costada.")}
    assert ours <= {*known, error_attributes.ERROR_TYPE}


@pytest.mark.parametrize(
    ("error", "kind"),
    [("TimeoutError: too slow", "TimeoutError"), ("no answer arrived: abandoned", "_OTHER")],
)
def test_a_failed_call_is_an_error_with_its_class_and_the_dollars_in_doubt(error, kind):
    span = call_span(error=error, provider_id=None, provider=None, bound=Decimal("0.01"))
    assert span.status.status_code is StatusCode.ERROR
    assert span.status.description == error
    assert span.attributes["error.type"] == kind
    assert span.attributes["costada.cost.in_doubt"] == 0.01
    assert "gen_ai.provider.name" not in span.attributes


def test_azure_is_named_as_the_conventions_name_it():
    assert call_span(provider="azure").attributes["gen_ai.provider.name"] == "azure.ai.openai"


def test_no_span_holds_a_prompt_a_program_or_an_answer():
    graph, model = graph_of(constants=SHORT)
    spans = spans_of(lambda: graph.invoke({}))
    said = " ".join(str(span.to_json()) for span in spans)
    assert model.prompts
    assert "EVOLVE-BLOCK" not in said
    assert "return 0." not in said


def test_a_node_that_fails_is_an_error_and_a_paused_one_is_not():
    def failing(prompt):
        raise RuntimeError("the model is out of order")

    def interrupted(prompt):
        raise InterruptedError("Ctrl-C")

    for answer, is_error in ((failing, True), (interrupted, False)):
        graph, _ = graph_of(answer, constants=SHORT)
        spans = spans_of(lambda graph=graph: _raised(graph))
        (node,) = named(spans, "costada.node generate")
        assert (node.status.status_code is StatusCode.ERROR) == is_error
        assert bool(node.attributes.get("costada.is_paused")) != is_error


def _raised(graph):
    with pytest.raises((RuntimeError, InterruptedError)):
        graph.invoke({})


@pytest.mark.process
def test_steps_are_the_same_with_and_without_a_tracer():
    given = {"seed": 5}
    graph, _ = graph_of(hashed_answer, constants=SHORT)
    heard = []
    spans_of(lambda: heard.extend(graph.stream(given, stream_mode="custom")))
    unheard = subprocess.run(
        [sys.executable, "-c", UNHEARD], capture_output=True, text=True, check=False
    )
    assert unheard.returncode == 0, unheard.stderr
    assert unheard.stdout.strip() == repr([(row["score"], row["spent"]) for row in heard])


UNHEARD = f"""
import sys
sys.path[:0] = {sys.path!r}
for name in ("opentelemetry", "opentelemetry.trace"):
    sys.modules[name] = None
from toy_graph import graph_of, trace
from costada.controller.constants import Constants
from costada.nodes.context import has_listener
from fakes import hashed_answer
assert not has_listener()
graph, _ = graph_of(hashed_answer, constants=Constants(max_iterations=3))
print([(row["score"], row["spent"]) for row in trace(graph, {{"seed": 5}})])
assert "costada.nodes.calls.telemetry" not in sys.modules
"""
"""A process without the extra."""


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


@pytest.mark.process
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


EVERY_STEP = set(ALWAYS_RUN)


def seconds_of(store):
    return store.timing.steps(store.run_ids()[-1])


def slow_evaluation(code):
    sleep(0.02)
    return evaluate_value(code)


def test_every_step_keeps_the_seconds_of_each_node_it_passed():
    store = RunStore()
    graph, _ = graph_of(
        constants=Constants(max_iterations=4),
        store=store,
        problem=toy_problem(evaluate=slow_evaluation),
    )
    began = perf_counter()
    rows = trace(graph)
    took = perf_counter() - began
    kept = seconds_of(store)
    assert [iteration for iteration, _ in kept] == [row["iteration"] for row in rows]
    assert all(set(seconds) == EVERY_STEP for _, seconds in kept)
    judged = [seconds["evaluate"] for _, seconds in kept]
    assert sum(judged) >= 0.02 * sum(not row["is_cached"] for row in rows)
    assert sum(store.timing.by_node(store.run_ids()[0]).values()) < took


def test_the_attempts_of_a_step_add_up():
    store, replies = RunStore(), iter([rewrite(1.5), rewrite(1.6), rewrite(0.5)])
    graph, _ = graph_of(
        lambda prompt: next(replies),
        constants=Constants(max_iterations=1),
        store=store,
        problem=toy_problem(evaluate=slow_evaluation),
    )
    graph.invoke({})
    ((_, seconds),) = seconds_of(store)
    assert seconds["evaluate"] >= 3 * 0.02


def test_a_guide_is_timed_with_the_step_that_pays_for_it():
    values, store = count(1), RunStore()
    graph, _ = graph_of(
        lambda prompt: IDEAS if is_guide_prompt(prompt) else rewrite(0.05 / next(values)),
        constants=Constants(max_iterations=6),
        budget=1.0,
        store=store,
    )
    rows = trace(graph)
    charged = [row["iteration"] for row in rows if "guide_charged" in row["events"]]
    assert charged
    assert [number for number, seconds in seconds_of(store) if "guide" in seconds] == charged


def test_a_stopped_run_continues_with_the_seconds_it_had():
    store = RunStore()
    graph, _ = graph_of(
        constants=Constants(max_iterations=4), store=store, checkpointer=InMemorySaver()
    )
    run_until(graph, THREAD, 2)
    before = seconds_of(store)
    graph.invoke(None, THREAD)
    assert seconds_of(store)[:2] == before
    assert [iteration for iteration, _ in seconds_of(store)] == [1, 2, 3, 4]


def test_a_step_that_is_broken_off_keeps_the_seconds_of_the_nodes_it_has_passed():
    store, is_stopping = RunStore(), iter([True])

    def evaluate(code):
        if next(is_stopping, False):
            raise InterruptedError("Ctrl-C")
        return evaluate_value(code)

    def answer(prompt):
        sleep(0.02)
        return rewrite(0.5)

    graph, _ = graph_of(
        answer,
        constants=Constants(max_iterations=1),
        store=store,
        checkpointer=InMemorySaver(),
        problem=toy_problem(evaluate=evaluate, seed_evaluation=evaluate_value("return 0.1")),
    )
    with pytest.raises(InterruptedError):
        graph.invoke({}, THREAD)
    graph.invoke(None, THREAD)
    ((_, seconds),) = seconds_of(store)
    assert set(seconds) == EVERY_STEP
    assert seconds["generate"] >= 0.02


def test_the_next_run_of_a_thread_begins_to_count_from_zero():
    store = RunStore()
    graph, _ = graph_of(
        constants=Constants(max_iterations=1), store=store, checkpointer=InMemorySaver()
    )
    graph.invoke({}, THREAD)
    graph.invoke({}, THREAD)
    first, second = store.run_ids()
    assert [set(seconds) for _, seconds in store.timing.steps(first)] == [EVERY_STEP]
    assert [set(seconds) for _, seconds in store.timing.steps(second)] == [EVERY_STEP]


def test_the_wait_for_an_answer_is_not_counted():
    store = RunStore()
    options = {"on_exhausted": "interrupt", "saver": InMemorySaver()}
    graph = discovery(budget=0.006, store=store, **options)
    took = 0.0
    for given in ({}, Command(resume={"budget": 0.012}), Command(resume="stop")):
        sleep(1)
        began = perf_counter()
        graph.invoke(given, THREAD)
        took += perf_counter() - began
    totals = store.timing.by_node(store.run_ids()[0])
    assert 0 < totals["ask_for_budget"] <= took


def test_a_trace_row_holds_no_seconds():
    graph, _ = graph_of(constants=Constants(max_iterations=1))
    (row,) = trace(graph)
    assert not any("second" in key for key in row)
