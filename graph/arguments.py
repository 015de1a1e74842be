"""Whether a graph can be built from what a caller gave."""

from math import inf
from typing import Any

from langgraph.checkpoint.base import BaseCheckpointSaver

from costada.evaluators.problem import Problem
from costada.models.tools import with_tools
from costada.nodes.context import ChatModel
from costada.nodes.settings import Settings
from costada.prompts.tools import TOOLS
from costada.store.purse import Ledger
from costada.store.run_store import RunStore


def check_arguments(
    problem: object, budget: object, guide_model: object, settings: object, store: object
) -> None:
    """Refuse arguments of `create_discovery_graph` that would fail later, or say nothing.

    Raises:
        ValueError: Naming the argument, its value and what was expected.
    """
    if not isinstance(problem, Problem):
        raise ValueError(f"problem: got {problem!r}, expected a Problem such as problem(NAME)")
    if isinstance(budget, bool) or not isinstance(budget, int | float) or not 0 < budget < inf:
        raise ValueError(f"budget: got {budget!r}, expected finite dollars above 0")
    if not isinstance(settings, Settings):
        raise ValueError(f"settings: got {settings!r}, expected Settings(...)")
    if settings.guide_price is not None and guide_model is None:
        raise ValueError("guide_price: got one without guide_model, expected both or none")
    if not isinstance(store, RunStore | None):
        raise ValueError(f"store: got {store!r}, expected RunStore(path) or None")


def check_saver(settings: Settings, checkpointer: BaseCheckpointSaver[Any] | bool | None) -> None:
    """Refuse to ask the caller anything where no checkpoint keeps the run meanwhile.

    Raises:
        ValueError: Saying what kind of `checkpointer` was expected.
    """
    asks = {"on_exhausted": settings.on_exhausted == "interrupt"}
    asks["approve_guides"] = settings.approve_guides
    for field, is_asking in asks.items():
        if is_asking and not checkpointer:
            raise ValueError(
                f"{field}: got {getattr(settings, field)!r} with checkpointer {checkpointer!r},"
                " expected a LangGraph saver, or True below a parent graph that has one"
            )


def check_generator(settings: Settings, model: ChatModel) -> None:
    """Refuse a generating model that could not do what it is to do.

    Raises:
        ValueError: It is to use tools and cannot.
    """
    if settings.generator == "agent":
        try:
            with_tools(model, TOOLS)
        except ValueError as error:
            raise ValueError(f"generator: got 'agent', and {error}") from None


def check_purse(ledger: object, settings: Settings) -> None:
    """Refuse a purse that a run could not draw from as the purse expects.

    Raises:
        ValueError: It is no purse, or a hard one for a run that may cross its budget.
    """
    if not isinstance(ledger, Ledger | None):
        raise ValueError(f"ledger: got {ledger!r}, expected Ledger(BUDGET) or None")
    if ledger and ledger.policy == "hard" and settings.budget_policy != "hard":
        raise ValueError(
            f"budget_policy: got {settings.budget_policy!r} with a hard ledger, expected 'hard'"
        )
