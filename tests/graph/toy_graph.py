"""Graphs over the toy problem and the scripted model."""

from decimal import Decimal

import pytest
from fakes import ScriptedModel, hashed_answer, toy_problem
from langgraph.errors import GraphDrained
from langgraph.runtime import RunControl

from costada.controller.constants import Constants
from costada.graph.build import create_discovery_graph
from costada.nodes.settings import Settings
from costada.values.prices import Price

PRICE = Price("1", "2")
CALL_COST = Decimal("0.002")
"""1,000 input tokens at 1 dollar and 500 output tokens at 2 dollars per million."""


def graph_of(answer=hashed_answer, *, problem=None, budget=0.06, constants=None, **options):
    model = ScriptedModel(answer=answer, prompts=[])
    settings = Settings(price=PRICE, constants=constants or Constants())
    return create_discovery_graph(
        problem or toy_problem(), model, budget=budget, settings=settings, **options
    ), model


def trace(graph, given=None, **options):
    return list(graph.stream({} if given is None else given, stream_mode="custom", **options))


def run_until(graph, config, iteration, given=None):
    """Drain a run as soon as an iteration is finished, as Ctrl-C does."""
    control = RunControl()
    rows = []

    def drain():
        start = {} if given is None else given
        for row in graph.stream(start, config, stream_mode="custom", control=control):
            rows.append(row)
            if row["iteration"] == iteration:
                control.request_drain()

    with pytest.raises(GraphDrained):
        drain()
    return rows
