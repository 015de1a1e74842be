"""The graph that `langgraph dev` serves: `langgraph.json` names this factory."""

import asyncio
import os
from functools import cache
from threading import Lock
from typing import Any, cast

from costada.graph.compiled import DiscoveryGraph
from costada.runs.choices import Choices
from costada.runs.search_graph import create_discovery_graph
from costada.store.address import check_database, is_database
from costada.store.purse import Policy, Purse
from costada.store.run_store import RunStore

DEFAULTS = {
    "COSTADA_PROBLEM": "circle_packing",
    "COSTADA_MODEL": "offline",
    "COSTADA_MODELS": "",
    "COSTADA_BUDGET": "1.0",
    "COSTADA_STORE": "",
    "COSTADA_PURSE": "",
    "COSTADA_PURSE_BUDGET": "",
    "COSTADA_BUDGET_POLICY": "crossing",
    "COSTADA_ON_EXHAUSTED": "stop",
    "COSTADA_MAX_PARALLEL": "1",
    "COSTADA_CHOOSE_PROBLEMS": "",
    "COSTADA_CHOOSE_MODELS": "",
    "COSTADA_CHOOSE_SETTINGS": "",
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
    its place, several as for `costada run --models`, `COSTADA_BUDGET` the most dollars of one run
    and `COSTADA_STORE` the file for programs and calls, or the address of a Postgres database;
    without one they are in memory, and no run survives the server. The checkpoints are the
    server's; where it loses them, the next input on a thread continues its run from that store.

    All runs together share `COSTADA_PURSE_BUDGET` dollars, where it is given, of a purse in the
    file or the Postgres database `COSTADA_PURSE`, or in memory. `COSTADA_BUDGET_POLICY` says
    whether the step that crosses a budget completes, and `COSTADA_ON_EXHAUSTED` whether a run at
    its budget stops or asks its client for more, by an interrupt.

    An assistant, or a run, has to choose a budget up to `COSTADA_BUDGET`. It may choose `parallel`
    up to `COSTADA_MAX_PARALLEL`, and a problem, models and settings of the lists in
    `COSTADA_CHOOSE_PROBLEMS`, `COSTADA_CHOOSE_MODELS` and `COSTADA_CHOOSE_SETTINGS`.

    Raises:
        ValueError: A variable is wrong, both one and several models are given, or a model has no
            key or no price.
    """
    given = {name: os.environ.get(name, "").strip() or value for name, value in DEFAULTS.items()}
    budget = _dollars("COSTADA_BUDGET", given)
    steps, menu = given["COSTADA_MAX_PARALLEL"], given["COSTADA_MODELS"]
    if not steps.isdecimal():
        raise ValueError(f"COSTADA_MAX_PARALLEL: got {steps!r}, expected an integer such as 8")
    if menu and (model := os.environ.get("COSTADA_MODEL", "").strip()):
        raise ValueError(f"COSTADA_MODEL: got {model} with COSTADA_MODELS, expected one of them")
    choices = Choices(
        max_budget=budget,
        requires_budget=True,
        max_parallel=int(steps),
        problems=_names("COSTADA_CHOOSE_PROBLEMS", given),
        models=_names("COSTADA_CHOOSE_MODELS", given),
        settings=_names("COSTADA_CHOOSE_SETTINGS", given),
    )
    policies: dict[str, Any] = {
        "budget_policy": given["COSTADA_BUDGET_POLICY"],
        "on_exhausted": given["COSTADA_ON_EXHAUSTED"],
    }
    return create_discovery_graph(
        given["COSTADA_PROBLEM"],
        None if menu else given["COSTADA_MODEL"],
        models=menu,
        budget=budget,
        store=_store(given["COSTADA_STORE"]),
        purse=_purse(given),
        choices=choices,
        # The server puts its own saver in place of it.
        checkpointer=True,
        **policies,
    )


def _store(place: str) -> RunStore:
    if not is_database(place):
        return RunStore(place or None)
    check_database(place)
    return RunStore.postgres(place)


def _purse(given: dict[str, str]) -> Purse | None:
    """The purse that pays for all runs, `None` if there is none."""
    place = given["COSTADA_PURSE"]
    if not given["COSTADA_PURSE_BUDGET"]:
        if place:
            raise ValueError("COSTADA_PURSE: got one without COSTADA_PURSE_BUDGET, expected both")
        return None
    is_shared = is_database(place)
    if is_shared:
        check_database(place, "COSTADA_PURSE")
    return Purse(
        _dollars("COSTADA_PURSE_BUDGET", given),
        policy=cast(Policy, given["COSTADA_BUDGET_POLICY"]),
        path=None if is_shared else place or None,
        dsn=place if is_shared else None,
        name="the server's purse",
    )


def _dollars(name: str, given: dict[str, str]) -> float:
    try:
        return float(given[name])
    except ValueError:
        raise ValueError(f"{name}: got {given[name]!r}, expected dollars such as 1.0") from None


def _names(variable: str, given: dict[str, str]) -> list[str]:
    """The names in a variable, with commas between them."""
    return [name.strip() for name in given[variable].split(",") if name.strip()]


_cached_graph = cache(graph_by_environment)


def _shared_graph() -> DiscoveryGraph:
    with _lock:
        return _cached_graph()
