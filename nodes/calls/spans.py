"""OpenTelemetry spans of a run; needs the `telemetry` extra, see `telemetry.py`.

The spans of a run make up one trace, also when it goes on in another process: its state carries
where the trace began, in the W3C form. Model requests follow the GenAI semantic conventions.
"""

from collections.abc import Callable, Mapping

from langgraph.errors import GraphBubbleUp
from opentelemetry.context import Context
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, Tracer, get_tracer
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from costada.models.errors import describe
from costada.nodes.context import RunContext
from costada.nodes.state import SearchState
from costada.store.call_log import CallKey
from costada.store.rows import CallRow

Facts = Mapping[str, str | bool | int | float]

PAUSES = (GraphBubbleUp, InterruptedError)
"""A node that stops for one of these goes on later; that is no error."""

PROVIDERS = {"azure": "azure.ai.openai"}
"""Where LangChain and the conventions have different names for a provider."""

NANOSECONDS = 1_000_000_000

_W3C = TraceContextTextMapPropagator()


def in_node_span(
    name: str, work: Callable[[], SearchState], state: SearchState, context: RunContext
) -> SearchState:
    """Return what a node returns, executed within a span `costada.node <name>`.

    The first node that is heard of a run gets the span `costada.run` around it, under which all
    later nodes stand. It ends with that node, so that it is not lost when a process is.
    """
    tracer = get_tracer("costada")
    if state.get("trace") and not _opens_run(name, state):
        return _within(tracer, _W3C.extract(state["trace"]), name, work, state, context)
    about: Facts = {
        "costada.problem": context.problem.name,
        "costada.method": context.settings.method,
    }
    with tracer.start_as_current_span("costada.run", attributes=about) as span:
        update = _within(tracer, None, name, work, state, context)
        span.set_attribute("costada.run.id", update.get("run_id", state.get("run_id", "")))
        trace: dict[str, str] = {}
        _W3C.inject(trace)
    return SearchState(**{**update, "trace": trace})


def add_call_span(key: CallKey, row: CallRow) -> None:
    """Add the span of a request that has ended, under the span of its node."""
    end = round(row.ended_at * NANOSECONDS)
    span = get_tracer("costada").start_span(
        f"chat {row.model}",
        kind=SpanKind.CLIENT,
        start_time=end - round(row.seconds * NANOSECONDS),
        attributes={**_genai_facts(row), **_costada_facts(key, row)},
    )
    if row.finish_reason:
        span.set_attribute("gen_ai.response.finish_reasons", [row.finish_reason])
    if row.error is not None:
        kind = row.error.split(":")[0]
        span.set_attribute("error.type", kind if kind.isidentifier() else "_OTHER")
        span.set_status(Status(StatusCode.ERROR, row.error))
    span.end(end)


def _opens_run(name: str, state: SearchState) -> bool:
    return name == "allocate_frontier" and bool("run_id" not in state or state["stop_reason"])


def _within(
    tracer: Tracer,
    parent: Context | None,
    name: str,
    work: Callable[[], SearchState],
    state: SearchState,
    context: RunContext,
) -> SearchState:
    with tracer.start_as_current_span(
        f"costada.node {name}", parent, record_exception=False, set_status_on_exception=False
    ) as span:
        try:
            update = work()
        except PAUSES:
            span.set_attribute("costada.is_paused", True)
            raise
        except BaseException as error:  # raised again: the span tells whatever ends a node
            span.set_attribute("error.type", type(error).__qualname__)
            span.set_status(Status(StatusCode.ERROR, describe(error)))
            raise
        _describe_node(span, name, state, update, context)
    return update


def _describe_node(
    span: Span, name: str, before: SearchState, update: SearchState, context: RunContext
) -> None:
    """Say which step a node worked for, and what the run's account was after it."""
    now = SearchState(**{**before, **update})
    opens_run = "run_id" in update
    iteration = 1 if opens_run else before["controller"].iteration + 1
    span.set_attributes(
        {
            "costada.node": name,
            "costada.run.id": now.get("run_id", ""),
            "costada.iteration": iteration,
        }
    )
    if now.get("iteration") == iteration:
        step = now["step"]
        span.set_attributes(
            {"costada.frontier": step["frontier"] + 1, "costada.action": step["action"]}
        )
    span.set_attributes({} if opens_run else _results(update))


def _results(update: SearchState) -> Facts:
    """Return what a node brought to light: dollars, the score, the best score, why a run stops."""
    found: dict[str, str | bool | int | float] = {}
    if "spent" in update and "step" in update:
        found["costada.step.cost"] = update["step"]["cost"]
        found["costada.spent"], found["costada.remaining"] = update["spent"], update["remaining"]
    if "iterations" in update:
        found["costada.best_score"] = update["best_score"]
    if update.get("stop_reason"):
        found["costada.stop_reason"] = update["stop_reason"]
    return found


def _genai_facts(row: CallRow) -> Facts:
    known: dict[str, str | int | None] = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": PROVIDERS.get(row.provider or "", row.provider),
        "gen_ai.request.model": row.model,
        "gen_ai.response.id": row.provider_id,
        "gen_ai.usage.input_tokens": row.input_tokens,
        "gen_ai.usage.output_tokens": row.output_tokens,
        "gen_ai.usage.cache_read.input_tokens": row.cached_tokens,
        "gen_ai.usage.reasoning.output_tokens": row.reasoning_tokens,
    }
    return {name: value for name, value in known.items() if value is not None}


def _costada_facts(key: CallKey, row: CallRow) -> Facts:
    """Return what only the ledger knows; costs are dollars."""
    return {
        "costada.run.id": key.run_id,
        "costada.iteration": key.iteration,
        "costada.role": key.role,
        "costada.attempt": key.attempt,
        "costada.cost": float(row.cost),
        "costada.cost.in_doubt": float(row.bound),
        "costada.price_source": row.price_source,
        "costada.is_cache_hit": row.is_cache_hit,
        "costada.is_estimated": row.is_estimated,
    }
