"""Whether a graph can be built from what a caller gave."""

from math import inf
from typing import Any

from langgraph.checkpoint.base import BaseCheckpointSaver

from costada.evaluators.problem import Problem
from costada.nodes.settings import Settings
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
    """Refuse to ask the caller for more budget where no checkpoint keeps the run meanwhile.

    Raises:
        ValueError: Saying what kind of `checkpointer` was expected.
    """
    if settings.on_exhausted == "interrupt" and not checkpointer:
        raise ValueError(
            f"on_exhausted: got 'interrupt' with checkpointer {checkpointer!r}, expected a"
            " LangGraph saver, or True below a parent graph that has one"
        )
