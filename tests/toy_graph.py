"""Graphs over the toy problem, with the scripted model or a client of the billing server."""

from collections.abc import Callable
from decimal import Decimal
from typing import Any, Literal

import pytest
from billing_server import BillingServer
from fakes import ScriptedModel, hashed_answer, toy_problem
from langgraph.errors import GraphDrained
from langgraph.runtime import RunControl

from costada.controller.constants import Constants
from costada.graph.build import compile_search
from costada.models.chat_models import chat_model
from costada.nodes.settings import Settings
from costada.store.run_store import RunStore
from costada.values.usage import Price

PRICE = Price("1", "2")
CALL_COST = Decimal("0.002")
"""1,000 input tokens at 1 dollar and 500 output tokens at 2 dollars per million."""

THREAD: Any = {"configurable": {"thread_id": "1"}}


def scripted(answer: Callable[[str], str] = hashed_answer) -> ScriptedModel:
    return ScriptedModel(answer=answer, prompts=[])


def client(server: BillingServer, name: str = "stand-in", **options: Any) -> Any:
    return chat_model(f"openai:{name}", **{"base_url": server.url, "retry_wait": 0, **options})


def discovery(
    model: Any = None,
    *,
    problem: Any = None,
    budget: float = 1.0,
    iterations: int | None = None,
    attempts: int | None = None,
    guide_model: Any = None,
    store: RunStore | None = None,
    saver: Any = None,
    purse: Any = None,
    parallel: int = 1,
    order: Literal["landing", "launch"] = "landing",
    **settings: Any,
) -> Any:
    chosen: dict[str, Any] = {"price": PRICE, **settings}
    chosen |= dict(chosen.pop("retry_policy", ()))
    limits = {"max_iterations": iterations, "max_attempts": attempts}
    given = {name: value for name, value in limits.items() if value is not None}
    if given:
        chosen["constants"] = Constants(**given)
    return compile_search(
        problem or toy_problem(),
        model or scripted(),
        budget=budget,
        guide_model=guide_model,
        settings=Settings(**chosen),
        checkpointer=saver,
        store=store,
        purse=purse,
        parallel=parallel,
        order=order,
    )


def graph_of(answer=hashed_answer, *, constants=None, checkpointer=None, budget=0.06, **options):
    model = scripted(answer)
    chosen = {"constants": constants} if constants else {}
    return discovery(model, budget=budget, saver=checkpointer, **chosen, **options), model


def calls_of(store: RunStore) -> list[Any]:
    return list(store.call_log.calls(store.run_ids()[-1]))


def rows_of(store: RunStore) -> list[dict[str, Any]]:
    return store.steps(store.run_ids()[-1])


def spent_by(store: RunStore) -> Decimal:
    return store.ledger.spent(store.run_ids()[-1], 10**9)


def events_of(store: RunStore) -> list[str]:
    return [event for row in rows_of(store) for event in row["events"]]


def billed(server: BillingServer) -> Decimal:
    total = server.total()
    return Decimal(total.input_tokens + 2 * total.output_tokens) / 1_000_000


def as_stored(row: dict[str, Any]) -> dict[str, Any]:
    """A row of the stream without the results beside it, as the store keeps it."""
    results = ("best_program", "best_files", "pareto_front")
    return {name: value for name, value in row.items() if name not in results}


def trace(graph, given=None, **options):
    stream = graph.stream({} if given is None else given, stream_mode="custom", **options)
    return list(map(as_stored, stream))


def resumed(graph, config=THREAD):
    return list(map(as_stored, graph.stream(None, config, stream_mode="custom")))


NEW_RUN: Any = {}
"""The input of a run with the seed of its settings."""


def run_until(graph, config, iteration, given=NEW_RUN):
    """Drain a run as soon as an iteration is finished, as Ctrl-C does."""
    control = RunControl()
    rows = []

    def drain():
        for row in graph.stream(given, config, stream_mode="custom", control=control):
            rows.append(as_stored(row))
            if row["iteration"] == iteration:
                control.request_drain()

    with pytest.raises(GraphDrained):
        drain()
    return rows
