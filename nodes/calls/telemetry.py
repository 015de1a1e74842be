"""OpenTelemetry spans of nodes and model requests; needs the `telemetry` extra.

Imported only where the host has configured a tracer provider (`has_listener`). Spans carry names
and numbers of a run; prompts, programs and answers stay in its store. The spans of a run make up
one trace, also when it is resumed in another process: its state carries where the trace began, in
the W3C form. Model requests follow the GenAI semantic conventions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from langgraph.errors import GraphBubbleUp

from costada.models.errors import describe
from costada.nodes.context import RunContext
from costada.nodes.state import SearchState
from costada.store.call_log import CallKey
from costada.store.rows import CallRow
from costada.values.numbering import START, next_iteration

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Span

Facts = Mapping[str, str | bool | int | float]

PAUSES = (GraphBubbleUp, InterruptedError)
"""A node that stops for one of these is resumed later; that is not an error."""

PROVIDERS = {"azure": "azure.ai.openai"}
"""Where LangChain and the conventions have different names for a provider."""

NANOSECONDS = 1_000_000_000


def run_in_span(
    name: str, work: Callable[[], SearchState], state: SearchState, context: RunContext
) -> SearchState:
    """Execute a node within a span `costada.node <name>`.

    The first node that is traced of a run gets the span `costada.run` around it, the parent of the
    spans of all later nodes. It ends with that node, so that it is not lost when a process is.
    """
    from opentelemetry.trace import get_tracer
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    opens_run = name == "allocate_frontier" and ("run" not in state or state["stop_reason"])
    w3c = TraceContextTextMapPropagator()
    if not opens_run and (begun := state["observed"].trace):
        return _in_node_span(w3c.extract(begun), name, work, state, context)
    about: Facts = {
        "costada.problem": context.problem.name,
        "costada.method": context.settings.method,
    }
    with get_tracer("costada").start_as_current_span("costada.run", attributes=about) as span:
        update = _in_node_span(None, name, work, state, context)
        now: SearchState = {**state, **update}
        span.set_attribute("costada.run.id", now["run"].id)
        trace: dict[str, str] = {}
        w3c.inject(trace)
    return {**update, "observed": replace(now["observed"], trace=trace)}


def _in_node_span(
    parent: Context | None,
    name: str,
    work: Callable[[], SearchState],
    state: SearchState,
    context: RunContext,
) -> SearchState:
    from opentelemetry.trace import Status, StatusCode, get_tracer

    with get_tracer("costada").start_as_current_span(
        f"costada.node {name}", parent, record_exception=False, set_status_on_exception=False
    ) as span:
        try:
            update = work()
        except PAUSES:
            span.set_attribute("costada.is_paused", True)
            raise
        except BaseException as error:  # raised again: the span records whatever ends a node
            span.set_attribute("error.type", type(error).__qualname__)
            span.set_status(Status(StatusCode.ERROR, describe(error)))
            raise
        _describe_node(span, name, state, update)
    return update


def _describe_node(span: Span, name: str, before: SearchState, update: SearchState) -> None:
    """Record which step a node worked for, what it cost, and the run's account after it."""
    now: SearchState = {**before, **update}
    opens_run = "run" in update
    iteration = next_iteration(START if opens_run else before["controller"].iteration)
    facts: dict[str, str | bool | int | float] = {
        "costada.node": name,
        "costada.run.id": now["run"].id,
        "costada.iteration": iteration,
    }
    if (step := now["step"]).iteration == iteration:
        facts["costada.frontier"] = step.allocation.frontier + 1
        facts["costada.action"] = step.allocation.action.value
    if not opens_run:
        if "spent" in update and "step" in update:
            facts["costada.step.cost"] = update["step"].cost
            facts["costada.spent"] = update["spent"]
            facts["costada.remaining"] = update["remaining"]
        if "iterations" in update:
            facts["costada.best_score"] = now["best_score"]
        if update.get("stop_reason"):
            facts["costada.stop_reason"] = update["stop_reason"]
    span.set_attributes(facts)


def record_call(key: CallKey, row: CallRow) -> None:
    """Add the span of a request that has ended, under the span of its node."""
    from opentelemetry.trace import SpanKind, Status, StatusCode, get_tracer

    end = round(row.ended_at * NANOSECONDS)
    span = get_tracer("costada").start_span(
        f"chat {row.model}",
        kind=SpanKind.CLIENT,
        start_time=end - round(row.seconds * NANOSECONDS),
        attributes=_call_facts(key, row),
    )
    if row.finish_reason:
        span.set_attribute("gen_ai.response.finish_reasons", [row.finish_reason])
    if row.error is not None:
        kind = row.error.split(":")[0]
        span.set_attribute("error.type", kind if kind.isidentifier() else "_OTHER")
        span.set_status(Status(StatusCode.ERROR, row.error))
    span.end(end)  # at the time of the journal's row, as this may run later than the answer came


def _call_facts(key: CallKey, row: CallRow) -> Facts:
    """Attributes of a request; costs are dollars."""
    known: dict[str, str | bool | int | float | None] = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": PROVIDERS.get(row.provider or "", row.provider),
        "gen_ai.request.model": row.model,
        "gen_ai.response.id": row.provider_id,
        "gen_ai.usage.input_tokens": row.usage.input_tokens,
        "gen_ai.usage.output_tokens": row.usage.output_tokens,
        "gen_ai.usage.cache_read.input_tokens": row.usage.cached_tokens,
        "gen_ai.usage.reasoning.output_tokens": row.usage.reasoning_tokens,
        "costada.run.id": key.run_id,
        "costada.ticket": key.ticket,
        "costada.role": key.role,
        "costada.attempt": key.attempt,
        "costada.cost": float(row.cost),
        "costada.cost.in_doubt": float(row.bound),
        "costada.price_source": row.price_source,
        "costada.is_cache_hit": row.is_cache_hit,
        "costada.is_estimated": row.is_estimated,
    }
    return {name: value for name, value in known.items() if value is not None}
