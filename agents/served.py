"""The graph that `langgraph dev` serves: `langgraph.json` names this factory."""

import asyncio
import os
from functools import cache
from threading import Lock

from costada.evaluators.registry import problem
from costada.graph.build import create_discovery_graph
from costada.graph.compiled import DiscoveryGraph
from costada.models.chat_models import chat_model
from costada.store.run_store import RunStore

DEFAULTS = {
    "COSTADA_PROBLEM": "circle_packing",
    "COSTADA_MODEL": "offline",
    "COSTADA_BUDGET": "1.0",
    "COSTADA_STORE": "",
}
"""What is served where the environment says nothing; it needs no key and no network."""


_ONE_AT_A_TIME = Lock()


async def discovery() -> DiscoveryGraph:
    """Return the graph to be served, the same one for every run; raises `ValueError` as below."""
    return await asyncio.to_thread(_the_graph)


def graph_by_environment() -> DiscoveryGraph:
    """Return the graph that the environment asks for.

    `COSTADA_PROBLEM` is a benchmark or a folder, `COSTADA_MODEL` a model id, `COSTADA_BUDGET` the
    dollars of one run and `COSTADA_STORE` the file for programs and calls; without one they are in
    memory, and no run survives the server.

    Raises:
        ValueError: One of them is wrong, or the model has no key or no price.
    """
    given = {name: os.environ.get(name, "").strip() or said for name, said in DEFAULTS.items()}
    return create_discovery_graph(
        problem(given["COSTADA_PROBLEM"]),
        chat_model(given["COSTADA_MODEL"]),
        budget=_dollars(given["COSTADA_BUDGET"]),
        store=RunStore(given["COSTADA_STORE"] or None),
    )


def _the_graph() -> DiscoveryGraph:
    """Return the graph, made in a thread: the server's event loop may not wait for files."""
    with _ONE_AT_A_TIME:
        return _made()


_made = cache(graph_by_environment)


def _dollars(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"COSTADA_BUDGET: got {text!r}, expected dollars such as 1.0") from None
