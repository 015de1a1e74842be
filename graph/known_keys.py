"""Which keys the input and the configuration of a run may have; others are refused."""

from collections.abc import Mapping
from difflib import get_close_matches

from langgraph.types import Command

from costada.controller.constants import Constants
from costada.graph.graph_input import check_command
from costada.graph.overrides import SearchContext
from costada.nodes.settings import Settings
from costada.nodes.state import SearchInput

NOTHING: Mapping[str, object] = {}
NO_CHOICES = "which is not read there: the graph was made without choices=Choices(...)"

SETTING_ARGUMENTS = {
    **{
        name: f"create_discovery_graph(..., controller={{{name!r}: ...}})"
        for name in Constants.model_fields
    },
    **{name: f"create_discovery_graph(..., {name}=...)" for name in Settings.model_fields},
    **{
        name: f"create_discovery_graph(..., {name}=...)"
        for name in ("max_iterations", "reference_cost", "guide_model", "problem", "models")
    },
    "budget": "create_discovery_graph(..., budget=DOLLARS)",
}
"""How each setting of a search is given. A configurable `model` is a chat model's own."""


def check_input(given: object, *, is_parents_state: bool = False) -> None:
    """Refuse keys of a run's input that the run would ignore.

    Args:
        given: The input of a run: a mapping, a command, or `None` to resume.
        is_parents_state: Whether it is the whole state of a parent graph, whose own keys pass.

    Raises:
        ValueError: Naming the key, and where it is given if it is named like a setting.
    """
    if isinstance(given, Command):
        check_command(given)
        return
    if not isinstance(given, Mapping):
        return
    unknown = [key for key in given if key not in SearchInput.__annotations__]
    refused = [key for key in unknown if key in SETTING_ARGUMENTS or not is_parents_state]
    if not refused:
        return
    advice = _advice(refused[0])
    if is_parents_state:
        advice += ", or hide the parent's key: as_discovery_node(graph, input={...}, output={...})"
    expected = ", ".join(SearchInput.__annotations__)
    raise ValueError(f"input: got key {refused[0]!r}, expected {expected}{advice}")


def check_keys(where: str, given: object, known: Mapping[str, object] = NOTHING) -> None:
    """Refuse keys named like a setting in a place where no setting is read; all others pass.

    Args:
        where: What messages call the place.
        given: A mapping, or anything else, which is not checked.
        known: Keys with values that pass all the same.

    Raises:
        ValueError: Naming the key, and where the setting is given.
    """
    for key, value in given.items() if isinstance(given, Mapping) else ():
        if key in SETTING_ARGUMENTS and (key not in known or known[key] != value):
            raise ValueError(f"{where}: got key {key!r}, which is not read there{_advice(key)}")


def check_no_context(context: object) -> None:
    """Refuse the context of a graph without choices, which reads none.

    Raises:
        ValueError: Naming the key, the nearest one of a context and where that setting is given.
    """
    if context is None:
        return
    if not isinstance(context, Mapping):
        raise ValueError(f"context: got {context!r}, {NO_CHOICES}")
    for key in context:
        near = get_close_matches(str(key), {*SearchContext.__annotations__, *SETTING_ARGUMENTS}, 1)
        hint = f"; did you mean {near[0]!r}?" if near and near[0] != key else ""
        advice = _advice(near[0]) if near else ""
        raise ValueError(f"context: got key {key!r}, {NO_CHOICES}{hint}{advice}")


def _advice(key: str) -> str:
    """Where a setting is given, nothing for another key."""
    if key in SearchInput.__annotations__:
        return f'; it is part of the input: {{"{key}": ...}}'
    return f"; it is set in {SETTING_ARGUMENTS[key]}" if key in SETTING_ARGUMENTS else ""
