"""What OpenTelemetry hears of a run, and what a run costs when nobody listens."""

import asyncio
import subprocess
import sys
from decimal import Decimal
from itertools import count

import pytest
from call_rows import call_row
from fakes import IDEAS, hashed_answer, is_guide_prompt, rewrite
from langgraph.checkpoint.memory import InMemorySaver
from opentelemetry import trace as otel
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes
from opentelemetry.semconv.attributes import error_attributes
from opentelemetry.trace import SpanKind, StatusCode
from spans_heard import named, parents, spans_of
from toy_graph import graph_of, run_until

from costada.controller.constants import Constants
from costada.graph.build import NODES
from costada.nodes.calls.telemetry import record_call
from costada.store.call_log import CallKey
from costada.store.run_store import RunStore

SHORT = Constants(max_iterations=3)
ALWAYS_RUN = [name for name in NODES if name not in ("guide", "ask_for_budget", "approve_guide")]


def call_span(**changes):
    row = call_row(iteration=4, role="retry", attempt=2, **changes)
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
    rows = store.steps(store.run_ids()[0])
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


def test_a_stopped_run_goes_on_in_its_trace_and_the_next_one_gets_its_own():
    graph, _ = graph_of(constants=SHORT, checkpointer=InMemorySaver())
    thread = {"configurable": {"thread_id": "1"}}
    began = spans_of(lambda: run_until(graph, thread, 1))
    went_on = spans_of(lambda: graph.invoke(None, thread))
    another = spans_of(lambda: graph.invoke({}, thread))
    (trace_id,) = {span.context.trace_id for span in began}
    assert {span.context.trace_id for span in went_on} == {trace_id}
    assert named(went_on, "costada.run") == []
    assert trace_id not in {span.context.trace_id for span in another}
    assert len(named(another, "costada.run")) == 1


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
        "costada.iteration": 4,
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


def test_steps_are_the_same_whether_somebody_listens_or_not():
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
from costada.nodes.calls.telemetry import has_listener
from fakes import hashed_answer
assert not has_listener()
graph, _ = graph_of(hashed_answer, constants=Constants(max_iterations=3))
print([(row["score"], row["spent"]) for row in trace(graph, {{"seed": 5}})])
assert not any(name.startswith("costada.nodes.calls.spans") for name in sys.modules)
"""
"""A process without the extra."""
