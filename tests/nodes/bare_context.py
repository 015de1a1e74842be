"""What a node needs to ask a model, and nothing of a run around it."""

from typing import Any

from fakes import toy_problem

from costada.models.prices import price_book
from costada.nodes.context import RunContext
from costada.nodes.settings import Settings
from costada.store.run_store import RunStore
from costada.values.prices import Price

PRICE = Price(1, 2)


def context_of(model: Any, store: RunStore | None = None) -> RunContext:
    """Return the context of a run on the toy problem, in memory without a store."""
    return RunContext(
        name="test",
        problem=toy_problem(),
        model=model,
        guide_model=model,
        budget=1.0,
        settings=Settings(price=PRICE),
        prices=price_book([(model, PRICE)], {}),
        store=store or RunStore(),
    )
