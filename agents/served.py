"""The graph that `langgraph dev` serves: `langgraph.json` names this factory."""

import asyncio
import os
from functools import cache
from threading import Lock

from costada.evaluators.registry import problem
from costada.graph.build import create_discovery_graph
from costada.graph.compiled import DiscoveryGraph
from costada.models.chat_models import chat_model
from costada.runs.plan import menu_models
from costada.store.run_store import RunStore

DEFAULTS = {
    "COSTADA_PROBLEM": "circle_packing",
    "COSTADA_MODEL": "offline",
    "COSTADA_MODELS": "",
    "COSTADA_BUDGET": "1.0",
    "COSTADA_STORE": "",
}
"""Values of missing environment variables; they need no key and no network."""

_lock = Lock()


async def discovery() -> DiscoveryGraph:
    """The graph to serve, the same for every run; raises `ValueError` as below.

    It is made in a thread: the server's event loop must not wait for files.
    """
    return await asyncio.to_thread(_shared_graph)


def graph_by_environment() -> DiscoveryGraph:
    """Create the graph that the environment describes.

    `COSTADA_PROBLEM` is a benchmark or a folder, `COSTADA_MODEL` a model id, `COSTADA_MODELS`, in
    its place, several as for `costada run --models`, `COSTADA_BUDGET` the dollars of one run and
    `COSTADA_STORE` the file for programs and calls; without one they are in memory, and no run
    survives the server.

    Raises:
        ValueError: A variable is wrong, both one and several models are given, or a model has no
            key or no price.
    """
    given = {name: os.environ.get(name, "").strip() or value for name, value in DEFAULTS.items()}
    dollars = given["COSTADA_BUDGET"]
    try:
        budget = float(dollars)
    except ValueError:
        raise ValueError(f"COSTADA_BUDGET: got {dollars!r}, expected dollars such as 1.0") from None
    menu, model = given["COSTADA_MODELS"], os.environ.get("COSTADA_MODEL", "").strip()
    if menu and model:
        raise ValueError(f"COSTADA_MODEL: got {model} with COSTADA_MODELS, expected one of them")
    return create_discovery_graph(
        problem(given["COSTADA_PROBLEM"]),
        menu_models(menu) if menu else chat_model(given["COSTADA_MODEL"]),
        budget=budget,
        store=RunStore(given["COSTADA_STORE"] or None),
    )


_cached_graph = cache(graph_by_environment)


def _shared_graph() -> DiscoveryGraph:
    with _lock:
        return _cached_graph()
