"""Whether a graph can be built from what a caller gave, and run with it."""

from collections.abc import Iterable, Mapping
from math import inf
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.types import Command, StateUpdate

from costada.controller.constants import Constants
from costada.evaluators.problem import Problem
from costada.models.requests import with_tools
from costada.nodes.context import ChatModel
from costada.nodes.settings import Settings
from costada.nodes.state import SearchInput, SearchState
from costada.prompts.tools import TOOLS
from costada.store.purse import Purse
from costada.store.run_store import RunStore

SETTING_PLACES = {
    **{name: f"Settings(constants=Constants({name}=...))" for name in Constants.__annotations__},
    **{name: f"Settings({name}=...)" for name in Settings.model_fields},
    "budget": "create_discovery_graph(..., budget=DOLLARS)",
    "guide_model": "create_discovery_graph(..., guide_model=...)",
}
"""Where each setting of a search is given. A configurable `model` is a chat model's own."""


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


def check_purse(purse: object, settings: Settings) -> None:
    """Refuse a purse that a run could not draw from as the purse expects.

    Raises:
        ValueError: It is no purse, or a hard one for a run that may cross its budget.
    """
    if not isinstance(purse, Purse | None):
        raise ValueError(f"purse: got {purse!r}, expected Purse(BUDGET) or None")
    if purse and purse.policy == "hard" and settings.budget_policy != "hard":
        raise ValueError(
            f"budget_policy: got {settings.budget_policy!r} with a hard purse, expected 'hard'"
        )


def check_input(given: object, *, is_parents_state: bool = False) -> None:
    """Refuse keys of a run's input that the run would ignore.

    Args:
        given: The input of a run: a mapping, a command, or `None` to resume.
        is_parents_state: Whether it is the whole state of a parent graph, whose own keys pass.

    Raises:
        ValueError: Naming the key, and where it is given if it is named like a setting.
    """
    if isinstance(given, Command):
        check_update(given.update)
        return
    if not isinstance(given, Mapping):
        return
    unknown = [key for key in given if key not in SearchInput.__annotations__]
    refused = [key for key in unknown if key in SETTING_PLACES or not is_parents_state]
    if not refused:
        return
    way = _place(refused[0])
    if is_parents_state:
        way += ", or hide the parent's key: as_discovery_node(graph, input={...}, output={...})"
    expected = ", ".join(SearchInput.__annotations__)
    raise ValueError(f"input: got key {refused[0]!r}, expected {expected}{way}")


def check_update(values: object) -> None:
    """Refuse keys of an update of the state that the state does not have.

    Raises:
        ValueError: Naming the key, and where it is given if it is named like a setting.
    """
    if isinstance(values, Command):
        values = values.update
    if isinstance(values, list | tuple):
        values = dict(values)
    for key in values if isinstance(values, Mapping) else ():
        if key not in SearchState.__annotations__:
            known = ", ".join(SearchState.__annotations__)
            raise ValueError(f"state: got key {key!r}, expected one of {known}{_place(key)}")


def check_updates(supersteps: Iterable[Iterable[StateUpdate]]) -> None:
    """Refuse what `check_update` does in each of several updates."""
    for superstep in supersteps:
        for update in superstep:
            check_update(update.values)


def check_keys(where: str, given: object) -> None:
    """Refuse keys named like a setting in a place where no setting is read; all others pass.

    Raises:
        ValueError: Naming the place, the key, and where it is given.
    """
    for key in given if isinstance(given, Mapping) else ():
        if key in SETTING_PLACES:
            raise ValueError(f"{where}: got key {key!r}, which is not read there{_place(key)}")


def check_config(config: RunnableConfig) -> None:
    """Refuse settings in a configuration; raises as `check_keys` does."""
    check_keys("config", config)
    check_keys("configurable", config.get("configurable"))


def _place(key: str) -> str:
    """Return where a setting is given, nothing for another key."""
    if key in SearchInput.__annotations__:
        return f'; it is part of the input: {{"{key}": ...}}'
    return f"; it is set in {SETTING_PLACES[key]}" if key in SETTING_PLACES else ""
