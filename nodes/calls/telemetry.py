"""Whether OpenTelemetry listens, and what it hears: every node, and every model request.

Nothing here costs anything unless the host has configured a tracer provider. Spans carry names and
numbers of a run; prompts, programs and answers stay in its store.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from costada.nodes.context import RunContext
    from costada.nodes.state import SearchState
    from costada.store.call_log import CallKey
    from costada.store.rows import CallRow


def has_listener() -> bool:
    """Return whether a tracer provider is configured in this process."""
    if not _is_installed():
        return False
    from opentelemetry.trace import ProxyTracerProvider, get_tracer_provider

    return not isinstance(get_tracer_provider(), ProxyTracerProvider)


def traced(
    name: str, work: Callable[[], SearchState], state: SearchState, context: RunContext
) -> SearchState:
    """Return what a node returns; where somebody listens, it works within a span of its own."""
    if not has_listener():
        return work()
    from costada.nodes.calls.spans import in_node_span

    return in_node_span(name, work, state, context)


def record_call(key: CallKey, row: CallRow) -> None:
    """Tell of a request that has ended: model, tokens, seconds, dollars."""
    if has_listener():
        from costada.nodes.calls.spans import add_call_span

        add_call_span(key, row)


@cache
def _is_installed() -> bool:
    try:
        import opentelemetry.trace  # noqa: F401
    except ImportError:
        return False
    return True
